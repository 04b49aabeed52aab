"""Which ranks meet in an instruction: the forms of groups, and a module of four partitions over its ranks."""

import json
from itertools import product
from types import SimpleNamespace

import pytest
from plan_laws import PLANS

from allocsim import systems
from allocsim.cli import main
from allocsim.diagnostics import check
from allocsim.programs.joined_ranks import joined
from allocsim.programs.rank_meetings import collectives, meetings, plans_of
from allocsim.systems.xla.hlo_collectives import meeting_of
from allocsim.systems.xla.hlo_text import Instruction, parse_module
from allocsim.systems.xla.hlo_walk import _Walk

RANKS = PLANS / "xla" / "ranks"
EIGHT = (0, 1, 2, 3, 4, 5, 6, 7)


def row(attributes, opcode="all-reduce"):
    return Instruction("r", opcode, {}, (), f", channel_id=1, {attributes}, use_global_device_ids=true", "", False)


def parts(attributes, ranks=8):
    met = meeting_of(row(attributes), ranks)
    return None if met is None else met.parts


@pytest.mark.parametrize(
    ("told", "meet"),
    [
        ("replica_groups={{0,1,2,3},{4,5,6,7}}", ((0, 1, 2, 3), (4, 5, 6, 7))),
        ("replica_groups={}", (EIGHT,)),
        ("to_apply=%sum", (EIGHT,)),
        ("replica_groups=[1,8]<=[8]", (EIGHT,)),
        ("replica_groups=[4,2]<=[2,4]T(1,0)", ((0, 4), (1, 5), (2, 6), (3, 7))),
        ("replica_groups=[2,4]<=[2,2,2]T(1,0,2)", ((0, 1, 4, 5), (2, 3, 6, 7))),
        ("replica_groups=mesh['x'=2,'y'=4] {'y'}", ((0, 1, 2, 3), (4, 5, 6, 7))),
        ("replica_groups=mesh['x'=2,'y'=4] {'x'}", ((0, 4), (1, 5), (2, 6), (3, 7))),
        ("replica_groups=mesh['x'=2,'y'=2,'z'=2] {'z','x'}", ((0, 4, 1, 5), (2, 6, 3, 7))),
    ],
)
def test_each_form_names_the_parts(told, meet):
    assert parts(told) == meet


@pytest.mark.parametrize(
    "told",
    [
        "replica_groups={{0,1},{1,2}}",
        "replica_groups={{0,1}}",
        "replica_groups=[2,3]<=[8]",
        "replica_groups=[2,4]<=[8]T(1)",
        "replica_groups=[2,4,1]<=[8]",
        "replica_groups=mesh['x'=8] {'w'}",
        "replica_groups=mesh['x'=4] {'x'}",
        "replica_groups=@somewhere",
    ],
)
def test_of_what_is_no_partition_nothing_is_said(told):
    assert parts(told) is None


@pytest.mark.parametrize("lengths", [(2, 3), (3, 2, 2), (2, 2, 2)])
def test_the_parts_of_a_mesh_are_those_of_its_points(lengths):
    """An independent count: a part has all points that differ in the named axes alone."""
    named = ",".join(f"'a{axis}'={length}" for axis, length in enumerate(lengths))
    points = list(product(*map(range, lengths)))
    for chosen in product((False, True), repeat=len(lengths)):
        told = ",".join(f"'a{axis}'" for axis, there in enumerate(chosen) if there)
        alike = {}
        for rank, point in enumerate(points):
            alike.setdefault(tuple(x for x, there in zip(point, chosen, strict=True) if not there), []).append(rank)
        found = parts(f"replica_groups=mesh[{named}] {{{told}}}", len(points))
        assert found == tuple(map(tuple, alike.values()))


def test_numbers_of_a_permutation_are_its_pairs():
    met = meeting_of(row("source_target_pairs={{0,1},{1,0}}", "collective-permute"), 4)
    assert (met.parts, met.params) == (((0, 1, 2, 3),), {"pairs": [[0, 1], [1, 0]]})


def test_the_ranks_of_a_module_are_joined_and_judged(tmp_path, capsys):
    plans, groups = plans_of([systems.load(RANKS)])
    assert len(plans) == 4
    told = {tuple(map(tuple, split)) for split in groups.values()}
    assert told == {((0, 1, 2, 3),), ((0, 1), (2, 3)), ((0, 2), (1, 3))}
    met = meetings([plan.program for plan in plans], groups)
    assert not met.faults
    assert sum(len(meeting.ranks) for meeting in met.found) == 4 * len(collectives(plans[0].program))
    assert check(joined(plans, groups)).clean

    out = tmp_path / "ranks.json"
    assert main(["join", str(RANKS), "--out", str(out)]) == 0
    assert f"4 ranks, {len(met.found)} collectives" in capsys.readouterr().out
    assert main(["check", str(out)]) == 0


