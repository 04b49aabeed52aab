"""The target `ggml` of `allocsim fuzz`: random graphs through the planners of a real libggml.

Both the graph allocator and the scheduler plan each graph, in a process that may crash.

The same seed gives the same finding, but for races. Findings are joined by cause: the first of each
is shrunk, which runs it again, and printed, and written at once where a folder is given, so that an
interrupt loses none; the others are counted.

What this module does not see: how graphs are made and judged
(`engine.ggml.random_graphs.graph_fuzzing`).
"""

from collections import Counter
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
        counts: Counter[str] = Counter()
        for first in range(seed, seed + examples, live.BATCH):
            numbers = range(first, min(first + live.BATCH, seed + examples))
            for finding in live.fuzz(child, numbers):
                counts[finding.cause] += 1
                if counts[finding.cause] > 1:
                    continue
                small = live.minimise(child, finding) if shrink else finding
                path = None if out is None else live.keep(small, out)
                size = f"{len(small.recipe.steps)} tensors"
                file = None if path is None else str(path)
                about = {"seed": small.seed, "kind": small.kind, "cause": small.cause, "words": small.words}
                entries.append({**about, "size": size, "file": file})
                if not as_json:
                    kept = f"; kept in {show_path(path)}" if path is not None else ""
                    print_line(f"seed {small.seed}: {small.kind}: {small.cause}; {small.words} ({size}){kept}")
            advance(len(numbers))
    entries = [{**entry, "count": counts[entry["cause"]]} for entry in entries]
    if as_json:
        print_json({"target": "ggml", "examples": examples, "seed": seed, "findings": entries})
    else:
        for cause, count in counts.most_common():
            print_line(f"{count} of {examples} graphs: {cause}")
        print_line(f"{counts.total()} of {examples} graphs have a finding, of {len(counts)} causes")
    return int(bool(entries))
