"""Fuzz the real planner and scheduler of ggml: S judges the plans, D compares the numbers.

Each graph runs in a process that may crash.

Contract: `fuzz(child, seeds)` yields a `FuzzedFault` for every seed whose graph crashes, whose plan
S does not find clean, or whose outputs differ between a plan (`gallocr`, `sched`, every node
pinned) and memory of its own for each tensor. The same seed gives the same finding, but for races.
Graphs run `BATCH` in a fork; where one ends it, they are halved until it stands alone.

`cause` names what is wrong by the verdict on S, K and D of the planned graph
(`engine.ggml.capture_evidence`): the class, the party, and for a kernel its op and source slot;
findings of one cause are one. `minimise` shrinks a finding's recipe while it keeps its kind and
cause; `keep` writes recipe, rows and words as files to start from again.

What this module does not see: graphs the generator does not make (several backends, quantised
types).
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any, Final

from allocsim.checks import check
from allocsim.errors import OutputError
from allocsim.files import write_atomic
from allocsim.model import Document
from allocsim.programs.slots import slots_of
from allocsim.verdict import judge as judged
from engine.ggml.access.child import Child, ChildDiedError
from engine.ggml.access.library import Library
from engine.ggml.access.workspace import LibraryWorkspace
from engine.ggml.capture.graph_document import document
from engine.ggml.capture.graph_rows import Rows
from engine.ggml.capture_evidence import examine
from engine.ggml.child_tasks import plan_rows
from engine.ggml.random_graphs.graph_generator import generate
from engine.ggml.random_graphs.graph_recipes import GraphRecipe, run
from engine.ggml.random_graphs.recipe_shrinking import shrink

CRASH: Final = "crash"
UNSOUND: Final = "unsound"
DIFFERS: Final = "differs"

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
    """`crash`, `unsound` or `differs`."""
    words: str
    """What ggml said, which violations, or which outputs differ under which plans."""
    recipe: GraphRecipe
    cause: str = ""
    """What is wrong, in words that are the same for each finding of one cause."""
    rows: Rows | None = None
    """The planned graph, where it could be planned."""


BATCH: Final = 32
"""Graphs in a fork."""

UNNAMED: Final = "no detector names a cause"


def fuzz(child: Child, seeds: Iterable[int], **options: Any) -> Iterator[FuzzedFault]:
    """Yield a finding for every seed that has one; `options` are those of `generate`."""
    for batch in _batches(seeds, BATCH):
        found = _judge_all(child, [generate(seed, **options) for seed in batch])
        yield from (replace(one, seed=seed) for seed, one in zip(batch, found, strict=True) if one is not None)


def _judge_all(child: Child, recipes: list[GraphRecipe]) -> Iterator[FuzzedFault | None]:
    """Judge recipes in one fork; where one of them ends it, each half in a fork of its own."""
    if len(recipes) == 1:
        yield judge(child, recipes[0])
        return
    try:
        tried = child.call(try_all, recipes)
    except ChildDiedError:
        half = len(recipes) // 2
        yield from _judge_all(child, recipes[:half])
        yield from _judge_all(child, recipes[half:])
        return
    yield from (_told(child, recipe, *one) for recipe, one in zip(recipes, tried, strict=True))


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
        ((_, different),) = child.call(try_all, [recipe])
    except ChildDiedError as died:
        return FuzzedFault(
            seed=recipe.seed, kind=CRASH, words=died.said, recipe=recipe, rows=rows, cause=f"it says: {died.said}"
        )
    return _told(child, recipe, rows, different)


def _told(child: Child, recipe: GraphRecipe, rows: Rows, different: Mapping[str, list[int]]) -> FuzzedFault | None:
    planned = document(rows)
    report = check(planned)
    if report.clean and not different:
        return None
    words = "; ".join(f"{way}: outputs {', '.join(map(str, outputs))}" for way, outputs in different.items())
    if not report.clean:
        words = ", ".join(dict.fromkeys(violation.kind for violation in report.violations))
    kind = DIFFERS if report.clean else UNSOUND
    return FuzzedFault(seed=recipe.seed, kind=kind, words=words, recipe=recipe, rows=rows, cause=_cause(child, planned))


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


def try_all(library: Library, recipes: Sequence[GraphRecipe]) -> list[tuple[Rows, dict[str, list[int]]]]:
    """Task: the rows of each planned recipe, and what `compare` says of it."""
    return [(plan_rows(library, recipe), compare(library, recipe)) for recipe in recipes]


def compare(library: Library, recipe: GraphRecipe) -> dict[str, list[int]]:
    """Task: for each way of planning, the outputs that differ from a run without reuse."""
    with LibraryWorkspace(library, threads=recipe.threads) as ws:
        apart = run(ws, recipe, mode="apart")
    different = {}
    for way, (mode, planner) in WAYS.items():
        with LibraryWorkspace(library, threads=recipe.threads) as ws:
            found = run(ws, recipe, mode=mode, planner=planner)
        outputs = [index for index in apart if found[index].tobytes() != apart[index].tobytes()]
        if outputs:
            different[way] = outputs
    return different


def minimise(child: Child, finding: FuzzedFault) -> FuzzedFault:
    """Return the finding with the smallest recipe that still has a finding of its kind."""

    def fails(recipe: GraphRecipe) -> bool:
        found = judge(child, recipe)
        return found is not None and (found.kind, found.cause) == (finding.kind, finding.cause)

    small = shrink(finding.recipe, fails)
    found = judge(child, small)
    return replace(found, seed=finding.seed) if found is not None else finding


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


def load(path: Path) -> GraphRecipe:
    """Return the recipe of a kept finding; raise EngineError where the file holds none."""
    return GraphRecipe.decode(json.loads(path.read_text()).get("meta", {}).get("finding", {}).get("recipe", {}))
