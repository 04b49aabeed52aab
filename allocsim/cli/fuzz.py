"""`allocsim fuzz TARGET`: random programs through a planner; what is unsound, differs or crashes is a finding.

A target is a row of `TARGETS`: a function that yields findings for a range of seeds. The same seed gives the same finding. Findings are
shrunk, and written as they come with `--out`, so that an interrupt loses none of them.

Exit status 0 where nothing was found, 1 where something was, 2 for bad usage or a library that is missing or refused.

What this module does not see: how programs are made and judged.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from allocsim.cli.output import print_json, print_line, show_path
from allocsim.errors import OutputError, UnknownNameError

DEFAULT_EXAMPLES: Final = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """The options of a run."""

    examples: int
    seed: int
    shrink: bool
    library: str
    """For the target `ggml`: which one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """One finding."""

    seed: int
    kind: str
    """`crash`, `unsound` or `differs`."""
    words: str
    size: str
    """What is left of it after shrinking."""
    keep: Callable[[Path], Path]
    """Writes it into a folder and returns the file."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """Something that plans."""

    what: str
    run: Callable[[Asked], Iterator[Found]]


def fuzz(
    target: Annotated[str, typer.Argument(metavar="TARGET", help="What to fuzz: ggml, the live library.")],
    *,
    ggml: Annotated[str, typer.Option(help="For ggml: before, after, or the path of a libggml.")] = "after",
    examples: Annotated[int, typer.Option(min=1, max=10_000_000, help="Random graphs.")] = DEFAULT_EXAMPLES,
    seed: Annotated[int, typer.Option(min=0, help="Of the first graph; the others follow it.")] = 0,
    shrink: Annotated[bool, typer.Option(help="Make each finding small.")] = True,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
    out: Annotated[Path | None, typer.Option("--out", metavar="DIR", help="Keep each finding here, as it comes.")] = None,
) -> int:
    """Exit status: 0 no finding, 1 findings (a crash is one), 2 bad usage or a library that is refused."""
    if target not in TARGETS:
        raise UnknownNameError("target", target, TARGETS)
    if out is not None:
        _make(out)
    entries: list[dict[str, Any]] = []
    asked = Asked(examples=examples, seed=seed, shrink=shrink, library=ggml)
    for found in TARGETS[target].run(asked):
        path = found.keep(out) if out is not None else None
        entries.append({"seed": found.seed, "kind": found.kind, "words": found.words, "size": found.size, "file": _text(path)})
        if not as_json:
            kept = f"; kept in {show_path(path)}" if path is not None else ""
            print_line(f"seed {found.seed}: {found.kind}: {found.words} ({found.size}){kept}")
    if as_json:
        print_json({"target": target, "examples": examples, "seed": seed, "findings": entries})
    else:
        print_line(f"{len(entries)} of {examples} graphs have a finding")
    return int(bool(entries))


def _on_ggml(asked: Asked) -> Iterator[Found]:
    """Graphs through the real allocator and scheduler, each in a process that may crash."""
    from functools import partial  # noqa: PLC0415  # with what follows: only for this target

    from engine.ggml import fuzz as live  # noqa: PLC0415
    from engine.ggml.probe import open_library  # noqa: PLC0415

    with open_library(asked.library) as child:
        seeds = range(asked.seed, asked.seed + asked.examples)
        with _progress(asked.examples) as advance:
            for seed in seeds:
                for finding in live.fuzz(child, [seed]):
                    small = live.minimise(child, finding) if asked.shrink else finding
                    size = f"{len(small.recipe.steps)} tensors"
                    yield Found(seed=seed, kind=small.kind, words=small.words, size=size, keep=partial(live.keep, small))
                advance()


TARGETS: Final[dict[str, Target]] = {
    "ggml": Target(what="the graph allocator and the scheduler of a real libggml", run=_on_ggml),
}
"""What can be fuzzed, by name."""


@contextmanager
def _progress(total: int) -> Iterator[Callable[[], None]]:
    """Give a bar on standard error if that is a terminal, and silence otherwise."""
    import sys  # noqa: PLC0415  # as below

    if not sys.stderr.isatty():
        yield lambda: None
        return
    from rich.console import Console  # noqa: PLC0415  # only on a terminal
    from rich.progress import Progress  # noqa: PLC0415  # as above

    with Progress(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("fuzz", total=total)
        yield lambda: bar.advance(task)


def _make(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OutputError(f"{folder}: {error.strerror or error}") from None


def _text(path: Path | None) -> str | None:
    return None if path is None else str(path)
