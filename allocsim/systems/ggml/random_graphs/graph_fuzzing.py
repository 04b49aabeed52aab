"""Fuzz ggml's real planner and scheduler: detector S judges plans, detector D compares numbers.

Each graph runs in a process that may crash.

Contract: `fuzz(child, seeds)` yields a `FuzzedFault` for every seed whose graph has a fault: the
graph crashes, S finds a violation in its plan, or an output differs between a plan (`gallocr`,
`sched`, every node pinned) and a run without memory reuse. Some graphs run on two backends as well.
The same seed gives the same finding, except for races. `BATCH` graphs run in one fork
(`allocsim.systems.ggml.random_graphs.graph_trials`). The fork proves most plans sound, and S judges
the other plans together. If a graph crashes its fork, the remaining graphs run in another fork.

`cause` names a fault by the verdict from S, K and D on the planned graph
(`allocsim.systems.ggml.capture_evidence`): the class, the party, and for a kernel its op and source
slot. Findings of one cause are joined. Naming a cause takes as long as running 30 graphs, so each
cause is named once. Findings that a named cause explains (`random_graphs.explained_graphs`) are not
examined again. `minimise` shrinks a finding's recipe while kind and cause stay the same. `replayed`
runs the recipe again before the finding is reported. `keep` writes recipe, rows and words to a
file, from which `load` reads the recipe.

What this module does not see: graphs that the generator does not make.
"""

import json
import pickle
import re
import tempfile
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import count, islice
from pathlib import Path
from typing import Any, Final

from msgspec import Struct

from allocsim.errors import AllocsimError, EngineError, OutputError
from allocsim.files import write_atomic
from allocsim.files.gate import CEILINGS, content, record_of
from allocsim.judge.fast import check
from allocsim.model import Document
from allocsim.p_sanitizer.incidents import WRITES
from allocsim.programs.slots import slots_of
from allocsim.systems.ggml.access.child import Child, ChildDiedError
from allocsim.systems.ggml.capture.graph_document import document
from allocsim.systems.ggml.capture.graph_rows import Rows
from allocsim.systems.ggml.capture.stale_copies import stale_copies
from allocsim.systems.ggml.capture_evidence import captured_plans, examine
from allocsim.systems.ggml.guarded_evidence import INCIDENTS, guarded
from allocsim.systems.ggml.k_audit.plan_pairs import PairFinding, measure_pairs, shared_pairs
from allocsim.systems.ggml.random_graphs.explained_graphs import NOT_TOLD, can_explain, kernel_cause, pair_of
from allocsim.systems.ggml.random_graphs.graph_generator import generate, reachable
from allocsim.systems.ggml.random_graphs.graph_recipes import TENSOR, GraphRecipe, plan_rows
from allocsim.systems.ggml.random_graphs.graph_trials import (
    PINNED,
    Draw,
    TriedGraph,
    first_differing,
    guard_planned,
    try_all,
    try_one,
)
from allocsim.systems.ggml.random_graphs.joined_graphs import joined
from allocsim.systems.ggml.random_graphs.recipe_shrinking import Shapes, shrink
from allocsim.systems.ggml.random_graphs.split_graphs import SplitRun
from allocsim.verdict import judge as judged
from allocsim.verdict.naming import MEASURED_NAMES
from allocsim.verdict.records import Cause

CRASH: Final = "crash"
UNSOUND: Final = "unsound"
DIFFERS: Final = "differs"
SPLIT: Final = "split"


@dataclass(frozen=True, slots=True, kw_only=True)
class FuzzedFault:
    """The fault of one seed's graph."""

    seed: int
    kind: str
    """`crash`, `unsound`, `differs`, or `split` if the graph is wrong only on two backends."""
    words: str
    """The fault in words: ggml's message about a crash, the kinds of violation, the outputs that
    differ under each plan, or that a known cause explains the fault."""
    recipe: GraphRecipe
    cause: str = ""
    """The name of the cause; findings of one cause have equal names."""
    rows: Rows | None = None
    """The rows of the planned graph, or None, for example if a known cause explains the fault."""


BATCH: Final = 256
"""The number of graphs that run in one fork."""