def test_a_permutation_of_ranks_that_there_are_not_and_lengths_beyond_64_bits_are_not_read():
    assert meeting_of(row("source_target_pairs={{0,4}}", "collective-permute"), 4) is None
    lengths = ",".join(map(str, (333_667, 1 << 29, 1 << 29, 64, 8)))
    assert parts(f"replica_groups=[2,4]<=[{lengths}]") is None


def test_a_rank_of_a_permutation_waits_for_the_one_that_sends_to_it():
    plans, groups = plans_of([systems.load(RANKS)])
    met = meetings([plan.program for plan in plans], groups)
    moves = [meeting for meeting in met.found if meeting.kind == "collective-permute"]
    assert moves
    assert all([tuple(move.sources(place)) for place in range(4)] == [(1,), (0,), (3,), (2,)] for move in moves)


def test_a_collective_that_is_not_read_is_not_joined(tmp_path, capsys):
    folder, out = tmp_path / "dump", tmp_path / "out.json"
    folder.mkdir()
    for path in RANKS.iterdir():
        text = path.read_text(encoding="utf-8").replace("replica_groups={{0,1,2,3}}", "replica_groups=@elsewhere")
        (folder / path.name).write_text(text, encoding="utf-8")
    assert main(["join", str(folder), "--out", str(out)]) == 2
    assert "says neither how many ranks there are nor their groups" in capsys.readouterr().err
    assert not out.exists()


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("%s = ((f32[4]{0}), f32[4]{0}, u32[]) async-start(%p), calls=%inner", False),
        ("%s = (f32[4]{0}, u32[], token[]) send(%p, %t), channel_id=3", False),
        ("%s = f32[4]{0} ragged-all-to-all(%p, %p), channel_id=3", False),
        ("%s = ((f32[4]{0}), f32[4]{0}, u32[]) async-start(%p), calls=%quiet", True),
        ("%s = f32[4]{0} negate(%p)", True),
    ],
)
def test_what_ranks_meet_in_and_is_not_read_says_that_nothing_is_told(line, told):
    text = f"""HloModule m, is_scheduled=true, num_partitions=2

%inner (q: f32[4]) -> f32[4] {{
  %q = f32[4]{{0}} parameter(0)
  ROOT %a = f32[4]{{0}} all-to-all(%q), channel_id=2, replica_groups={{{{0,1}}}}
}}

%quiet (q.1: f32[4]) -> f32[4] {{
  %q.1 = f32[4]{{0}} parameter(0)
  ROOT %n = f32[4]{{0}} negate(%q.1)
}}

ENTRY %main (p: f32[4]) -> f32[4] {{
  %p = f32[4]{{0}} parameter(0)
  {line}
  ROOT %r = f32[4]{{0}} negate(%p)
}}
"""
    module = parse_module(text, "m")
    walk = SimpleNamespace(module=module, unread=False, groups={})
    found = next(one for one in module.instructions("main") if one.name == "s")
    assert _Walk.told_ranks(walk, found) == {}
    assert walk.unread is not told


def test_ranks_that_do_not_meet_are_a_finding(tmp_path, capsys):
    """Of four files one brings something else to a collective."""
    right, wrong = tmp_path / "right.json", tmp_path / "wrong.json"
    systems.save(systems.load(RANKS), str(right))
    other = json.loads(right.read_text(encoding="utf-8"))
    next(op for op in other["programs"][0]["ops"] if op["kind"] == "reduce-scatter")["kind"] = "all-reduce"
    wrong.write_text(json.dumps(other), encoding="utf-8")
    assert main(["join", *[str(right)] * 3, str(wrong), "--out", str(tmp_path / "out.json")]) == 1
    assert (
        "CollectiveMismatch: collective 2 of group 'group 0': rank 0 brings reduce-scatter" in capsys.readouterr().out
    )
    assert not (tmp_path / "out.json").exists()


@pytest.mark.parametrize(("files", "line"), [(2, "there are 2 for 4 ranks"), (3, "there are 3 for 4 ranks")])
def test_a_file_is_for_all_ranks_or_there_is_one_for_each(tmp_path, capsys, files, line):
    assert main(["join", *[str(RANKS)] * files, "--out", str(tmp_path / "out.json")]) == 2
    assert line in capsys.readouterr().err


@pytest.mark.parametrize(
    "meta", [None, {}, {"count": 4}, {"count": 0, "groups": {}}, {"count": 2, "groups": {"g": [7]}}]
)
def test_what_says_nothing_of_ranks_is_refused(tmp_path, capsys, meta):
    plain = tmp_path / "plain.json"
    systems.save(systems.load(RANKS), str(plain))
    told = json.loads(plain.read_text(encoding="utf-8"))
    told["programs"][0]["meta"] = {"ranks": meta}
    plain.write_text(json.dumps(told), encoding="utf-8")
    assert main(["join", str(plain), "--out", str(tmp_path / "out.json")]) == 2
    assert capsys.readouterr().err.count("\n") == 1
