"""Fuzz the real planner and scheduler of ggml: S judges the plans, D compares the numbers.

Each graph runs in a process that may crash.

Contract: `fuzz(child, seeds)` yields a `FuzzedFault` for every seed whose graph crashes, whose plan
S does not find clean, or whose outputs differ between a plan (`gallocr`, `sched`, every node
pinned) and memory of its own for each tensor. One graph in `SPLIT_EVERY`, by its seed, is run on
two backends as well (`engine.ggml.random_graphs.split_graphs`). The same seed gives the same
finding, but for races. Graphs run `BATCH` in a fork; where one ends it, the rest run in another.

`cause` names what is wrong by the verdict on S, K and D of the planned graph
(`engine.ggml.capture_evidence`): the class, the party, and for a kernel its op and source slot;
findings of one cause are one. `minimise` shrinks a finding's recipe while it keeps its kind and
cause; `replayed` runs it again before it is told; `keep` writes recipe, rows and words as files to
start from again.

What this module does not see: graphs the generator does not make (quantised types).
"""

import json
import pickle
import re
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import count, islice
from pathlib import Path
from typing import Any, Final

from msgspec import Struct

from allocsim.checks import check
from allocsim.errors import EngineError, OutputError
from allocsim.files import write_atomic
from allocsim.files.gate import CEILINGS, content, record_of
from allocsim.model import Document
from allocsim.programs.slots import slots_of
from allocsim.verdict import judge as judged
from engine.ggml.access.child import Child, ChildDiedError
from engine.ggml.access.library import Library
from engine.ggml.access.workspace import LibraryWorkspace
from engine.ggml.capture.graph_document import document
from engine.ggml.capture.graph_rows import Rows, walk
from engine.ggml.capture.stale_copies import stale_copies
from engine.ggml.capture_evidence import captured_plans, examine
from engine.ggml.child_tasks import plan_rows
from engine.ggml.k_audit.plan_pairs import PairFinding, measure_pairs, shared_pairs
from engine.ggml.random_graphs.graph_generator import generate
from engine.ggml.random_graphs.graph_recipes import Built, GraphRecipe, build, fill, place
from engine.ggml.random_graphs.joined_graphs import joined
from engine.ggml.random_graphs.recipe_shrinking import Shapes, shrink
from engine.ggml.random_graphs.split_graphs import SplitRun, split_run

CRASH: Final = "crash"
UNSOUND: Final = "unsound"
DIFFERS: Final = "differs"
SPLIT: Final = "split"

WAYS: Final[dict[str, tuple[str, str]]] = {
    "gallocr": ("default", "gallocr"),
    "sched": ("default", "sched"),
    "pinned": ("pinned", "gallocr"),
}
"""How a graph is planned, beside memory of its own for each tensor: mode and planner."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FuzzedFault:
    """One seed that is not as it should be."""

    seed: int
    kind: str
    """`crash`, `unsound`, `differs`, or `split`: wrong on two backends alone."""
    words: str
    """What ggml said, which violations, or which outputs differ under which plans."""
    recipe: GraphRecipe
    cause: str = ""
    """What is wrong, in words that are the same for each finding of one cause."""
    rows: Rows | None = None
    """The planned graph, where it could be planned."""


BATCH: Final = 32
"""Graphs in a fork."""

SPLIT_QUESTIONS: Final = 150
"""Smaller recipes that are tried for a finding on two backends."""

SPLIT_EVERY: Final = 4
"""One graph in so many is run on two backends as well."""

REPLAYS: Final = 2000
"""Runs in which a difference is looked for again before it is told: a race shows by chance."""

OLD_COPY: Final = "a copy between backends is older than what lies in its original"
"""Cause of a difference on two backends that reads such a copy."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TriedGraph:
    """What one graph did."""

    rows: Rows
    """As gallocr planned it."""
    different: dict[str, list[int]]
    """For each way of planning the outputs that differ."""
    split: SplitRun | None
    """What it did on two backends, where it was run there."""

    @property
    def right(self) -> bool:
        """Whether all numbers were."""
        return not self.different and not (self.split and self.split.differing)


UNNAMED: Final = "no detector names a cause"


def fuzz(child: Child, seeds: Iterable[int], **options: Any) -> Iterator[FuzzedFault]:
    """Yield a finding for every seed that has one; `options` are those of `generate`."""
    for batch in _batches(seeds, BATCH):
        found = judge_all(child, [generate(seed, **options) for seed in batch])
        yield from (replace(one, seed=seed) for seed, one in zip(batch, found, strict=True) if one is not None)