FIRST_BATCH: Final = 16
"""Size of the first batch if no cause is known; it is small because the rest of a batch runs again
for each new cause."""

SPLIT_QUESTIONS: Final = 150
"""The largest number of smaller recipes that are tried for a finding on two backends."""

REPLAYS: Final = 2000
"""The most runs that try to repeat a difference before it is reported; a race shows by chance."""

OLD_COPY: Final = "a copy between backends is older than the content of its original"
"""Cause of a difference on two backends: an op reads an outdated copy."""


UNNAMED: Final = "no detector names a cause"

SAYS: Final = "ggml's message: {}"
"""Cause of a crash that no kernel of the graph explains."""


def fuzz(child: Child, seeds: Iterable[int], *, known: set[str] | None = None, **options: Any) -> Iterator[FuzzedFault]:
    """Yield a finding for every seed whose graph has a fault; `options` are passed to `generate`.

    `known` is the set of causes named before; newly named causes are added to it.
    """
    known = set() if known is None else known
    for batch in _batches(seeds, BATCH if known else FIRST_BATCH):
        found = judge_all(child, [partial(generate, seed, **options) for seed in batch], known)
        yield from (replace(one, seed=seed) for seed, one in zip(batch, found, strict=True) if one is not None)


def judge_all(child: Child, draws: Sequence[Draw], known: set[str] | None = None) -> Iterator[FuzzedFault | None]:
    """Judge recipes; the draws make them in the process that runs them. `known` is as for `fuzz`.

    A cause is named only for its first finding. After a new cause is named, the unexplained later
    graphs run once more to see whether that cause explains their faults.
    """
    known = set() if known is None else known
    tried = _tried(child, draws, known)
    clean = _all_clean([rows for one in tried.values() if isinstance(one, TriedGraph) for rows in one.doubtful])
    for number, draw in enumerate(draws):
        fault = _fault(child, draw, tried[number], known, clean=clean)
        yield fault
        if fault is None or fault.cause in known:
            continue
        known.add(fault.cause)
        if can_explain(fault.cause):
            rest = [later for later in range(number + 1, len(draws)) if _unexplained(tried[later])]
            again = _tried(child, [draws[later] for later in rest], known)
            tried |= {later: again[n] for n, later in enumerate(rest) if _is_explained(again[n])}


def _fault(
    child: Child, draw: Draw, tried: TriedGraph | str, known: Collection[str], *, clean: bool
) -> FuzzedFault | None:
    """Return the fault of a tried recipe, or None; `clean` is true if S found no violation in any
    plan of the batch.
    """
    if isinstance(tried, str):
        recipe = draw()
        if (again := _crashed_again(child, recipe, tried, known)) is not None:
            return FuzzedFault(seed=recipe.seed, kind=CRASH, words=tried, recipe=recipe, cause=again)
        told = _crash(child, recipe, tried)
        alone = None if told.cause in known else judge(child, told.recipe)
        return alone if alone is not None and alone.cause == told.cause else told
    if tried.explained:
        return _explained(draw(), tried)
    if tried.right and (clean or not tried.doubtful):
        return None
    return _told(child, draw(), tried, known)


def _all_clean(graphs: Sequence[Rows]) -> bool:
    """Return whether S finds nothing in any of these plans; judging them as one joined graph takes
    a tenth of the time.
    """
    return not graphs or check(document(joined(graphs))).clean


Tried = dict[int, TriedGraph | str]
"""Number of a recipe in its batch -> its results, or ggml's message if it ended the process."""


def _tried(child: Child, draws: Sequence[Draw], known: Collection[str]) -> Tried:
    """Run recipes in one fork; if a recipe ends the fork, run the remaining recipes in another.

    The fork writes each result to a file, so a crash loses no earlier result.
    """
    found: Tried = {}
    with tempfile.TemporaryDirectory(prefix="allocsim.") as folder:
        path = Path(folder) / "tried"
        while len(found) < len(draws):
            path.unlink(missing_ok=True)
            said = None
            try:
                child.call(try_all, draws[len(found) :], str(path), tuple(known))
            except ChildDiedError as died:
                said = died.said
            found |= dict(enumerate(_read(path), len(found)))
            if said is not None and len(found) < len(draws):
                found[len(found)] = said
    return found


