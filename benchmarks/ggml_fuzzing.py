"""What `allocsim fuzz ggml` costs a graph, after how many graphs it names each unsafe pair of kernels by itself, and how many
wrong graphs are left without a named cause.

    python benchmarks/ggml_fuzzing.py [--out FILE] [--ggml before,after] [--graphs 1024] [--seeds 20]

CPU of this process, the server and its forks: that of a campaign of `--graphs`, less that of one without a graph, which starts the library. `per_graph_ms` has the findings in it, and that K and
D name the first of each cause; `per_clean_graph_ms` is a campaign of the graphs that have none. `loop_ns` is what a turn of an empty loop took then: on a busy machine all of it takes longer. Campaigns:
`--graphs` from each of `--seeds` seeds far apart; what was measured is kept, and goes on where it was stopped. `pairs` is the graph at which each pair
that the audit convicts was named, `unexplained` are seeds of wrong graphs without a named cause.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from harness import Found, kept, loop_ns, run, spent

from allocsim.systems.ggml.access.probe import open_library
from allocsim.systems.ggml.random_graphs.graph_fuzzing import UNNAMED, fuzz

PAIRS: Final = {
    "before": ("RMS_NORM_BACK/0", "SOFT_MAX_BACK/1", "ADD_ID/1", "SOFT_MAX/2", "ROPE/2", "ROPE_BACK/2"),
    "after": ("ADD_ID/1", "SOFT_MAX/2", "ROPE/2", "ROPE_BACK/2"),
}
"""What the audit calls unsafe or racing, by library."""

APART: Final = 1_000_000
"""Between the first seeds of two campaigns."""


def measure(
    *, ggml: tuple[str, ...] = ("before", "after"), graphs: int = 1024, seeds: int = 20, out: Path
) -> Iterator[Found]:
    """Measure what is not measured yet of the libraries that are named."""
    found = kept(out)
    for which in ggml:
        row = found.setdefault(which, {})
        row["campaigns"] = row.get("campaigns", [])
        row.update({} if "cost" in row else {"cost": cost(which, graphs)})
        yield found
        for number in range(len(row["campaigns"]), seeds):
            row["campaigns"].append(campaign(which, APART * number, graphs))
            found["unexplained"] = sum(
                len(one["unexplained"]) for lib in PAIRS if lib in found for one in found[lib]["campaigns"]
            )
            yield found


def cost(which: str, graphs: int) -> dict[str, Any]:
    """Return milliseconds of CPU for each graph of a campaign, all and those without a finding."""
    with open_library(which) as child:
        wrong = {fault.seed for fault in fuzz(child, range(graphs))}
    right = [seed for seed in range(graphs) if seed not in wrong]
    start, everything, clean = spent_by(which, ()), spent_by(which, range(graphs)), spent_by(which, right)
    return {
        "graphs": graphs,
        "findings": len(wrong),
        "per_graph_ms": round(1e3 * (everything - start) / graphs, 2),
        "per_clean_graph_ms": round(1e3 * (clean - start) / len(right), 2),
        "loop_ns": loop_ns(),
    }


def spent_by(which: str, seeds: Sequence[int]) -> float:
    """Return the CPU seconds of a campaign, its server and forks among them."""
    before = spent()
    with open_library(which) as child:
        list(fuzz(child, seeds))
    return spent() - before


def campaign(which: str, first: int, graphs: int) -> dict[str, Any]:
    """Return at which graph each pair was named, how often each cause was, and the seeds without one."""
    began = spent()
    with open_library(which) as child:
        found = list(fuzz(child, range(first, first + graphs)))
    at = {one.cause.removeprefix("on two backends: "): one.seed - first + 1 for one in reversed(found)}
    return {
        "first": first,
        "graphs": graphs,
        "pairs": {pair: at.get(f"C04 kernel: {pair.replace('/', ' over source ')}") for pair in PAIRS[which]},
        "causes": Counter(one.cause for one in found),
        "unexplained": [one.seed for one in found if one.cause == UNNAMED or " unknown: " in one.cause],
        "cpu_seconds": round(spent() - began, 1),
    }


if __name__ == "__main__":
    run(measure, failed="unexplained")
