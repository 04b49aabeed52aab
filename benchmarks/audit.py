"""Detector K: every kernel of the engine in every layout, and of a real ggml where one is installed; what was measured, and the processor time.

    python benchmarks/audit.py [--ggml before,after] [--out FILE]

`unsafe_declared` is what breaks a promise: none of the engine's own kernels may, the variants kept for scenarios do. Of ggml before 0.15 four pairs do
(`allocsim audit --ggml before`); without the package `allocsim[ggml]` its rows are left out.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from harness import Found, run, spent

from allocsim.errors import AllocsimError
from engine.k_audit import LAYOUTS, audit
from engine.kernels import KERNELS


def measure(*, ggml: tuple[str, ...] = ("before", "after")) -> Iterator[Found]:
    """Measure the engine, and the libraries of ggml that are named."""
    results: Found = {}
    for name in ("engine", *filter(None, ggml)):
        before = spent()
        try:
            rows = _engine() if name == "engine" else _ggml(name)
        except AllocsimError as error:
            print(f"{name}: {error}")
            continue
        results[name] = {**_row(rows), "cpu_seconds": round(spent() - before, 1)}
        yield results


def _engine() -> list[tuple[str, str, bool, str]]:
    return [
        (f"{row.kind}/{row.variant}/{row.operand}", row.layout, bool(row.declared), row.measured)
        for row in audit(kernels=KERNELS, layouts=tuple(LAYOUTS))
    ]


def _ggml(which: str) -> list[tuple[str, str, bool, str]]:
    from allocsim.systems.ggml.access.probe import open_library  # noqa: PLC0415 - as above
    from allocsim.systems.ggml.k_audit.library_audit import LAYOUTS as ASKED  # noqa: PLC0415 - needs a library
    from allocsim.systems.ggml.k_audit.library_audit import audit as measure  # noqa: PLC0415 - as above

    with open_library(which) as child:
        found = measure(child, layouts=ASKED)
    named = [(f"{row['op']}/{row['source']}", row) for row in found.rows]
    return [(name, row["layout"], bool(row["declared"]), row["measured"]) for name, row in named]


def _row(rows: Sequence[tuple[str, str, bool, str]]) -> dict[str, Any]:
    return {
        "kernels": len({name.rpartition("/")[0] for name, *_ in rows}),
        "rows": len(rows),
        "measured": dict(Counter(measured for *_, measured in rows)),
        "declared": sum(declared for _, _, declared, _ in rows),
        "unsafe_declared": sorted(
            f"{name} {layout}" for name, layout, declared, measured in rows if declared and measured == "unsafe"
        ),
    }


if __name__ == "__main__":
    run(measure)
