"""Checks a certificate of how small a plan of one arena can be, with nothing but Python.

    python check_certificate.py CERTIFICATE INSTANCE

INSTANCE is minimalloc's CSV: a line for each buffer with `id`, its life `lower,upper` (half-open;
`end` in place of `upper` is the last step), its `size`, and where there are any `alignment` and
`gaps` (`7-9 12-14`), steps in which its bytes need not survive; a `hint` and an `offset` are not
read. A certificate can say nothing about these. It is JSON, {"peak": P, "bound": L, "offsets": {id:
offset}, "proof": [...]}: P bytes are enough and fewer than L are not. It is accepted if

* `offsets` names each buffer of the instance once, at a multiple of its alignment, none that ends
  above P, and no two buffers share a byte at a step at which both live;
* `proof` shows that no plan is lower than L. Where g divides all sizes, and divides each alignment
  or is a multiple of it, the least peak is a multiple of g: what is needed is rounded up to that.

A proof is a list of rows, each of which settles what is open:

* {"step": t}: what lives at step t needs L bytes; {"step": t, "of": [ids]}: these of them do;
* {"cases": [a, b]}: a and b live at one step, so one lies under the other. The rows that follow are
  about plans in which a lies under b; where these end, as many as are needed about the others.

They need the least that lies under any of them in the cases that led to the row, their sizes, and
the least that lies over any; sizes but one are rounded up to what divides the alignments of all.

The exit status is 0 where it is accepted and 1 where it is not, with the reason.
"""

# ruff: noqa: INP001 - no package
import csv
import json
import re
import sys
from math import gcd
from pathlib import Path
from typing import Any, NamedTuple

COLUMNS = {"buffer": "id", "buffer_id": "id", "start": "lower", "begin": "lower"}
COLUMNS |= {name: name for name in ("id", "lower", "upper", "end", "size", "alignment", "gaps", "hint", "offset")}
KEYS, ROWS = {"peak", "bound", "offsets", "proof"}, ({"step"}, {"step", "of"}, {"cases"})
MOST, DEEPEST = 1 << 62, 300  # bytes; cases within cases
Instance = dict[str, "Buffer"]


class Buffer(NamedTuple):
    """A buffer of the instance: the ranges of steps in which it lives, and its bytes."""

    lives: list[tuple[int, int]]
    size: int
    alignment: int

    def at(self, step: int) -> bool:
        """Return whether it needs its bytes at a step."""
        return any(low <= step < high for low, high in self.lives)

    def meets(self, other: "Buffer") -> bool:
        """Return whether both have bytes and live at one step."""
        return bool(self.size and other.size) and any(a < d and c < b for a, b in self.lives for c, d in other.lives)


def need(fine: Any, why: str) -> None:
    """Refuse unless something is so."""
    if not fine:
        raise ValueError(why)


def whole(value: Any, what: str) -> int:
    """Return a whole number that is not negative."""
    need(type(value) is int and 0 <= value <= MOST, f"{what} is {value!r}, no whole number of at least 0")
    return int(value)


def read_instance(text: str) -> Instance:
    """Return the buffers of an instance."""
    rows = [[cell.strip() for cell in row] for row in csv.reader(text.splitlines(), strict=True) if row]
    names = [COLUMNS.get(name, "") for name in rows[0]] if rows else []
    late = "end" in names
    fine = all(names) and len(set(names)) == len(names) and {"id", "lower", "size"} < set(names)
    need(fine and late != ("upper" in names), f"the columns of the instance are {rows[:1]}")
    instance: Instance = {}
    for row in rows[1:]:
        need(len(row) == len(names) and row[names.index("id")] not in instance, f"a line of the instance is {row!r}")
        cells = {"alignment": "1", "gaps": ""} | dict(zip(names, row, strict=True))
        numbers = [cells[name] for name in ("lower", "end" if late else "upper", "size", "alignment")]
        gaps = re.fullmatch("([0-9]+-[0-9]+( +|$))*", cells["gaps"]) and re.findall("[0-9]+", cells["gaps"])
        fine = gaps is not None and all(re.fullmatch("[0-9]{1,18}", number) for number in (*numbers, *gaps))
        need(fine, f"a line of the instance is not of whole numbers: {row!r}")
        low, high, size, alignment = map(int, numbers)
        high += late
        ends = [int(end) + (late and place % 2) for place, end in enumerate(gaps or ())]
        need(low <= high and alignment and ends == sorted(ends), f"a line of the instance is not in order: {row!r}")
        marks = [low, *(min(max(end, low), high) for end in ends), high]
        lives = [(a, b) for a, b in zip(marks[::2], marks[1::2], strict=True) if a < b]
        instance[cells["id"]] = Buffer(lives, size, alignment)
    return instance


