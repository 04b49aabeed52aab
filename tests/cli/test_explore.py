"""`allocsim check --explore`: the wrong number in other orders, and one clear line where nothing can be run."""

import json

import pytest

from allocsim.cli import main
from allocsim.document import write
from allocsim.model import HOST_READ, HOST_WRITE, Document, Run
from allocsim.programs.builder import ProgramBuilder, plan_of

COLUMNS = ("why", "order", "op", "operand", "value", "index", "wanted", "found", "elements", "max_error")


def saved(folder, *, kind="sqr", streams=2, waits=(), runs=1):
    """Save x; b = sqr(x) on the last stream, a = neg(x) over x on the first, y = a + b."""
    b = ProgramBuilder("p", streams=[f"s{n}" for n in range(streams)])
    x, s, a, y = (b.tensor(name, "f32", (4,)) for name in "xsay")
    b.op(HOST_WRITE, (), (x,))
    b.op(kind, (x,), (s,), name="squared", stream=streams - 1, after=(0,))
    b.op("neg", (x,), (a,), name="negated", in_place=((0, 0),), after=waits)
    b.op("add", (a, s), (y,), after=(1,))
    b.op(HOST_READ, (y,), ())
    made = plan_of(b.build(), {0: 0, 1: 32, 2: 0, 3: 64})
    write(Document.of(*(Run.of(made) for _ in range(runs))), folder / "p.json")
    return str(folder / "p.json")


def test_a_race_is_shown_as_a_number(tmp_path, capsys):
    assert main(["check", saved(tmp_path), "--explore"]) == 1
    printed = capsys.readouterr().out
    assert (
        "plan 0: in another legal order (op 2 'negated' before op 1 'squared'), op 1 'squared' reads 'x'[0] = -"
        in printed
    )
    assert "4 elements differ, by up to 2 of the largest" in printed


def test_the_same_as_json(tmp_path, capsys):
    assert main(["check", saved(tmp_path, runs=3), "--explore", "--json"]) == 1
    (entry,) = json.loads(capsys.readouterr().out)["files"]
    (explored,) = entry["explore"]  # one plan and program, however often they run
    assert (explored["plan"], explored["program"], explored["orders"], explored["races"]) == (0, 0, 1, 1)
    (difference,) = explored["differences"]
    assert set(difference) == set(COLUMNS)
    assert difference["order"] == [0, 2, 1, 3, 4]
    assert difference["found"] == -difference["wanted"]
    (race, *_) = entry["violations"]
    assert (race["hazards"], race["schedule"], race["in_apart"]) == (["write after read"], [2, 1], False)


def test_the_seed_decides_the_data(tmp_path, capsys):
    path = saved(tmp_path)
    shown = []
    for seed in ("1", "1", "2"):
        main(["check", path, "--explore", "--seed", seed])
        shown.append(capsys.readouterr().out)
    assert shown[0] == shown[1] != shown[2]


def test_without_races_nothing_shows(tmp_path, capsys):
    assert main(["check", saved(tmp_path, waits=(1,)), "--explore"]) == 0
    assert "plan 0: no other number in 0 other legal orders" in capsys.readouterr().out


def test_one_stream_has_no_other_order(tmp_path, capsys):
    assert main(["check", saved(tmp_path, streams=1), "--explore"]) == 0
    assert "plan 0: one stream: there is no other order" in capsys.readouterr().out


def test_what_the_engine_cannot_run_is_refused_in_one_line(tmp_path, capsys):
    path = saved(tmp_path, kind="conv9d")
    assert main(["check", path]) == 1
    capsys.readouterr()
    assert main(["check", path, "--explore"]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err == (
        "allocsim: op 1 'squared' is of kind 'conv9d', for which the engine has no kernel; it cannot be run\n"
    )


@pytest.mark.parametrize("option", [[], ["--json"]])
def test_nothing_is_explored_unless_asked_for(tmp_path, capsys, option):
    main(["check", saved(tmp_path), *option])
    assert "legal order" not in capsys.readouterr().out
