"""Random graphs on two backends through ggml's scheduler: accusations of right ones, and how the imitation places them.

    python benchmarks/split_graphs.py [--out FILE] [--graphs 1000] [--ggml after] [--pipelined]

Of each graph: the plan is captured and judged (S), placed again by the imitation, run, and compared with memory of its own for each tensor. Whatever is wrong must vanish in a run without the
causes that `allocsim audit` names (`allocsim.systems.ggml.random_graphs.explained_graphs`): with the results of those kernels apart, and the owner of each OUTPUT view flagged too; or the graph must
read an old copy (`allocsim.systems.ggml.capture.stale_copies`).
"""

import time
from collections import Counter
from collections.abc import Sequence
from typing import Final

from harness import Found, run

import numpy as np

from allocsim.allocators import ALLOCATORS
from allocsim.judge.fast import check
from allocsim.systems.ggml.access.child import Child, ChildDiedError
from allocsim.systems.ggml.access.probe import open_library
from allocsim.systems.ggml.capture.graph_document import document
from allocsim.systems.ggml.capture.stale_copies import stale_copies
from allocsim.systems.ggml.random_graphs.explained_graphs import NOT_TOLD, kernel_cause
from allocsim.systems.ggml.random_graphs.graph_generator import generate
from allocsim.systems.ggml.random_graphs.split_graphs import run_split

BOTH: Final = tuple(kernel_cause(*pair) for pair in (("ADD_ID", 1), ("SOFT_MAX", 2), ("ROPE", 2), ("ROPE_BACK", 2)))

KNOWN: Final = {
    "before": (*BOTH, kernel_cause("RMS_NORM_BACK", 0), kernel_cause("SOFT_MAX_BACK", 1), NOT_TOLD),
    "after": BOTH,
}
"""What `allocsim audit` and `allocsim fuzz` name in each library."""


def measure(*, graphs: int = 1000, ggml: str = "after", pipelined: bool = False) -> Found:
    """Run the campaign; `pipelined`: by a scheduler that keeps several copies of a tensor."""
    counts: Counter[str] = Counter()
    began = time.process_time()
    with open_library(ggml) as child:
        for seed in range(graphs):
            counts.update(figures(child, seed, known=KNOWN[ggml], pipelined=pipelined))
    found = {"graphs": graphs, "ggml": ggml, **dict(sorted(counts.items()))}
    return found | {"cpu_s_here": round(time.process_time() - began, 1)}


def figures(child: Child, seed: int, *, known: Sequence[str], pipelined: bool = False) -> Counter[str]:
    """Return what one graph adds to the counts."""
    try:
        ran = child.call(run_split, generate(seed), seed, pipelined=pipelined, known=known)
    except ChildDiedError as died:
        return Counter({f"ended by: {died.said}": 1})
    captured = document(ran.rows)
    plan = captured.plans[0]
    placed = plan.arena >= 0
    alike = np.array_equal(ALLOCATORS["ggml"].place(plan.problem).offset[placed], plan.offset[placed])
    old, clean = bool(stale_copies(ran.rows)), check(captured).clean
    found = Counter(
        {
            "splits": ran.splits,
            "copies": sum(row["op"] == "SPLIT_COPY" for row in ran.rows["nodes"]),
            "plans accused": not clean,
            "placed alike by the imitation": alike,
            "that read an old copy": old,
            "that read an old copy, numbers differ": old and bool(ran.differing),
        }
    )
    if ran.differing or not clean:
        why = " and ".join(ran.explained) or ("it reads an old copy" if old else "NOTHING THAT IS KNOWN")
        found[
            f"{'right plan' if clean else 'accused'}, {'other numbers' if ran.differing else 'right numbers'}: {why}"
        ] += 1
    return found


if __name__ == "__main__":
    run(measure, known={"ggml": KNOWN})
