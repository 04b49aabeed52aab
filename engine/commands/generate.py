"""`allocsim generate MODEL`: continue text with a llama, its cache of keys and values judged while
it runs.

MODEL is a GGUF file, a folder of transformers or one that `allocsim train` wrote; `--adapter` lays
trained adapters over it, those in the model's own folder unasked. Text is bytes where the model has
256 tokens, else what the folder's `tokenizer.json` says (by the library `tokenizers`); `--tokens`
takes numbers of any model.

With `--out` the folder of results has `events.jsonl` (what was done to the cache, as
`allocsim trace` reads it), `document.json` (programs and plans of the steps) and `tokens.json`.

What this module does not see: how a step runs (`engine.generation`).
"""

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer

from allocsim.cli.output import in_bytes, print_json, print_line
from allocsim.cli.trace import record_of_recording, say_recording
from allocsim.document import dumps
from allocsim.errors import EngineError
from allocsim.files.folders import replace_files, working_in
from allocsim.files.gate import refused_with, refusing
from engine.generation import Decoder, Generated, Sampling, generate
from engine.models import adapters
from engine.models.llama import LlamaConfig
from engine.models.weights import read_llama

BYTES = 256
"""Tokens of a model whose tokens are bytes."""

Encode = Callable[[str], list[int]]
Decode = Callable[[Sequence[int]], str]