def _is_explained(one: TriedGraph | str) -> bool:
    return isinstance(one, TriedGraph) and bool(one.explained)


def _unexplained(one: TriedGraph | str) -> bool:
    return isinstance(one, TriedGraph) and not one.explained and bool(one.doubtful or not one.right)


def _read(path: Path) -> list[TriedGraph]:
    """Return the results that the fork wrote to a file; an incomplete last result is left out."""
    found: list[TriedGraph] = []
    if not path.exists():
        return found
    with path.open("rb") as file:
        while True:
            try:
                found.append(pickle.load(file))  # noqa: S301 - our own fork wrote it
            except (EOFError, pickle.UnpicklingError):
                return found


def _batches(seeds: Iterable[int], size: int) -> Iterator[list[int]]:
    """Cut seeds into batches, each twice as long as the batch before, up to `BATCH`."""
    rest = iter(seeds)
    while batch := list(islice(rest, size)):
        yield batch
        size = min(2 * size, BATCH)


def judge(child: Child, recipe: GraphRecipe) -> FuzzedFault | None:
    """Plan and run one recipe in every way (`graph_trials.WAYS`).

    Return the first fault found, or None if there is no fault.
    """
    rows: Rows | None = None
    try:
        rows = child.call(plan_rows, recipe)
        tried = child.call(try_one, recipe)
    except ChildDiedError as died:
        return replace(_crash(child, recipe, died.said), rows=rows)
    return _told(child, recipe, tried)


def _crash(child: Child, recipe: GraphRecipe, said: str) -> FuzzedFault:
    """Return the finding of a graph that ended its process.

    If a kernel writes outside its results, that kernel is the cause, since such a write can end the
    process at any place; otherwise ggml's message names the cause. Each kernel runs with
    every number of threads from 1 to the graph's number.
    """
    try:
        (captured,) = captured_plans(document(child.call(plan_rows, recipe)))
        incidents, _ = guarded(child, captured, recipe.seed, threads=range(2, recipe.threads + 1))
    except AllocsimError:
        incidents = []
    names = [
        _misdeed_name(MEASURED_NAMES[one.kind].class_, captured.plan.program.ops[one.op].kind, MEASURED_NAMES[one.kind].evidence)
        for one in incidents
        if one.op is not None and one.kind in WRITES
    ]  # fmt: skip
    return FuzzedFault(seed=recipe.seed, kind=CRASH, words=said, recipe=recipe, cause=names[0] if names else SAYS.format(said))  # fmt: skip


def _crashed_again(child: Child, recipe: GraphRecipe, said: str, known: Collection[str]) -> str | None:
    """Return the known cause of a crash: a known kernel of the graph that writes outside its
    results again, else the same failed assertion; None if neither explains the crash.
    """
    named = {match[1] for cause in known if (match := re.fullmatch(r"C\d+ kernel: (\w+): .*", cause))}
    try:
        did = child.call(guard_planned, recipe, named, threads=range(2, recipe.threads + 1)) if named else []
    except EngineError:
        return None
    kinds = ((op, INCIDENTS.get(misdeed.kind)) for op, found in did for misdeed in found.misdeeds)
    names = [(op, MEASURED_NAMES[kind]) for op, kind in kinds if kind in WRITES]
    written = (_misdeed_name(row.class_, op, row.evidence) for op, row in names)
    asserted = [SAYS.format(said)] if "GGML_ASSERT" in said else []
    return next((name for name in (*written, *asserted) if name in known), None)


def _misdeed_name(class_: str, kind: str | None, evidence: str) -> str:
    return f"{class_} kernel: {(kind or '').upper()}: {evidence}"


def _explained(recipe: GraphRecipe, tried: TriedGraph) -> FuzzedFault:
    """Return the finding of a graph whose fault known causes explain; the finding has no rows."""
    cause, *more = tried.explained
    kind = UNSOUND if cause == NOT_TOLD else DIFFERS if tried.different else SPLIT
    words = f"the graph has no fault without this cause{' and other known causes' if more else ''}"
    return FuzzedFault(seed=recipe.seed, kind=kind, words=words, recipe=recipe, cause=cause)


