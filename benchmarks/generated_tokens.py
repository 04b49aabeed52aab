"""Tokens a second of `allocsim generate` and of llama.cpp, from one GGUF file in float32, on one thread, taking turns.

    python benchmarks/generated_tokens.py [--tokens 64] [--pairs 5] [--layers 30]

The model has the shape of SmolLM2-135M and drawn weights (`tests/gguf_models.py`). Each side continues the same 32 tokens greedily; the prompt and what is
done once (loading, planning, binding) do not count: llama.cpp says the time of its generation itself (`predicted_ms`), here it is that of the steps behind
the prompt, the judge of the cache among them. Each turn is a process. The tokens of both are compared.
"""

import tempfile
import time
from functools import partial
from pathlib import Path

from harness import Found, apart, in_turns, ratio, run

from gguf_models import word, write_model

PROMPT = list(range(5, 37))


def theirs(model: str, count: int) -> Found:
    """Generate by llama.cpp; milliseconds, and text."""
    import xllamacpp

    params = xllamacpp.CommonParams()
    params.model.path, params.n_ctx, params.cpuparams.n_threads, params.n_parallel = model, 256, 1, 1
    params.cpuparams_batch.n_threads, params.warmup = 1, True
    asked = {"prompt": PROMPT, "n_predict": count, "temperature": 0, "ignore_eos": True, "cache_prompt": False}
    answer = xllamacpp.Server(params).handle_completions(asked)
    return {"milliseconds": answer["timings"]["predicted_ms"], "text": answer["choices"][0]["text"]}


def ours(model: str, count: int) -> Found:
    """Generate here; milliseconds behind the first token, and text."""
    from engine.generation import Decoder, generate
    from engine.models.weights import read_llama

    found, heard = read_llama(model), []
    with Decoder(found.config, found.weights, pages=16) as decoder:
        made = generate(decoder, [PROMPT], length=count, heard=lambda *_: heard.append(time.perf_counter()))
    assert not made.judged.findings
    text = "".join(map(word, made.sequences[0].tokens[len(PROMPT) :]))
    return {"milliseconds": 1000 * (heard[-1] - heard[0]), "text": text}


def asked(side: str, model: Path, count: int, said: dict[str, str]) -> float:
    """Return tokens a second of a side, in a process of its own."""
    found = apart({"ours": ours, "theirs": theirs}[side], model, count, quiet=True)
    said[side] = found["text"]
    return (count - 1) / found["milliseconds"] * 1000


def measure(*, tokens: int = 64, pairs: int = 5, layers: int = 30) -> Found:
    """Make the model and let both sides generate in turns."""
    said: dict[str, str] = {}
    with tempfile.TemporaryDirectory() as folder:
        shape = {"layers": layers, "sizes": (576, 1536, 9, 3, 49152), "words": True, "tied": True}
        model = write_model(Path(folder) / "model.gguf", **shape)
        found = in_turns({side: partial(asked, side, model, tokens, said) for side in ("ours", "theirs")}, pairs)
    return {
        "layers": layers, "tokens": tokens, "same_text": said["ours"] == said["theirs"],
        "tokens_a_second": found, "ours_over_theirs": ratio(found["ours"], found["theirs"]),
    }  # fmt: skip


if __name__ == "__main__":
    run(measure, versions=("xllamacpp", "gguf"))