def check_offsets(instance: Instance, offsets: Any, peak: int) -> None:
    """Refuse offsets that are no plan of P bytes. O(buffers^2)."""
    odd = sorted(offsets.keys() ^ instance.keys()) if isinstance(offsets, dict) else ["all"]
    need(not odd, f"offsets and instance differ in {odd[:8]}")
    placed: list[tuple[int, int, str]] = []
    for name, buffer in instance.items():
        high = (low := whole(offsets[name], f"the offset of {name!r}")) + buffer.size
        need(low % buffer.alignment == 0, f"buffer {name!r} cannot lie at {low}")
        need(high <= peak, f"buffer {name!r} ends at {high}, above the peak")
        for start, stop, other in placed:
            clash = low < stop and start < high and buffer.meets(instance[other])
            need(not clash, f"buffers {other!r} and {name!r} share bytes while both live")
        placed.append((low, high, name))


def room(instance: Instance, name: str, ahead: dict[str, set[str]], known: dict[str, int]) -> int:
    """Return the bytes that must lie on one side of a buffer: of what lies there in these cases and
    lives at one step, those that have v bytes or more on that side take v and their sizes.
    """
    if name not in known:
        known[name] = MOST  # asked again below, the cases go round: no plan is like that
        others = sorted(((room(instance, other, ahead, known), other) for other in ahead.get(name, ())), reverse=True)
        most = 0
        for step in {low for _, other in others for low, _ in instance[other].lives}:
            total = 0
            for side, other in others:
                total += instance[other].size * instance[other].at(step)
                most = max(most, side + total) if instance[other].at(step) else most
        known[name] = most
    return known[name]


def different(instance: Instance, names: Any) -> list[str]:
    """Return the names if they are those of different buffers of the instance."""
    fine = isinstance(names, list) and all(isinstance(name, str) and name in instance for name in names)
    need(fine and len(set(names)) == len(names), f"{names!r} are not different buffers")
    return list(names)


def needed(instance: Instance, row: dict[str, Any], cases: frozenset[tuple[str, str]]) -> int:
    """Return the bytes that the buffers of a row need at its step in these cases."""
    step = whole(row["step"], "the step of a row")
    names = different(instance, row.get("of", [name for name, buffer in instance.items() if buffer.at(step)]))
    need(all(instance[name].at(step) for name in names), f"not all of {names[:8]} live at step {step}")
    unit = gcd(*(instance[name].alignment for name in names)) or 1
    padding = [-instance[name].size % unit for name in names] or [0]
    total = sum(instance[name].size for name in names) + sum(padding) - max(padding)
    for here in (0, 1):
        ahead: dict[str, set[str]] = {}
        for case in cases:
            ahead.setdefault(case[1 - here], set()).add(case[here])
        known: dict[str, int] = {}
        total += min((room(instance, name, ahead, known) for name in names), default=0)
    return total


def check_proof(instance: Instance, proof: Any, bound: int) -> None:
    """Refuse a proof that does not show that no plan is lower than the bound."""
    need(isinstance(proof, list), f"the proof is {proof!r}")
    granule = gcd(*(buffer.size for buffer in instance.values())) or 1
    while odd := [b.alignment for b in instance.values() if granule % b.alignment and b.alignment % granule]:
        granule = gcd(granule, odd[0])
    waiting: list[frozenset[tuple[str, str]]] = [frozenset()]
    for row in proof:
        fine = isinstance(row, dict) and row.keys() in ROWS and waiting
        need(fine, f"a row is {row!r}, where {len(waiting)} cases are open")
        cases = waiting.pop()
        if "step" in row:
            total = -(-needed(instance, row, cases) // granule) * granule
            need(total >= bound, f"at step {row['step']} only {total} bytes are needed, not {bound}")
            continue
        pair = different(instance, row["cases"])
        fine = len(pair) == 2 and len(cases) < DEEPEST and instance[pair[0]].meets(instance[pair[1]])
        need(fine, f"{pair!r} are no cases: two that live at one step, {DEEPEST} deep at most")
        waiting += [cases | {(pair[1], pair[0])}, cases | {(pair[0], pair[1])}]
    need(not waiting, f"{len(waiting)} cases are open where the proof ends")


def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return what is between two braces of JSON, in which no key is there twice."""
    need(len(dict(pairs)) == len(pairs), f"a key is there twice: {[key for key, _ in pairs][:8]}")
    return dict(pairs)


def check(certificate: str, instance: str) -> str:
    """Return what a certificate shows. Raises ValueError."""
    buffers, record = read_instance(instance), json.loads(certificate, object_pairs_hook=once)
    need(isinstance(record, dict) and record.keys() == KEYS, f"the keys of a certificate are {sorted(KEYS)}")
    peak, bound = whole(record["peak"], "the peak"), whole(record["bound"], "the bound")
    need(bound <= peak, f"the bound {bound} is above the peak {peak}")
    check_offsets(buffers, record["offsets"], peak)
    check_proof(buffers, record["proof"], bound)
    return f"accepted: {peak} bytes are enough, fewer than {bound} are not"


if __name__ == "__main__":
    try:
        need(len(sys.argv) == 3, "a certificate and an instance are needed")
        said = check(*(Path(name).read_text(encoding="utf-8-sig") for name in sys.argv[1:]))
    except (OSError, ValueError, RecursionError, csv.Error) as why:
        said = f"not accepted: {' '.join(str(why).split())[:300]}"
    sys.stdout.write(said + "\n")
    sys.exit(not said.startswith("accepted"))
