"""Read alias contracts, the (operand, result) pairs for which kernels promise to be correct in
place, from the document and from a table of kinds.

* A declared pair `(operand position, result position)` has a strength: `exact`, `bytes` or `whole`
  (`s_in_place` defines what each strength allows).
* If a document states `null` for an op, the contract of the op is unknown, and the table of kinds
  is used. The table is used for no other op. A pair that the table calls `safe` is promised with
  the strength given there. An `unsafe` pair is not promised. A pair that is `unknown` or not listed
  stays unknown. Without a table, the name of a kind promises nothing.

A table is parsed JSON of this form:
`{"kinds": {"matmul": [{"pair": [0, 0], "says": "safe", "strength": "exact", "source": "..."}]}}`.

Complexity: O(pairs + ops of the kinds in the table).

This module does not examine the addresses of values or buffers.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from allocsim.errors import ModelError
from allocsim.model import STRENGTHS, Bools, Program
from allocsim.model.layout import Int64s

SAYS: Final = ("safe", "unsafe", "unknown")

KindsTable = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Contract:
    """The promises of the ops of a program, one row for each promise, in order of op."""

    operand_row: Int64s
    result_row: Int64s
    """Rows of `ops.operands` and `ops.results`; the rows of one op are consecutive."""
    strength: Int64s
    refused: Int64s
    """int64 (n,), sorted: `operand row * results + result row` of pairs that the table calls
    unsafe."""
    known: Bools
    """bool (ops,): False for an op with `null` as `in_place` in the document."""

    @classmethod
    def of(cls, program: Program, table: KindsTable | None = None) -> "Contract":
        """Return the contract of a program and a table. A malformed table raises ModelError."""
        ops = program.ops
        op = np.repeat(np.arange(len(ops), dtype=np.int64), np.diff(ops.in_place_starts))
        rows = [
            np.stack(
                [
                    ops.operand_starts[op] + ops.in_place[:, 0],
                    ops.result_starts[op] + ops.in_place[:, 1],
                    ops.in_place_strength,
                ],
                axis=1,
            ).astype(np.int64)[ops.in_place_known[op]]
        ]
        refused: list[int] = []
        for kind, entries in rows_of(table).items():
            for step in np.flatnonzero(ops.is_kind(kind) & ~ops.in_place_known).tolist():
                first, made = int(ops.operand_starts[step]), int(ops.result_starts[step])
                counts = int(ops.operand_starts[step + 1]) - first, int(ops.result_starts[step + 1]) - made
                for operand, result, says, strength in entries:
                    if operand >= counts[0] or result >= counts[1]:
                        continue
                    if says == "safe":
                        rows.append(np.array([[first + operand, made + result, strength]], dtype=np.int64))
                    elif says == "unsafe":
                        refused.append((first + operand) * len(ops.results) + made + result)
        found = np.concatenate(rows)
        refuted = np.array(sorted(refused), dtype=np.int64)
        operand_row, result_row, strength = found[np.argsort(found[:, 0], kind="stable")].T
        kept = ~np.isin(operand_row * len(ops.results) + result_row, refuted)
        return cls(
            operand_row=operand_row[kept],
            result_row=result_row[kept],
            strength=strength[kept],
            refused=refuted,
            known=ops.in_place_known,
        )


def rows_of(table: KindsTable | None) -> dict[str, list[tuple[int, int, str, int]]]:
    """Return for each kind the entries (operand position, result position, word, strength) of a
    table. Raise ModelError if the table or an entry is malformed.
    """
    kinds = {} if table is None else table.get("kinds", None) if isinstance(table, Mapping) else None
    if not isinstance(kinds, Mapping):
        raise ModelError("kinds", "a table of kinds is an object with a key 'kinds'")
    found: dict[str, list[tuple[int, int, str, int]]] = {}
    for kind, entries in kinds.items():
        for index, entry in enumerate(entries if isinstance(entries, list | tuple) else [entries]):
            place = f"kinds.{kind}[{index}]"
            if not isinstance(entry, Mapping):
                raise ModelError(place, "is not an object")
            pair, says, strength = entry.get("pair"), entry.get("says"), entry.get("strength", "exact")
            positions = list(pair) if isinstance(pair, list | tuple) else []
            if len(positions) != 2 or not all(isinstance(at, int) and 0 <= at < 1 << 31 for at in positions):
                raise ModelError(f"{place}.pair", f"{pair!r} is not [operand position, result position]")
            if says not in SAYS:
                raise ModelError(f"{place}.says", f"{says!r} is none of {', '.join(SAYS)}")
            if strength not in STRENGTHS:
                raise ModelError(f"{place}.strength", f"{strength!r} is none of {', '.join(STRENGTHS)}")
            found.setdefault(kind, []).append((positions[0], positions[1], says, STRENGTHS.index(strength)))
    return found
