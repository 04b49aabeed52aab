"""Documents with the answer that each must get: `tests/data/cases`, as they are and in the encodings of version 2."""

import json
from pathlib import Path

import pytest
from oracle2 import judge
from oracle2.brief import kinds, only

CASES = Path(__file__).parents[2] / "data" / "cases"


def case(name):
    return json.loads((CASES / f"{name}.json").read_text(encoding="utf-8"))


def amended(name, op, **keys):
    """Return a case as version 2 with some keys of one op changed."""
    made = case(name)
    made["version"] = 2
    made["programs"][0]["ops"][op] |= keys
    return made


@pytest.mark.parametrize("name", ["gap-used", "loop-hull", "state-gap", "loop-swap", "kv-pages", "reinplaced-view-as-mutation"])
def test_is_clean(name):
    assert judge(case(name)).violations == ()


@pytest.mark.slow
def test_remat_scan_is_clean():
    assert judge(case("remat-scan")).violations == ()


def test_equal_bytes_is_clean_as_same_and_refused_as_a_copy():
    assert kinds(judge(case("equal-bytes"))) == ["Overlap", "StaleRead"]
    assert judge(amended("equal-bytes", 1, kind="same")).violations == ()


def test_matmul_over_its_operand_is_convicted_by_a_table_and_when_strict():
    unsafe = {"kinds": {"dot": [{"pair": [0, 0], "says": "unsafe", "source": "reads each row again"}]}}
    made = case("matmul-over-operand")

    assert ([w["kind"] for w in judge(made).warnings], judge(made).clean) == (["AssumedInPlace"], True)
    assert "UnsafeInPlace" in kinds(judge(made, kinds=unsafe))
    assert kinds(judge(made, strict=True)) == ["AssumedInPlace"]


@pytest.mark.parametrize("name", ["in-place-other-shape", "in-place-smaller"])
def test_another_shape_and_a_smaller_result_are_clean_with_bytes(name):
    assert "UnsafeInPlace" in kinds(judge(case(name)))
    assert judge(amended(name, 1, in_place=[[0, 0, "bytes"]])).violations == ()


def test_nibbles_are_clean_as_i4():
    made = case("nibbles")
    assert kinds(judge(made)) == ["OverwrittenRead"]

    made["version"] = 2
    lo, hi = made["programs"][0]["values"]
    lo |= {"dtype": "i4"}
    hi |= {"dtype": "i4", "bit_offset": 4}
    assert judge(made).violations == ()


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


def test_loop_swap_is_clean_with_its_copies_and_its_carries_as_same():
    copies = case("loop-swap")
    copies["version"] = 2
    for op in copies["programs"][0]["ops"]:
        op["kind"] = "same" if op["kind"] == "copy" else op["kind"]

    assert judge(copies).violations == ()
    assert judge(carried("loop-swap", 13, CARRY)).violations == ()


def test_loop_swap_with_two_carries_permuted_is_the_plans():
    made = carried("loop-swap", 13, CARRY)
    slots = made["plans"][0]["slots"]
    slots[-1], slots[-2] = slots[-2], slots[-1]

    assert "Overlap" in kinds(judge(made))


def test_a_view_of_what_a_compiler_overwrote_is_read_late():
    found = judge(case("reinplaced-view-as-intent"))
    stale = only(found, "StaleRead")

    assert kinds(found) == ["Overlap", "StaleRead"]
    assert (stale["op"], stale["other_op"], stale["want_op"]) == (7, 6, 2)


def test_a_page_given_away_is_read_in_a_later_run():
    found = judge(case("kv-page-reused"))

    assert kinds(found) == ["StaleRead"]
    assert (found.violations[0]["run"], found.violations[0]["other_run"], found.violations[0]["want_run"]) == (2, 1, 0)
