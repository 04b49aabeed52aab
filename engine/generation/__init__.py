"""A trained llama, continued token by token, with keys and values in judged pages.

| file | |
|---|---|
| `pages.py` | pages given out to sequences, counted, and told as events |
| `decoder.py` | a step: tokens in, logits out, keys and values into the cache |
| `sampling.py` | how the next token is chosen |
| `generating.py` | sequences continued together, judged while they run |

`allocsim generate` is the command.
"""

from engine.generation.decoder import Continued, Decoder
from engine.generation.generating import Generated, generate
from engine.generation.pages import Pages
from engine.generation.sampling import Sampling

__all__ = ["Continued", "Decoder", "Generated", "Pages", "Sampling", "generate"]
