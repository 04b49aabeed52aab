"""`allocsim audit --ggml NAME`, its second part: the contract of every kernel of the library,
measured between red zones.

A row is an op: in how many forms it ran, which sources it reads, which it writes over by what it
means, whether it leaves bytes of its result, and whether threads change what it computes; with the
sources over which its result may lie as the first part measured. What an op does and may not is a
line of its own. What this module does not see: how kernels are run
(`allocsim.systems.ggml.k_audit.guarded_audit`).
"""

from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from allocsim.cli.output import print_line, print_table
from allocsim.systems.ggml.access.child import Child
from allocsim.systems.ggml.k_audit.guarded_audit import audit_guarded


def contracts(child: Child, ops: Collection[str] | None, aliases: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the contract rows of a library, of all its ops or of some, and what did not run;
    `aliases` are the rows of the first part.
    """
    found = audit_guarded(child, ops=ops)
    over: dict[str, set[int]] = defaultdict(set)
    for row in aliases:
        if row["layout"] == "over" and row["measured"] == "safe":
            over[row["op"]].add(row["source"])
    rows = [{**row.public(), "over": sorted(over[row.op])} for row in found.rows]
    refused = Counter((one["op"], one["said"]) for one in found.refused)
    return {
        "contracts": rows,
        "contracts_refused": [{"op": op, "forms": count, "said": said} for (op, said), count in refused.items()],
        "contracts_without": found.without,
    }


def print_contracts(found: Mapping[str, Any]) -> None:
    """Print the table and, of each op that breaks its contract, what it does."""
    rows = found["contracts"]
    wrong = [row for row in rows if row["measured"] == "unsafe"]
    forms = sum(row["forms"] for row in rows)
    print_line(f"contracts: {len(rows)} ops in {forms} forms between red zones; {len(wrong)} break theirs")
    heads = ("kernel", "forms", "reads", "writes", "leaves", "threads", "over")
    print_table(heads, [_cells(row) for row in [*wrong, *(r for r in rows if r not in wrong)]], right=("forms",))
    print_line("reads, writes, over: sources by slot; over: the result may lie exactly there; ! what a kernel may not")
    for row in wrong:
        for one in row["misdeeds"]:
            print_line(f"broken: {row['op']}: {one['said']}; {one['form']} ({one['forms']} of {row['forms']} forms)")
    for one in found["contracts_refused"]:
        print_line(f"not run: {one['op']}, {one['forms']} forms: {one['said']}")
    whys: dict[str, list[str]] = defaultdict(list)
    for op, why in found["contracts_without"].items():
        whys[why].append(op)
    for why, ops in whys.items():
        print_line(f"not run: {', '.join(ops)}: {why}")


def _cells(row: Mapping[str, Any]) -> tuple[str, ...]:
    kinds = {one["kind"] for one in row["misdeeds"]}
    reads = _slots(row["reads"]) + "!" * bool(kinds & {"UndeclaredRead", "OldRead"})
    writes = _slots(row["writes"]) + "!" * bool(kinds & {"Overrun", "OperandWritten", "Crash"})
    leaves, threads = ("!" if kind & kinds else "-" for kind in ({"ResultUnwritten"}, {"Threads", "Hang"}))
    return row["op"], str(row["forms"]), reads or "-", writes or "-", leaves, threads, _slots(row["over"]) or "-"


def _slots(slots: Sequence[int]) -> str:
    return " ".join(map(str, slots))