def generate_text(
    model: Annotated[Path, typer.Argument(metavar="MODEL", help="GGUF file, or a folder with config.json.")],
    prompt: Annotated[list[str] | None, typer.Option("--prompt", "-p", help="Text to continue; several times.")] = None,
    *,
    tokens: Annotated[
        list[str] | None, typer.Option("--tokens", metavar="N,N..", help="The same as numbers of tokens.")
    ] = None,
    adapter: Annotated[
        Path | None, typer.Option(metavar="PATH", help="Adapters over it: PEFT's folder or a GGUF file.")
    ] = None,
    length: Annotated[int, typer.Option(min=1, help="The most tokens that one continuation may have.")] = 64,
    samples: Annotated[int, typer.Option(min=1, help="Continuations of each prompt.")] = 1,
    temperature: Annotated[float, typer.Option(help="Logits are divided by it; 0 takes the largest.")] = 0.0,
    top_k: Annotated[int, typer.Option(help="Draw from so many of the largest; 0: from all.")] = 0,
    top_p: Annotated[float, typer.Option(help="Draw from the fewest that have this probability.")] = 1.0,
    seed: Annotated[int, typer.Option(help="Seed of the tokens that are drawn.")] = 0,
    page: Annotated[int, typer.Option(min=1, help="Positions of a page of the cache.")] = 16,
    pages: Annotated[
        int | None, typer.Option(min=1, help="Pages of the cache.", show_default="as many as are needed")
    ] = None,
    allocator: Annotated[
        str, typer.Option("--allocator", "--planner", help='Who plans a step: a name or "package.module:function".')
    ] = "ggml",
    threads: Annotated[int, typer.Option(min=1, help="Threads of a step.")] = 1,
    out: Annotated[Path | None, typer.Option(metavar="DIR", help="Folder of results.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> int:
    """Exit status: 0 generated, 1 the judge found something wrong with the cache, 2 bad input.

    Example: allocsim generate out/text -p Once --temperature 0.8
    """
    sampling = Sampling(temperature=temperature, top_k=top_k, top_p=top_p, seed=seed)
    config, parameters, ends = _read(model, adapter)
    encode, decode = _text(model, config.vocab)
    prompts = [*map(encode, prompt or ()), *map(_numbers, tokens or ())]
    if not prompts:
        raise EngineError("nothing to continue; --prompt TEXT or --tokens N,N.. gives a beginning")
    events: list[Mapping[str, Any]] = []
    wanted = sum(samples * (-(-(len(one) + length) // page) + 1) for one in prompts)
    with Decoder(config, parameters, pages=pages or wanted, cells=page, planner=allocator, threads=threads) as decoder:
        generated = generate(
            decoder,
            prompts,
            length=length,
            sampling=sampling,
            samples=samples,
            stop=ends,
            recorded=events.append if out is not None else None,
        )
    said = _record(decoder, generated, [one for one in prompts for _ in range(samples)], decode)
    if out is not None:
        lines = b"".join(msgspec.json.encode(event) + b"\n" for event in events)
        document = dumps(decoder.document())
        told = (json.dumps(said, indent=1) + "\n").encode()
        with working_in(out):
            replace_files(out, {"events.jsonl": lines, "document.json": document, "tokens.json": told})
    if as_json:
        print_json(said)
    else:
        _say(generated, said, allocator)
        if out is not None:
            print_line(f"results in {out}")
    return int(bool(generated.judged.findings))


def _read(model: Path, adapter: Path | None) -> tuple[LlamaConfig, Mapping[str, Any], tuple[int, ...]]:
    """Return sizes, weights and what ends a text; adapters in the model's folder lie over it."""
    found = read_llama(model)
    if adapter is None and (model / adapters.PEFT_CONFIG).exists():
        adapter = model
    if adapter is None:
        return found.config, found.weights, found.ends
    read = adapters.read(adapter, found.config)
    return read.config, {**found.weights, **read.weights}, found.ends


def _text(model: Path, vocab: int) -> tuple[Encode, Decode]:
    """Return how text becomes tokens of this model, and tokens text."""
    place = model / "tokenizer.json"
    if place.is_file():
        try:
            from tokenizers import Tokenizer
        except ImportError:
            return _no_text(f"{place} is read by the library tokenizers, which is not installed"), _as_numbers
        with refusing(str(place), "tokenizer", refusal=refused_with(EngineError)):
            read: Any = Tokenizer.from_file(str(place))
        return lambda text: list(read.encode(text).ids), lambda numbers: str(read.decode(list(numbers)))
    if vocab == BYTES:
        return lambda text: list(text.encode()), lambda numbers: bytes(numbers).decode(errors="replace")
    return _no_text(f"{model} has no tokenizer.json"), _as_numbers


def _no_text(why: str) -> Encode:
    def refuse(text: str) -> list[int]:
        raise EngineError(f"{text!r} is no number of a token, and {why}; --tokens takes numbers")

    return refuse


def _as_numbers(numbers: Sequence[int]) -> str:
    return " ".join(map(str, numbers))


def _numbers(text: str) -> list[int]:
    try:
        return [int(number) for number in text.split(",")]
    except ValueError:
        raise EngineError(f"--tokens {text!r}: whole numbers with commas between are needed") from None


def _record(decoder: Decoder, generated: Generated, prompts: Sequence[Sequence[int]], decode: Decode) -> dict[str, Any]:
    largest = max((plan.peak_bytes for plan in decoder.plans.values()), default=0)
    return {
        "continued": [
            {"prompt": list(prompt), "tokens": one.tokens[len(prompt) :], "text": decode(one.tokens[len(prompt) :])}
            for one, prompt in zip(generated.sequences, prompts, strict=True)
        ],
        "steps": decoder.steps,
        "plans": len(decoder.plans),
        "peak_bytes": largest,
        "cache_bytes": sum(rows.nbytes for rows in decoder.cache.values()),
        "judged": record_of_recording("the cache", generated.judged),
    }


def _say(generated: Generated, said: Mapping[str, Any], allocator: str) -> None:
    for one, told in zip(generated.sequences, said["continued"], strict=True):
        print_line(f"{one.name}: {told['text']}")
    made = sum(len(one["tokens"]) for one in said["continued"])
    print_line(
        f"{made} tokens in {said['steps']} steps, {said['plans']} plans by {allocator}, the largest of "
        f"{in_bytes(said['peak_bytes'])}; cache of {in_bytes(said['cache_bytes'])}"
    )
    say_recording("the cache", generated.judged)
