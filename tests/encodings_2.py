"""Documents given with the project (`tests/data/cases`) in the encodings of version 2."""

import json
from pathlib import Path

CASES = Path(__file__).parent / "data" / "cases"


def case(name):
    return json.loads((CASES / f"{name}.json").read_text(encoding="utf-8"))


def amended(name, op, **keys):
    """Return a case as version 2 with some keys of one op changed."""
    made = case(name)
    made["version"] = 2
    made["programs"][0]["ops"][op] |= keys
    return made


def carried(name, step, carry):
    """Return a case with a `same` before an op that takes values over into buffers of their own at the same places.

    From there on every op reads the new values in place of the old.
    """
    made = case(name)
    made["version"] = 2
    program, slots = made["programs"][0], made["plans"][0]["slots"]
    place = {v["name"] + f"@{v['buffer']}": i for i, v in enumerate(program["values"])}
    sources, targets = [place[v] for v in carry], []
    for v in sources:
        value = program["values"][v]
        program["buffers"].append({**program["buffers"][value["buffer"]], "name": f"carry.{v}"})
        slots.append(dict(slots[value["buffer"]]))
        program["values"].append({**value, "name": f"carry.{v}", "buffer": len(program["buffers"]) - 1})
        targets.append(len(program["values"]) - 1)
    swap = dict(zip(sources, targets, strict=True))
    for op in program["ops"][step:]:
        op["operands"] = [swap.get(v, v) for v in op.get("operands", [])]
    program["ops"].insert(step, {"kind": "same", "operands": sources, "results": targets})
    return made


CARRY = ["wrapped_add@11", "sine_add_fusion@13", "copy.7@14"]
"""What the first turn of the loop in `loop-swap` hands to the second."""


def nibbles_as_i4():
    """Return `nibbles` with two 4-bit values in one byte, as version 2 writes them."""
    made = case("nibbles")
    made["version"] = 2
    lo, hi = made["programs"][0]["values"]
    lo |= {"dtype": "i4"}
    hi |= {"dtype": "i4", "bit_offset": 4}
    return made


def copies_as_same():
    """Return `loop-swap` with its copies as `same`."""
    made = case("loop-swap")
    made["version"] = 2
    for op in made["programs"][0]["ops"]:
        op["kind"] = "same" if op["kind"] == "copy" else op["kind"]
    return made


def exchanged(made, one, other):
    """Return a document with the slots of two buffers exchanged."""
    slots = made["plans"][0]["slots"]
    slots[one], slots[other] = slots[other], slots[one]
    return made


def permuted():
    """Return `loop-swap` with its carries as `same`, two of them in each other's slots."""
    return exchanged(carried("loop-swap", 13, CARRY), -1, -2)