def _told(child: Child, recipe: GraphRecipe, tried: TriedGraph, known: Collection[str] = ()) -> FuzzedFault | None:
    rows = tried.rows
    planned = None if rows is None else document(rows)
    report = None if planned is None else check(planned)
    if planned is None or report is None or (report.clean and not tried.different):
        return None if tried.split is None else _told_of_split(child, recipe, tried.split, known)
    if report.clean and {*tried.different} == {PINNED} and recipe.outputs != (every := _nodes(recipe)):
        return judge(child, replace(recipe, outputs=every))
    words = "; ".join(f"{way}: outputs {', '.join(map(str, outputs))}" for way, outputs in tried.different.items())
    cause = _cause(child, planned, known, numbers=bool(tried.different))
    if not report.clean and pair_of(cause) is None:
        words = ", ".join(dict.fromkeys(violation.kind for violation in report.violations))
        return FuzzedFault(seed=recipe.seed, kind=UNSOUND, words=words, recipe=recipe, rows=rows, cause=cause)
    return FuzzedFault(seed=recipe.seed, kind=DIFFERS, words=words, recipe=recipe, rows=rows, cause=cause)


def _nodes(recipe: GraphRecipe) -> tuple[int, ...]:
    """Return the steps of the graph that are no leafs; these are all nodes that can be pinned."""
    return tuple(index for index in reachable(recipe) if recipe.steps[index].make != TENSOR)


def _told_of_split(child: Child, recipe: GraphRecipe, split: SplitRun, known: Collection[str]) -> FuzzedFault | None:
    """Return the fault of a run on two backends; None if the run has no fault."""
    if split.rows is None:
        return None
    planned = document(split.rows)
    report = check(planned)
    if report.clean and not split.differing:
        return None
    old = report.clean and stale_copies(split.rows)
    found = dict.fromkeys(violation.kind for violation in report.violations) or map(str, split.differing)
    words = f"on two backends, {split.splits} splits: {'wrong outputs ' if report.clean else ''}{', '.join(found)}"
    cause = OLD_COPY if old else f"on two backends: {_cause(child, planned, known, numbers=bool(split.differing))}"
    return FuzzedFault(seed=recipe.seed, kind=SPLIT, words=words, recipe=recipe, rows=split.rows, cause=cause)


def _cause(child: Child, planned: Document, known: Collection[str], *, numbers: bool = True) -> str:
    """Name a cause of the verdict on a planned graph: the first unknown cause, else the first.

    Detector P runs every op of the graph, so P is used only if K and D find no new cause.
    `numbers` is False if all outputs were right; then no kernel can be the cause.
    """
    names: list[str] = []
    for guards in (False, True):
        evidence, _, _ = examine(planned, child=child, guards=guards)
        causes = [one for one in judged(evidence, cures=False).causes if numbers or one.party != "kernel"]
        names = [_name(cause, evidence.document) for cause in causes]
        told = zip(names, causes, strict=True)
        if fresh := [name for name, one in told if name not in known and (guards or one.party != "unknown")]:
            return fresh[0]
    return names[0] if names else UNNAMED


def _name(cause: Cause, planned: Document) -> str:
    change = cause.change
    if change.kind == "misdeed":
        return _misdeed_name(cause.class_, change.op_kind, cause.evidence.partition(":")[0])
    if cause.party != "kernel" or cause.first.step is None or change.operand is None:
        return f"{cause.class_} {cause.party}: {cause.evidence}"
    slot = slots_of(planned.runs[0].program.ops, cause.first.step)[change.operand]
    assert slot is not None
    return kernel_cause((change.op_kind or "").upper(), slot)