def judge_all(child: Child, recipes: Sequence[GraphRecipe]) -> Iterator[FuzzedFault | None]:
    """Judge recipes in one fork; where one of them ends it, the rest in another.

    What the fork had done by then is kept in a file.
    """
    rest = list(recipes)
    with tempfile.TemporaryDirectory(prefix="allocsim.") as folder:
        path = Path(folder) / "tried"
        while rest:
            path.unlink(missing_ok=True)
            died = False
            try:
                child.call(try_all, rest, str(path))
            except ChildDiedError:
                died = True
            done = _read(path)
            plans = [one.rows for one in done] + [one.split.rows for one in done if one.split]
            clean = _all_clean(plans)
            yield from (
                None if clean and tried.right else _told(child, recipe, tried)
                for recipe, tried in zip(rest, done, strict=False)
            )
            rest = rest[len(done) :]
            if died and rest:
                yield judge(child, rest.pop(0))


def _all_clean(graphs: Sequence[Rows]) -> bool:
    """Return whether S finds nothing in any of these plans; they are judged as one, at a tenth of
    the time.
    """
    return not graphs or check(document(joined(graphs))).clean


def _read(path: Path) -> list[TriedGraph]:
    """Return what a fork of ours has written, as far as it came."""
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
    rest = iter(seeds)
    while batch := list(islice(rest, size)):
        yield batch


def judge(child: Child, recipe: GraphRecipe) -> FuzzedFault | None:
    """Plan and run one recipe in every way.

    Return the first thing that is wrong, None if nothing is.
    """
    rows: Rows | None = None
    try:
        rows = child.call(plan_rows, recipe)
        tried = child.call(try_one, recipe)
    except ChildDiedError as died:
        return FuzzedFault(
            seed=recipe.seed, kind=CRASH, words=died.said, recipe=recipe, rows=rows, cause=f"it says: {died.said}"
        )
    return _told(child, recipe, tried)


def _told(child: Child, recipe: GraphRecipe, tried: TriedGraph) -> FuzzedFault | None:
    rows = tried.rows
    planned = document(rows)
    report = check(planned)
    if report.clean and not tried.different:
        return None if tried.split is None else _told_of_split(child, recipe, tried.split)
    words = "; ".join(f"{way}: outputs {', '.join(map(str, outputs))}" for way, outputs in tried.different.items())
    if not report.clean:
        words = ", ".join(dict.fromkeys(violation.kind for violation in report.violations))
    kind = DIFFERS if report.clean else UNSOUND
    return FuzzedFault(seed=recipe.seed, kind=kind, words=words, recipe=recipe, rows=rows, cause=_cause(child, planned))


def _told_of_split(child: Child, recipe: GraphRecipe, split: SplitRun) -> FuzzedFault | None:
    """Return what is wrong on two backends alone."""
    planned = document(split.rows)
    report = check(planned)
    if report.clean and not split.differing:
        return None
    old = report.clean and stale_copies(split.rows)
    found = dict.fromkeys(violation.kind for violation in report.violations) or map(str, split.differing)
    words = f"on two backends, {split.splits} splits: {'outputs ' if report.clean else ''}{', '.join(found)}"
    cause = OLD_COPY if old else f"on two backends: {_cause(child, planned)}"
    return FuzzedFault(seed=recipe.seed, kind=SPLIT, words=words, recipe=recipe, rows=split.rows, cause=cause)


def _cause(child: Child, planned: Document) -> str:
    """Name the first cause of the verdict on a planned graph."""
    evidence, _, _ = examine(planned, child=child)
    causes = judged(evidence, cures=False).causes
    if not causes:
        return UNNAMED
    cause, charge = causes[0], causes[0].charge
    if cause.party != "kernel" or cause.first.step is None or charge.operand is None:
        return f"{cause.class_} {cause.party}: {cause.evidence}"
    slot = slots_of(evidence.document.runs[0].program.ops, cause.first.step)[charge.operand]
    return f"{cause.class_} {cause.party}: {(charge.op_kind or '').upper()} over source {slot}"


def try_all(library: Library, recipes: Sequence[GraphRecipe], path: str) -> None:
    """Task: try each recipe, and append what was found to a file."""
    with Path(path).open("wb") as file:
        for recipe in recipes:
            file.write(pickle.dumps(try_one(library, recipe)))
            file.flush()


def try_one(library: Library, recipe: GraphRecipe) -> TriedGraph:
    """Task: the rows of a recipe's plan, and for each way of planning the outputs that differ from
    a run without reuse.
    """
    split = None
    with LibraryWorkspace(library, threads=recipe.threads) as ws:
        built = build(ws, recipe)
        unplanned = built.context.saved()
        apart, _ = _ran(ws, built, "apart", "gallocr")
        rows: Rows = {}
        different = {}
        for way, (mode, planner) in WAYS.items():
            built.context.restore(unplanned)
            found, walked = _ran(ws, built, mode, planner)
            rows = rows or walked
            outputs = [index for index in apart if found[index] != apart[index]]
            if outputs:
                different[way] = outputs
        if recipe.seed % SPLIT_EVERY == SPLIT_EVERY - 1:
            built.context.restore(unplanned)
            split = split_run(ws, built, recipe.seed, apart)
    return TriedGraph(rows=rows, different=different, split=split)


