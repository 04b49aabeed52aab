"""The target `ggml` of `allocsim fuzz`: random graphs through the planners of a real libggml.

Both the graph allocator and the scheduler plan each graph, in a process that may crash.

The same seed gives the same finding, but for races. Findings are joined by cause: the first of each
is made small, run again, and printed, and written at once where a folder is given, so that an
interrupt loses none; the others are counted. With a corpus, findings and progress are kept there,
and a later campaign of the same library and seed goes on behind the last graph tried. `--jobs` are
processes, each with a library of its own.

What this module does not see: how graphs are made and judged
(`allocsim.systems.ggml.random_graphs.graph_fuzzing`).
"""

import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack
from functools import partial
from itertools import count, islice
from multiprocessing import get_context
from pathlib import Path
from typing import Annotated, Any, Final

from msgspec import Meta, Struct

from allocsim.cli.output import print_json, print_line, show_path
from allocsim.cli.progress import counting
from allocsim.errors import DocumentError
from allocsim.files import write_atomic
from allocsim.files.folders import working_in
from allocsim.files.gate import CEILINGS, content
from allocsim.files.journal import sealed, unsealed
from allocsim.systems.ggml.access.child import Child
from allocsim.systems.ggml.access.library import versions
from allocsim.systems.ggml.access.probe import open_library
from allocsim.systems.ggml.random_graphs import graph_fuzzing as live

DEFAULT_EXAMPLES: Final = 200

PROGRESS: Final = "progress.json"
"""File of a corpus: the library's version, seed, count of graphs tried, findings by cause."""


def fuzz_library(
    *,
    library: str,
    examples: int | None,
    seed: int,
    shrink: bool,
    out: Path | None,
    as_json: bool,
    minutes: float | None = None,
    corpus: Path | None = None,
    jobs: int = 1,
) -> int:
    """Fuzz a library with graphs from `seed` on; return the exit status.

    It ends after `examples` graphs, or after so many minutes where only these are given.
    """
    most = examples if examples is not None else None if minutes is not None else DEFAULT_EXAMPLES
    ends = None if minutes is None else time.monotonic() + 60 * minutes
    entries: list[dict[str, Any]] = []
    with ExitStack() as stack:
        for folder in {place.resolve() for place in (out, corpus) if place is not None}:
            stack.enter_context(working_in(folder))
        child = stack.enter_context(open_library(library))
        version = child.call(versions)["version"]
        done, counts = _progress(corpus, version, seed)
        advance = stack.enter_context(counting("fuzz", most or 0))
        advance(done)
        numbers = range(seed + done, seed + most) if most is not None else count(seed + done)
        for tried, findings in _tried(stack, library, child, iter(numbers), jobs, {*counts}):
            for finding in findings:
                counts[finding.cause] += 1
                if counts[finding.cause] > 1:
                    continue
                small = live.minimise(child, finding) if shrink else finding
                entries.append(_told(small, live.replayed(child, small), [f for f in (out, corpus) if f], as_json))
            done += tried
            if corpus is not None:
                about = {"ggml": version, "seed": seed, "tried": done, "causes": dict(counts)}
                write_atomic(corpus / PROGRESS, sealed(about))
            advance(tried)
            if ends is not None and time.monotonic() >= ends:
                break
    entries = [{**entry, "count": counts[entry["cause"]]} for entry in entries]
    if as_json:
        more = {"causes": dict(counts)} if corpus is not None else {}
        print_json({"target": "ggml", "examples": done, "seed": seed, "findings": entries, **more})
    else:
        for cause, number in counts.most_common():
            print_line(f"{number} of {done} graphs: {cause}")
        print_line(f"{counts.total()} of {done} graphs have a finding, of {len(counts)} causes")
    return int(bool(counts))


def _told(finding: live.FuzzedFault, again: str, folders: list[Path], as_json: bool) -> dict[str, Any]:  # noqa: FBT001
    """Print a finding, keep it, and return it as an entry."""
    paths = [live.keep(finding, folder) for folder in folders]
    size = f"{len(finding.recipe.steps)} tensors"
    if not as_json:
        kept = f"; kept in {show_path(paths[0])}" if paths else ""
        print_line(f"seed {finding.seed}: {finding.kind}: {finding.cause}; {finding.words}; {again} ({size}){kept}")
    about = {"seed": finding.seed, "kind": finding.kind, "cause": finding.cause, "words": finding.words}
    return {**about, "replayed": again, "size": size, "file": str(paths[0]) if paths else None}


def _tried(  # noqa: PLR0917 - the campaign, in order
    stack: ExitStack, library: str, child: Child, numbers: Iterator[int], jobs: int, known: set[str]
) -> Iterator[tuple[int, list[live.FuzzedFault]]]:
    """Yield for each batch how many graphs were tried, and the findings; in order of seeds.

    `known` are causes that were named before; those that are named now are added to it.
    """
    if jobs == 1:
        while batch := list(islice(numbers, live.BATCH)):
            yield len(batch), list(live.fuzz(child, batch, known=known))
        return
    pool = stack.enter_context(ProcessPoolExecutor(jobs, mp_context=get_context("spawn")))
    while batches := [batch for _ in range(jobs) if (batch := list(islice(numbers, live.BATCH * BATCHES)))]:
        for batch, findings in zip(batches, pool.map(partial(_in_process, library, known), batches), strict=True):
            known |= {one.cause for one in findings}
            yield len(batch), findings


BATCHES: Final = 1
"""Batches a process of `--jobs` takes at a time; it hears of others' findings between two."""

_CHILDREN: Final[dict[str, Child]] = {}
"""The library of a process of `--jobs`, which lives as long as it does."""


def _in_process(library: str, known: set[str], numbers: list[int]) -> list[live.FuzzedFault]:
    if library not in _CHILDREN:
        _CHILDREN[library] = open_library(library)
    return list(live.fuzz(_CHILDREN[library], numbers, known=known))


class _Progress(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the file of a corpus says."""

    ggml: str
    seed: Annotated[int, Meta(ge=0, le=1 << 62)]
    tried: Annotated[int, Meta(ge=0, le=1 << 53)]
    causes: dict[str, Annotated[int, Meta(ge=0, le=1 << 53)]]


def _progress(corpus: Path | None, version: str, seed: int) -> tuple[int, Counter[str]]:
    """Return how many graphs a corpus has seen, and its findings by cause.

    Raise DocumentError where it is of another library or seed.
    """
    path = None if corpus is None else corpus / PROGRESS
    if path is None or not path.exists():
        return 0, Counter()
    about: _Progress = unsealed(content(path, CEILINGS["record"]), _Progress, str(path), refusal=DocumentError)
    if (about.ggml, about.seed) != (version, seed):
        raise DocumentError(
            str(path), "", f"is of ggml {about.ggml}, seed {about.seed}; this campaign is of {version}, seed {seed}"
        )
    return about.tried, Counter(about.causes)
