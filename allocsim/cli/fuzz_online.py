"""`allocsim fuzz --online TARGET`: drive an allocator that answers while the program runs.

What this module does not see: calls, and what is promised (`allocsim.online`).
"""

import json
from contextlib import ExitStack
from itertools import count
from pathlib import Path
from typing import Any, Final

from allocsim.cli.output import print_json, print_line, show_path
from allocsim.document import dumps
from allocsim.errors import AllocsimError, ModelError, UnknownNameError
from allocsim.files.folders import replace_files, working_in
from allocsim.model import Document
from allocsim.online import CHOICES, Finding, Result, find
from allocsim.online.in_words import lines, script
from allocsim.online.own_process import SECONDS, isolated
from allocsim.programs.allocator_trace import trace
from allocsim.verdict.causes import causes_of

EXAMPLES: Final = 10_000
"""Sequences, unless `--examples` or `--minutes` says otherwise."""


def fuzz_online(
    target: str,
    *,
    examples: int | None,
    minutes: float | None,
    seed: int,
    timeout: float | None,
    guarantees: tuple[str, ...],
    shrink: bool,
    out: Path | None,
    as_json: bool,
) -> int:
    """Return 1 where a promise was broken, else 0.

    Raises AllocsimError for a target that is none.
    """
    asked = _asked(guarantees)
    options = {
        **asked,
        "examples": EXAMPLES if examples is None and minutes is None else examples,
        "seconds": None if minutes is None else minutes * 60,
        "seed": seed,
        "shrink": shrink,
    }
    find(target)  # what is none is refused before a folder is claimed
    with ExitStack() as claims:
        if out is not None:
            claims.enter_context(working_in(out))
        numbers = count(1)

        def tell(finding: Finding, events: list[dict[str, Any]]) -> None:
            """Say and keep a finding as it comes: what ends the campaign does not lose it."""
            if as_json and out is None:
                return
            document = _document(events)
            if not as_json:
                _say(finding, seed, document)
            if out is not None:
                files = {"test_smallest.py": script(finding, target, asked["waste"]).encode()}
                if not finding.died:
                    files["events.jsonl"] = "".join(json.dumps(event) + "\n" for event in events).encode()
                if document is not None:
                    files["smallest.json"] = dumps(document)
                replace_files(out / f"{next(numbers)}-{finding.broken.property}", files)

        result = isolated(target, options, seconds=timeout or SECONDS, tell=tell)
    if as_json:
        print_json(_record(target, result, seed))
    else:
        for line in _summary(result, asked):
            print_line(line)
        if out is not None and result.findings:
            print_line(f"each finding has a folder in {show_path(out)}")
    return int(bool(result.findings))


def _asked(guarantees: tuple[str, ...]) -> dict[str, Any]:
    """Return what is asked by choice. Raises UnknownNameError for what is no promise, AllocsimError
    for a bound that is none.
    """
    waste = None
    for name in guarantees:
        word, _, bound = name.partition("=")
        if word == "waste":
            try:
                waste = float(bound)
            except ValueError:
                raise AllocsimError(f"--guarantee {name}: waste=BOUND needs a number, as in waste=1.5") from None
            if not 1 <= waste < float("inf"):
                raise AllocsimError(f"--guarantee {name}: no allocator keeps a bound that is not from 1 on, and finite")
        elif name not in CHOICES:
            raise UnknownNameError("promise", name, {*CHOICES, "waste=BOUND"})
    return {"deterministic": "deterministic" in guarantees, "waste": waste}


def _document(events: list[dict[str, Any]]) -> Document | None:
    """Return what was given out as a document, None where there is none."""
    try:
        return trace(events, name="online") if events else None
    except ModelError:
        return None


def _say(finding: Finding, seed: int, document: Document | None) -> None:
    """Print a finding, and what the judge says of it: nothing where no memory shows the fault."""
    for line in lines(finding, seed):
        print_line(line)
    for cause in () if document is None else causes_of(document):
        print_line(f"  as a document: {cause.class_}, fault of the {cause.party}")


def _summary(result: Result, asked: dict[str, Any]) -> tuple[str, str]:
    many = len(result.findings)
    shapes = ", ".join(f"{count} {shape}" for shape, count in sorted(result.shapes.items()))
    words = ", ".join(f"{count} {word}" for word, count in sorted(result.words.items()))
    never = [f"{word}s" for word in ("fork", "thread") if not result.words[word]] + ["bad calls"]
    held = ", ".join(name for name, chosen in asked.items() if chosen) or "none"
    found = f"{many} finding{'s'[: many != 1]}" if many else "nothing found"
    stopped = f"; {result.stopped}" if result.stopped else ""
    moody = f"; {result.moody} looked broken once, and not when run again" if result.moody else ""
    return (
        f"{found} in {result.sequences} sequences of {result.calls} calls: {shapes or 'none'}{stopped}{moody}",
        f"  drawn: {words or 'none'}; held to by choice: {held}; never drawn: {', '.join(never)}",
    )


def _record(target: str, result: Result, seed: int) -> dict[str, Any]:
    return {
        "target": target,
        "seed": seed,
        "sequences": result.sequences,
        "calls": result.calls,
        "shapes": result.shapes,
        "words": result.words,
        "moody": result.moody,
        "findings": [
            {
                "property": finding.broken.property,
                "cause": finding.broken.cause,
                "sentence": finding.broken.sentence,
                "sequence": finding.index,
                "capacity": finding.sequence.capacity,
                "alignment": finding.sequence.alignment,
                "streams": finding.sequence.streams,
                "calls": finding.sequence.calls,
            }
            for finding in result.findings
        ],
    }
