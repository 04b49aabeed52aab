"""Sources of programs: each produces its cases in chunks that are the same every time.

A chunk is (seed, number, count). A source is a function that makes the cases of one chunk and has
them examined, in lists or batches as suits it, and may steer by what comes back. So a campaign is a
set of chunks, done in any order, anywhere, by however many.

What this module does not see: targets, findings, processes.
"""

import importlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain, repeat
from typing import Any, Final, Protocol

import numpy as np

from allocsim.errors import AllocsimError
from allocsim.fuzzing.batch import Batch
from allocsim.fuzzing.fuzz_case import Answer, FuzzCase
from allocsim.fuzzing.repeatable import repeatable
from allocsim.model import VIEW, Plan, Program
from allocsim.programs.access_steps import first_and_last

MISSING: Final = (
    "drawing programs needs Hypothesis: pip install 'allocsim[fuzz]'; the bulk and the exhaustive source do without"
)


class Asking(Protocol):
    """What a source does with its cases."""

    def case(self, case: FuzzCase) -> Answer:
        """Ask a case and return the answer.

        Judge it, with others later if that is quicker, and keep what is found.
        """
        ...

    def batch(self, batch: Batch) -> None:
        """Ask and judge the programs of a batch, and keep what is found."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceChunk:
    """A stretch of a source."""

    seed: int
    number: int
    count: int
    """Cases in it, at most."""
    options: Mapping[str, Any]
    """What the source was told: `runnable`, `ops`, `strategy`."""
    begin: tuple[int, ...] = ()
    """Where it begins, for sources that need to know."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """One row."""

    what: str
    explore: Callable[[SourceChunk, Asking], None]
    size: int
    """Cases in a chunk."""
    first: tuple[int, ...] = ()
    """Cases of the first chunks, where these have fewer: a campaign that is killed in its first
    seconds loses little.
    """
    proves: bool = False
    """Whether nothing found is a proof: every program of a scope is made. Such programs are judged
    by the plain checks alone; those of other sources are first selected by compiled filters.
    """


def chunks(source: str, *, seed: int, options: Mapping[str, Any], total: int | None) -> Iterator[SourceChunk]:
    """Yield the chunks of a source with `total` cases in all, without end where that is None.

    What is exhaustive has its own end.
    """
    if source == "exhaustive":
        from allocsim.fuzzing.exhaustive import stretches  # noqa: PLC0415 - only for this source

        for number, (begin, count) in enumerate(stretches(int(options["ops"]), SOURCES[source].size)):
            yield SourceChunk(seed=seed, number=number, count=count, options=options, begin=begin)
        return
    begun = 0
    for number, size in enumerate(chain(SOURCES[source].first, repeat(SOURCES[source].size))):
        if total is not None and begun >= total:
            return
        count = size if total is None else min(size, total - begun)
        yield SourceChunk(seed=seed, number=number, count=count, options=options)
        begun += count


def by_hypothesis(chunk: SourceChunk, asking: Asking) -> None:
    """Draw programs one by one: in every second chunk freely, else steered, in turn toward long
    chains of aliases and plans with much waste.

    Steering finds what is far out and draws less of everything else; so half of the programs go
    without. Toward both at once it would get far in neither.
    """
    try:
        from hypothesis import HealthCheck, Phase, given, seed, settings, target  # noqa: PLC0415 - only for this source
    except ImportError:
        raise AllocsimError(MISSING) from None

    ended: list[AllocsimError] = []  # Hypothesis would try an error again and call it flaky

    @seed(hash((chunk.seed, chunk.number)))
    @settings(
        max_examples=chunk.count,
        database=None,
        deadline=None,
        phases=(Phase.generate, Phase.target),
        suppress_health_check=list(HealthCheck),
    )
    @given(strategy_of(chunk.options))
    def one(program: Program) -> None:
        if ended:
            return
        try:
            answer = asking.case(FuzzCase(program=program))
        except AllocsimError as error:
            ended.append(error)
            return
        if chunk.number % 4 == 1:
            target(float(alias_depth(program)), label="length of the longest chain of aliases")
        if chunk.number % 4 == 3 and answer.plan is not None:
            target(waste(answer.plan), label="peak over live bytes")

    with repeatable():
        one()
    if ended:
        raise ended[0]


def strategy_of(options: Mapping[str, Any]) -> Any:
    """Return the strategy a chunk draws programs with: the function `strategy` names as
    `package.module:function`, or one of ours.
    """
    from allocsim.fuzzing.strategies import programs, runnable_programs  # noqa: PLC0415 - Hypothesis

    if "strategy" not in options:
        return runnable_programs() if options.get("runnable") else programs(real=True)
    module, _, function = str(options["strategy"]).partition(":")
    return getattr(importlib.import_module(module), function)()


def in_bulk(chunk: SourceChunk, asking: Asking) -> None:
    """Draw programs in batches."""
    from allocsim.fuzzing.bulk import batches  # noqa: PLC0415 - numba

    for batch in batches(chunk.seed, chunk.number, chunk.count, runnable=bool(chunk.options.get("runnable"))):
        asking.batch(batch)


def exhaustively(chunk: SourceChunk, asking: Asking) -> None:
    """Make every program of a scope."""
    from allocsim.fuzzing.exhaustive import batches  # noqa: PLC0415 - only for this source

    for batch in batches(int(chunk.options["ops"]), chunk.begin, chunk.count):
        asking.batch(batch)


def alias_depth(program: Program) -> int:
    """Return the length of the longest chain of views and mutations of one buffer, and of declared
    pairs from buffer to buffer.
    """
    depth = [0] * len(program.values)
    of_value = program.values.buffer.tolist()
    for op in program.ops:
        for place, result in enumerate(op.results):
            joined = {o for o, r in op.in_place or () if r == place}
            before = [
                depth[v]
                for o, v in enumerate(op.operands)
                if op.kind == VIEW or o in joined or of_value[v] == of_value[result]
            ]
            depth[result] = 1 + max(before) if before else 0
    return max(depth, default=0)


def waste(plan: Plan) -> float:
    """Return the peak of a plan over the most bytes that live at one step.

    1 where nothing is wasted or nothing lives.
    """
    program = plan.program
    first, last = first_and_last(program)
    rows = np.flatnonzero((last >= 0) & plan.placed)
    live = np.zeros(len(program.ops) + 1, dtype=np.int64)
    np.add.at(live, first[rows], program.buffers.nbytes[rows])
    np.add.at(live, last[rows] + 1, -program.buffers.nbytes[rows])
    most = int(np.cumsum(live).max(initial=0))
    return plan.peak_bytes / most if most else 1.0


SOURCES: Final[dict[str, Source]] = {
    "hypothesis": Source(
        what="drawn by Hypothesis, half of them steered to waste and chains",
        explore=by_hypothesis,
        size=250,
        first=(10, 40, 100, 100),
    ),
    "bulk": Source(what="drawn in batches from a seed", explore=in_bulk, size=4096, first=(512,) * 4),
    "exhaustive": Source(what="every program of a small scope", explore=exhaustively, size=1 << 14, proves=True),
}
"""Every source by name."""
