"""Task of a child process: a model in a GGUF file, prefilled and decoded by llama.cpp, and the
graphs that this computed.

Contract: `decoded(library, path, prompt=..., steps=..., seed=..., threads=...)` loads the file,
decodes `prompt` tokens drawn from the seed at once, then `steps` more, one at a time, each the
likeliest after those before. What is returned is `ComputedGraphs`: the graph of the prefill, and
one or more of decoding, each with the addresses at which it ran. The warm-up that llama.cpp may do
while it loads is not part of it.

What this module does not see: what the graphs mean
(`allocsim.systems.ggml.capture.computed_graphs.session`).
"""

import random
from pathlib import Path

from allocsim.errors import EngineError
from allocsim.systems.ggml.access.library import Library
from allocsim.systems.ggml.access.llama_model import LlamaModel
from allocsim.systems.ggml.capture.computed_graphs import ComputedGraphs, watch


def decoded(library: Library, path: str, *, prompt: int, steps: int, seed: int = 0, threads: int = 1) -> ComputedGraphs:
    """Task: return what decoding a model computed; see the module.

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