def _ran(ws: LibraryWorkspace, built: Built, mode: str, planner: str) -> tuple[dict[int, bytes], Rows]:
    """Return the bytes of the outputs of one run, and the rows of its plan."""
    scheduler = place(ws, built, mode=mode, planner=planner)
    about = {"name": built.recipe.name, "mode": mode}
    plain = (mode, planner) == WAYS["gallocr"]
    rows = walk(ws.library, built.graph, known=True, meta=about) if plain else {}
    fill(ws, built)
    if scheduler:
        ws.compute_scheduled(scheduler, built.graph)
    else:
        ws.compute(built.graph)
    return {index: ws.get(built.tensors[index]).tobytes() for index in built.recipe.outputs}, rows


def minimise(child: Child, finding: FuzzedFault) -> FuzzedFault:
    """Return the finding with the smallest recipe that still has a finding of its kind and cause.

    Where a kernel is the cause, that is a recipe whose plan still shares the pair, and the pair
    still comes out wrong alone: a race need not show in the one run of each candidate. Of a graph
    on two backends as small a one as `SPLIT_QUESTIONS` tries give: without a step, others go to
    other backends.
    """
    guilty = _guilty(finding.cause)
    questions = count()

    def fails(recipe: GraphRecipe) -> bool:
        if finding.kind == SPLIT and next(questions) >= SPLIT_QUESTIONS:
            return False
        if guilty is not None:
            seen = {*recipe.expand} <= {*recipe.outputs} and _shared(child, recipe, *guilty)
            return bool(seen) and (racing or differs(recipe))
        found = judge(child, recipe)
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


def _guilty(cause: str) -> tuple[str, int] | None:
    """Return op and source slot of a kernel's cause."""
    match = re.fullmatch(r"C04 kernel: (\w+) over source (\d+)", cause)
    return None if match is None else (match[1], int(match[2]))


def _shared(child: Child, recipe: GraphRecipe, op: str, slot: int) -> list[PairFinding]:
    """Return what K finds of that pair where the recipe's plan shares it and it comes out wrong."""
    try:
        (captured,) = captured_plans(document(child.call(plan_rows, recipe)))
        pairs = [p.rows for p in shared_pairs(captured.rows, captured.offsets) if (p.op, p.slot) == (op, slot)]
        found = child.call(measure_pairs, pairs, [slot] * len(pairs), seed=recipe.seed)
    except EngineError:
        return []
    return [one for one in found if one.unsafe]


def replayed(child: Child, finding: FuzzedFault) -> str:
    """Run a finding's recipe again, and return in words how often it shows."""
    if finding.kind != DIFFERS:
        again = judge(child, finding.recipe)
        same = again is not None and (again.kind, again.cause) == (finding.kind, finding.cause)
        return "shows again" if same else "does not show again"
    run = child.call(first_differing, finding.recipe, REPLAYS)
    return f"outputs differ again in run {run}" if run else f"outputs differ in none of {REPLAYS} more runs"


def first_differing(library: Library, recipe: GraphRecipe, runs: int) -> int:
    """Task: the first of so many planned runs that differs from a run without reuse, from 1 on; 0
    where none does.
    """
    with LibraryWorkspace(library, threads=recipe.threads) as ws:
        built = build(ws, recipe)
        unplanned = built.context.saved()
        apart, _ = _ran(ws, built, "apart", "gallocr")
        built.context.restore(unplanned)
        place(ws, built)
        for number in range(1, runs + 1):
            fill(ws, built)
            ws.compute(built.graph)
            if any(ws.get(built.tensors[index]).tobytes() != before for index, before in apart.items()):
                return number
    return 0


def keep(finding: FuzzedFault, folder: Path) -> Path:
    """Write a finding to `folder/seed-<n>.json`, whole or not at all.

    Its `leafs` and `nodes` make it a ggml dump that can be checked.
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
    """What is read of a kept finding."""

    meta: _About


def load(path: Path) -> GraphRecipe:
    """Return the recipe of a kept finding; raise EngineError where the file holds none."""
    kept: _Kept = record_of(content(path, CEILINGS["record"]), _Kept, str(path), what="kept finding")
    return GraphRecipe.decode(kept.meta.finding.recipe)
