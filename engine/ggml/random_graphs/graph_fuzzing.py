"""Fuzz the real planner and scheduler of ggml: S judges the plans, D compares the numbers.

Each graph runs in a process that may crash.

Contract: `fuzz(child, seeds)` yields a `FuzzedFault` for every seed whose graph crashes, whose plan
S does not find clean, or whose outputs differ between a plan (`gallocr`, `sched`, every node
pinned) and memory of its own for each tensor. The same seed gives the same finding. `minimise`
shrinks a finding's recipe while it keeps its kind; `keep` writes recipe, rows and words as files to
start from again.

A finding whose plan is clean and whose numbers differ convicts a kernel, not the plan. What this
module does not see: why (`allocsim.verdict`), and graphs the generator does not make (several
backends, quantised types).
"""

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from allocsim.checks import check
from allocsim.errors import OutputError
from allocsim.files import write_atomic
from engine.ggml.access.child import Child, ChildDiedError
from engine.ggml.access.library import Library
from engine.ggml.access.workspace import LibraryWorkspace
from engine.ggml.capture.graph_document import document
from engine.ggml.capture.graph_rows import Rows
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
    rows: Rows | None = None
    """The planned graph, where it could be planned."""


def fuzz(child: Child, seeds: Iterable[int], **options: Any) -> Iterator[FuzzedFault]:
    """Yield a finding for every seed that has one; `options` are those of `generate`."""
    for seed in seeds:
        found = judge(child, generate(seed, **options))
        if found is not None:
            yield replace(found, seed=seed)


def judge(child: Child, recipe: GraphRecipe) -> FuzzedFault | None:
    """Plan and run one recipe in every way.

    Return the first thing that is wrong, None if nothing is.
    """
    rows: Rows | None = None
    try:
        rows = child.call(plan_rows, recipe)
        report = check(document(rows))
        if not report.clean:
            kinds = ", ".join(dict.fromkeys(violation.kind for violation in report.violations))
            return FuzzedFault(seed=recipe.seed, kind=UNSOUND, words=kinds, recipe=recipe, rows=rows)
        different = child.call(compare, recipe)
    except ChildDiedError as died:
        return FuzzedFault(seed=recipe.seed, kind=CRASH, words=died.said, recipe=recipe, rows=rows)
    if not different:
        return None
    words = "; ".join(f"{way}: outputs {', '.join(map(str, outputs))}" for way, outputs in different.items())
    return FuzzedFault(seed=recipe.seed, kind=DIFFERS, words=words, recipe=recipe, rows=rows)


def compare(library: Library, recipe: GraphRecipe) -> dict[str, list[int]]:
    """Task: for each way of planning, the outputs that differ from a run without reuse."""
    with LibraryWorkspace(library) as ws:
        apart = run(ws, recipe, mode="apart")
    different = {}
    for way, (mode, planner) in WAYS.items():
        with LibraryWorkspace(library) as ws:
            found = run(ws, recipe, mode=mode, planner=planner)
        outputs = [index for index in apart if found[index].tobytes() != apart[index].tobytes()]
        if outputs:
            different[way] = outputs
    return different


def minimise(child: Child, finding: FuzzedFault) -> FuzzedFault:
    """Return the finding with the smallest recipe that still has a finding of its kind."""

    def fails(recipe: GraphRecipe) -> bool:
        found = judge(child, recipe)
        return found is not None and found.kind == finding.kind and (finding.kind != CRASH or found.words == finding.words)

    small = shrink(finding.recipe, fails)
    found = judge(child, small)
    return replace(found, seed=finding.seed) if found is not None else finding


def keep(finding: FuzzedFault, folder: Path) -> Path:
    """Write a finding to `folder/seed-<n>.json`, whole or not at all.

    Its `leafs` and `nodes` make it a ggml dump that can be checked.
    """
    path = folder / f"seed-{finding.seed}.json"
    rows = finding.rows or {"meta": {}, "leafs": [], "nodes": []}
    about = {"seed": finding.seed, "kind": finding.kind, "words": finding.words, "recipe": finding.recipe.encode()}
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