def minimise(child: Child, finding: FuzzedFault) -> FuzzedFault:
    """Shrink the recipe of a finding while its kind and cause stay the same; return the finding.

    If a kernel is the cause, each candidate's plan must still use the in-place pair, and detector K
    must still find the pair unsafe. The outputs must differ too, unless the pair only races: a race
    need not show in a candidate's one run. For a graph on two backends the search ends after
    `SPLIT_QUESTIONS` candidates, because removing a step moves other steps to other backends.
    """
    guilty = pair_of(finding.cause)
    questions = count()

    def fails(recipe: GraphRecipe) -> bool:
        if finding.kind == SPLIT and next(questions) >= SPLIT_QUESTIONS:
            return False
        if guilty is not None:
            seen = {*recipe.expand} <= {*recipe.outputs} and _shared(child, recipe, *guilty)
            return bool(seen) and (racing or differs(recipe))
        try:
            found = judge(child, recipe)
        except EngineError:
            return False
        return found is not None and (found.kind, found.cause) == (finding.kind, finding.cause)

    def differs(recipe: GraphRecipe) -> bool:
        try:
            return bool(child.call(first_differing, recipe, 1))
        except EngineError:
            return False

    def shapes(recipe: GraphRecipe) -> Shapes:
        try:
            rows = child.call(plan_rows, recipe)
        except EngineError:
            return {}
        named = {row["name"]: (row["type"], tuple(row["ne"])) for row in (*rows["leafs"], *rows["nodes"])}
        return {place: named[f"t{place}"] for place in range(len(recipe.steps)) if f"t{place}" in named}

    racing = guilty is not None and all(one.threads > 1 for one in _shared(child, finding.recipe, *guilty))
    small = shrink(finding.recipe, fails, shapes, lengths=not racing)
    if guilty is None:
        found = judge(child, small)
        return replace(found, seed=finding.seed) if found is not None else finding
    return replace(finding, recipe=small, rows=child.call(plan_rows, small))


def _shared(child: Child, recipe: GraphRecipe, op: str, slot: int) -> list[PairFinding]:
    """Return K's unsafe findings on an in-place pair, if the recipe's plan uses the pair."""
    try:
        (captured,) = captured_plans(document(child.call(plan_rows, recipe)))
        pairs = [p.rows for p in shared_pairs(captured.rows, captured.offsets) if (p.op, p.slot) == (op, slot)]
        found = child.call(measure_pairs, pairs, [slot] * len(pairs), seed=recipe.seed)
    except EngineError:
        return []
    return [one for one in found if one.unsafe]


def replayed(child: Child, finding: FuzzedFault) -> str:
    """Run a finding's recipe again; return a clause that says whether the fault shows again."""
    if finding.kind != DIFFERS:
        again = judge(child, finding.recipe)
        same = again is not None and (again.kind, again.cause) == (finding.kind, finding.cause)
        return "shows again" if same else "does not show again"
    run = child.call(first_differing, finding.recipe, REPLAYS)
    return f"outputs differ again in run {run}" if run else f"outputs differ in none of {REPLAYS} more runs"


def keep(finding: FuzzedFault, folder: Path) -> Path:
    """Write a finding atomically to `folder/seed-<n>.json`; return the path.

    The file has `leafs` and `nodes`, so it is also a ggml dump that `allocsim check` can read.
    Raises OutputError if the file cannot be written.
    """
    path = folder / f"seed-{finding.seed}.json"
    rows = finding.rows or {"meta": {}, "leafs": [], "nodes": []}
    about = {
        "seed": finding.seed,
        "kind": finding.kind,
        "cause": finding.cause,
        "words": finding.words,
        "recipe": finding.recipe.encode(),
    }
    text = json.dumps({**rows, "meta": {**rows["meta"], "finding": about}}, indent=1)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OutputError(f"{path}: {error.strerror or error}") from None
    write_atomic(path, text.encode())
    return path


class _Finding(Struct, frozen=True):
    recipe: dict[str, Any]


class _About(Struct, frozen=True):
    finding: _Finding


class _Kept(Struct, frozen=True):
    """The part of a kept finding that `load` reads."""

    meta: _About


def load(path: Path) -> GraphRecipe:
    """Return the recipe in a file that `keep` wrote.

    Raises DocumentError if the file is no kept finding, and EngineError for an invalid recipe.
    """
    kept: _Kept = record_of(content(path, CEILINGS["record"]), _Kept, str(path), what="kept finding")
    return GraphRecipe.decode(kept.meta.finding.recipe)
