"""`allocsim audit --ggml all` (or `A,B`): the pairs of op and source that any of several libraries
gets wrong, version by version.

    allocsim audit --ggml all                       # every installed wheel
    allocsim audit --ggml before,./libggml-cpu.so   # by name and by path
    allocsim audit --ggml all --fuzz 500            # and 500 random graphs through each

Each library is audited with the result exactly over each source (`allocsim.systems.ggml.k_audit`).
A cell says `safe`, `unsafe`, `races at N threads` or `not measured`, and, where graphs were tried,
whether the fuzzer came upon the pair by itself. A library that is missing or refused is a line with
the reason and no column. `--markdown` prints the table with the smallest graph in which the
allocator lays the result there, as docs/ggml.md has it.

Exit status 0 where no pair is wrong in any library, 1 where one is, 2 where no library could be
opened. What this module does not see: the layouts that ggml does not declare.
"""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any, Final

from allocsim.cli.output import print_json, print_line, print_table
from allocsim.errors import EngineError
from allocsim.systems.ggml.access.library import WHEELS
from allocsim.systems.ggml.access.probe import open_library
from allocsim.systems.ggml.k_audit import library_audit
from allocsim.systems.ggml.random_graphs import graph_fuzzing

EVERY: Final = "all"

Pair = tuple[str, int]


VersionColumn = dict[str, Any]
"""What `column_of` returns."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Versions:
    """What several libraries show."""

    columns: list[VersionColumn]
    """Of each library: its version, what it was asked, and its cells by pair."""
    rows: list[dict[str, Any]]
    """Of each pair that one of them gets wrong: op, source, and a cell for each version."""
    graphs: list[str]
    """Of each row: the smallest graph in which an allocator that gets it wrong does it."""
    refused: dict[str, str]


def print_versions(names: str, ops: list[str] | None, graphs: int, *, as_json: bool, as_markdown: bool = False) -> int:
    """Audit libraries, print the table, return the exit status."""
    found = versions(names, ops, graphs)
    if as_json:
        about = [{key: value for key, value in column.items() if key != "pairs"} for column in found.columns]
        print_json({"versions": about, "rows": found.rows, "refused": found.refused})
    elif as_markdown:
        for line in markdown(found):
            print_line(line)
    else:
        _print(found.columns, found.rows, found.refused)
    return int(bool(found.rows))


def versions(names: str, ops: list[str] | None = None, graphs: int = 0) -> Versions:
    """Audit libraries, named as the module says; raise EngineError where none can be opened."""
    asked = [*WHEELS] if names == EVERY else [name for name in names.split(",") if name]
    columns: list[VersionColumn] = []
    refused: dict[str, str] = {}
    for which in asked:
        try:
            columns.append(_column(which, ops, graphs))
        except EngineError as error:
            refused[which] = str(error)
    if not columns:
        raise EngineError("; ".join(refused.values()))
    return side_by_side(columns, refused)


def side_by_side(columns: list[VersionColumn], refused: dict[str, str]) -> Versions:
    """Return the table of the pairs that any of the libraries gets wrong."""
    wrong = sorted({pair for column in columns for pair, cell in column["pairs"].items() if cell["wrong"]})
    rows = [
        {
            "op": op,
            "source": source,
            **{one["ggml"]: one["pairs"].get((op, source), ABSENT)["words"] for one in columns},
        }
        for op, source in wrong
    ]
    smallest = [
        next(one["pairs"][pair]["graph"] for one in columns if one["pairs"].get(pair, ABSENT)["wrong"])
        for pair in wrong
    ]
    return Versions(columns=columns, rows=rows, graphs=smallest, refused=refused)


def markdown(found: Versions) -> list[str]:
    """Return the table of pairs in lines of Markdown."""
    heads = [
        "op",
        "source",
        *(column["ggml"] for column in found.columns),
        "smallest graph in which the allocator does it",
    ]
    lines = [heads, ["---"] * len(heads)]
    lines += [[*map(str, row.values()), graph] for row, graph in zip(found.rows, found.graphs, strict=True)]
    return [f"| {' | '.join(cells)} |" for cells in lines]


ABSENT: Final[dict[str, Any]] = {"wrong": False, "words": "not measured"}


def _column(which: str, ops: list[str] | None, graphs: int) -> VersionColumn:
    with open_library(which) as child:
        found = library_audit.audit(child, ops=ops)
        met = {fault.cause for fault in graph_fuzzing.fuzz(child, range(graphs))}
    return column_of(which, found, met, graphs)


def column_of(which: str, found: library_audit.Audit, met: Collection[str] = (), graphs: int = 0) -> VersionColumn:
    """Return what one library shows, from its audit and the causes that were met in so many graphs:
    its version, and of each pair whether it is wrong and in which words.
    """
    pairs: dict[Pair, dict[str, Any]] = {}
    for row in found.rows:
        pair = row["op"], row["source"]
        words = "safe"
        if row["measured"] == "unsafe":
            words = f"races at {row['races_at']} threads" if row["threads"] == row["races_at"] else "unsafe"
        by_itself = f"C04 kernel: {row['op']} over source {row['source']}" in met
        pairs[pair] = {
            "wrong": words != "safe",
            "words": words + (", fuzzed" if by_itself else ""),
            "graph": row["graph"],
        }
    return {
        "ggml": f"{found.version} ({which})",
        "pairs": pairs,
        "measured": len(pairs),
        "graphs": graphs,
        "other": sorted({*met} - {f"C04 kernel: {op} over source {source}" for op, source in pairs}),
    }


def _print(columns: list[VersionColumn], rows: list[dict[str, Any]], refused: dict[str, str]) -> None:
    versions = [column["ggml"] for column in columns]
    for column in columns:
        graphs = f", {column['graphs']} random graphs" if column["graphs"] else ""
        print_line(f"ggml {column['ggml']}: {column['measured']} pairs of op and source measured{graphs}")
    if rows:
        print_table(
            ("op", "source", *versions), [tuple(str(cell) for cell in row.values()) for row in rows], right=("source",)
        )
    print_line(f"{len(rows)} pairs are wrong in a version" if rows else "every pair is safe in every version")
    for column in columns:
        for cause in column["other"]:
            print_line(f"ggml {column['ggml']}, found by fuzzing: {cause}")
    for which, reason in refused.items():
        print_line(f"not opened: {which}: {reason}")
