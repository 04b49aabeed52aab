"""Task of a child process: llama.cpp decodes with a model in a GGUF file, and the computed graphs
are returned.

Contract: `decoded(library, path, prompt=..., steps=..., seed=..., threads=...)` loads the file. It
decodes `prompt` tokens, drawn from the seed, at once, then `steps` more, one at a time, each the
likeliest after those before. It returns `ComputedGraphs`: the graph of the prefill, and one or more
graphs of decoding, each with the addresses at which it ran. A warm-up by llama.cpp while it loads
is not included.

What this module does not see: the documents made of these graphs (`capture.computed_graphs`).
"""

import random
from pathlib import Path

from allocsim.errors import EngineError
from allocsim.systems.ggml.access.library import Library
from allocsim.systems.ggml.access.llama_model import LlamaModel
from allocsim.systems.ggml.capture.computed_graphs import ComputedGraphs, watch


def decoded(library: Library, path: str, *, prompt: int, steps: int, seed: int = 0, threads: int = 1) -> ComputedGraphs:
    """Task: return the graphs that decoding with a model computed; see the module.

    Raises EngineError where the library has no llama.cpp, the file is no model that it can run, or
    the tokens do not fit in its context.
    """
    name = Path(path).name
    with LlamaModel(library, Path(path), threads=threads) as model:
        if prompt + steps > model.room:
            raise EngineError(f"{prompt} tokens and {steps} more do not fit in a context of {model.room}")
        drawn = random.Random(f"tokens {seed}")  # noqa: S311 - reproducible, not secret
        tokens = [drawn.randrange(model.vocabulary) for _ in range(prompt)]
        with watch(library, meta={"name": f"{name}, prefill of {prompt}, {steps} steps"}) as seen:
            model.decode(tokens)
            for _ in range(steps):
                model.decode([model.next_token()])
        return seen
