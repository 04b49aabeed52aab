"""The target `ggml` of `allocsim fuzz`: random graphs through the planners of a real libggml.

Both the graph allocator and the scheduler plan each graph, in a process that may crash.

The same seed gives the same finding. Findings are shrunk, and written as they come where a folder
is given, so that an interrupt loses none.

What this module does not see: how graphs are made and judged (`engine.ggml.random_graphs.graph_fuzzing`).
"""

from pathlib import Path
from typing import Any

from allocsim.cli.output import print_json, print_line, show_path
from allocsim.cli.progress import counting
from engine.ggml.access.probe import open_library
from engine.ggml.random_graphs import graph_fuzzing as live


def fuzz_library(*, library: str, examples: int, seed: int, shrink: bool, out: Path | None, as_json: bool) -> int:
    """Fuzz a library with `examples` graphs from `seed` on; return the exit status."""
    entries: list[dict[str, Any]] = []
    with open_library(library) as child, counting("fuzz", examples) as advance:
        for number in range(seed, seed + examples):
            for finding in live.fuzz(child, [number]):
                small = live.minimise(child, finding) if shrink else finding
                path = None if out is None else live.keep(small, out)
                size = f"{len(small.recipe.steps)} tensors"
                file = None if path is None else str(path)
                entries.append({"seed": number, "kind": small.kind, "words": small.words, "size": size, "file": file})
                if not as_json:
                    kept = f"; kept in {show_path(path)}" if path is not None else ""
                    print_line(f"seed {number}: {small.kind}: {small.words} ({size}){kept}")
            advance(1)
    if as_json:
        print_json({"target": "ggml", "examples": examples, "seed": seed, "findings": entries})
    else:
        print_line(f"{len(entries)} of {examples} graphs have a finding")
    return int(bool(entries))
