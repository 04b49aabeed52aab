"""`allocsim diff A B`: compare two plans, buffer by buffer.

Plan i of the one is compared with plan i of the other. Buffers are matched by index where the lists
of names are equal, else by name (the k-th of a name with the k-th). A buffer has *moved* if its
slot has another arena, offset or size.

What this module does not see: whether either plan is sound (`allocsim check`).
"""

from typing import Annotated, Any

import typer

from allocsim.cli.output import in_bytes, print_json, print_line, print_table
from allocsim.errors import DocumentError
from allocsim.model import OWN, UNPLACED, Plan
from allocsim.systems import load


def diff(
    first: Annotated[str, typer.Argument(metavar="A", help="A document with plans.")],
    second: Annotated[str, typer.Argument(metavar="B", help="Another document with plans.")],
    *,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> int:
    """Exit status 0, whether they differ or not.

    Example: allocsim diff before.json after.json
    """
    plans = [load(path).plans for path in (first, second)]
    for path, found in zip((first, second), plans, strict=True):
        if not found:
            raise DocumentError(path, "plans", "there is none to compare")
    if len(plans[0]) != len(plans[1]):
        raise DocumentError(second, "plans", f"{len(plans[1])} here, and {len(plans[0])} in {first}")
    changes = [changes_of(one, other) for one, other in zip(*plans, strict=True)]
    if as_json:
        print_json({"plans": changes})
        return 0
    for index, change in enumerate(changes):
        _print(index, change)
    return 0


def changes_of(one: Plan, other: Plan) -> dict[str, Any]:
    """Return peaks, moved buffers with both slots, and the buffers only one of the plans has."""
    keys, other_keys = _keys(one, other)
    rows = {key: index for index, key in enumerate(other_keys)}
    known = set(keys)
    moved = []
    for index, key in enumerate(keys):
        match = rows.get(key)
        if match is not None and _slot(one, index) != _slot(other, match):
            name = one.program.buffers.names[index]
            moved.append({"buffer": index, "name": name, "from": _slot(one, index), "to": _slot(other, match)})
    return {
        "sources": [one.source, other.source],
        "peak_bytes": [one.peak_bytes, other.peak_bytes],
        "moved": moved,
        "only_first": [one.program.buffers.names[index] for index, key in enumerate(keys) if key not in rows],
        "only_second": [other.program.buffers.names[index] for index, key in enumerate(other_keys) if key not in known],
    }


def _keys(one: Plan, other: Plan) -> tuple[list[Any], list[Any]]:
    names, other_names = one.program.buffers.names, other.program.buffers.names
    if names == other_names:
        return list(range(len(names))), list(range(len(names)))
    return _numbered(names), _numbered(other_names)


def _numbered(names: tuple[str, ...]) -> list[Any]:
    seen: dict[str, int] = {}
    keys = []
    for name in names:
        seen[name] = seen.get(name, -1) + 1
        keys.append((name, seen[name]))
    return keys


def _slot(plan: Plan, buffer: int) -> Any:
    """Return a slot as a document spells it."""
    arena = int(plan.arena[buffer])
    if arena in (OWN, UNPLACED):
        return "own" if arena == OWN else None
    return {"arena": arena, "offset": int(plan.offset[buffer]), "nbytes": int(plan.nbytes[buffer])}


def _print(index: int, change: dict[str, Any]) -> None:
    (before, after), count = change["peak_bytes"], len(change["moved"])
    sources = " -> ".join(source or "unknown" for source in change["sources"])
    sizes = f"peak {in_bytes(before)} -> {in_bytes(after)} ({after - before:+d} bytes)"
    print_line(f"plan {index} ({sources}): {count} buffer{'s'[: count != 1]} moved, {sizes}")
    rows = [(move["buffer"], move["name"], _spell(move["from"]), _spell(move["to"])) for move in change["moved"]]
    print_table(("buffer", "name", "from", "to"), rows, right=("buffer",))
    for key, word in (("only_first", "first"), ("only_second", "second")):
        for name in change[key]:
            print_line(f"  only in the {word}: {name!r}")


def _spell(slot: Any) -> str:
    if slot is None or slot == "own":
        return slot or "not placed"
    return f"{slot['arena']}:[{slot['offset']}, {slot['offset'] + slot['nbytes']})"
