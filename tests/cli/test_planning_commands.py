"""`allocsim compare`, `convert` and `plan` on solver's instances."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from commands import allocsim

from allocsim import document, systems
from allocsim.model import Document
from repro.small.words import program

ROOT = Path(__file__).parents[2]

INSTANCE = "id,lower,upper,size\n" + "".join(f"b{i},{i % 4},{i % 4 + 2},{(i * 7) % 5 + 1}\n" for i in range(8))


@pytest.fixture
def instance(tmp_path):
    path = tmp_path / "instance.csv"
    path.write_text(INSTANCE)
    return path


def test_plan_places_a_document_without_ops_by_its_problem(instance, tmp_path):
    out = tmp_path / "planned.json"
    done = allocsim("plan", instance, "--allocator", "exact", "-o", out, "--json")
    planned = systems.load(out)

    assert done.returncode == 0
    (row,) = json.loads(done.stdout)["plans"]
    assert row["peak_bytes"] == row["lower_bound_bytes"] == planned.plans[0].peak_bytes
    assert planned.problems[0].stop.tolist() == systems.load(instance).problems[0].stop.tolist()
    assert allocsim("check", out).returncode == 0


def test_a_search_says_whether_it_proved_and_may_be_given_a_time(instance):
    whole, none = (allocsim("plan", instance, "--allocator", "exact", "--seconds", seconds) for seconds in (60, 0))

    assert whole.returncode == none.returncode == 0
    assert "proved optimal in" in whole.stdout
    assert "in 0 nodes" in none.stdout
    assert allocsim("plan", instance, "--allocator", "greedy_by_size", "--seconds", 1).stderr == (
        "allocsim: allocator 'greedy_by_size' has no time limit; 'exact' has, which searches for the least peak\n"
    )


def test_a_pin_on_the_command_line_is_no_reason_to_forget_the_problem(instance, tmp_path):
    out = tmp_path / "planned.json"

    assert allocsim("plan", instance, "--allocator", "linear_scan", "--pin", "none", "-o", out).returncode == 0
    assert systems.load(out).problems[0].start.tolist() == systems.load(instance).problems[0].start.tolist()


def test_convert_goes_to_csv_and_back(instance, tmp_path):
    native, again = tmp_path / "x.json", tmp_path / "again.csv"

    assert allocsim("convert", instance, native).returncode == 0
    assert allocsim("convert", native, again).returncode == 0
    assert again.read_text() == INSTANCE


def test_a_plan_in_csv_is_judged(instance, tmp_path):
    native, planned = tmp_path / "x.json", tmp_path / "x.csv"
    allocsim("plan", instance, "--allocator", "best_fit", "-o", native)

    assert allocsim("convert", native, planned).returncode == 0
    assert allocsim("check", planned).returncode == 0
    planned.write_text(
        "".join(
            line.rpartition(",")[0] + ",0\n" if n else line + "\n" for n, line in enumerate(planned.read_text().split())
        )
    )
    assert allocsim("check", planned).returncode == 1


def test_compare_prints_a_row_for_each_planner_and_the_means(instance):
    done = allocsim("compare", instance, instance, "--allocator", "linear_scan", "--allocator", "exact")
    lines = [line.split() for line in done.stdout.splitlines()]

    assert done.returncode == 0
    assert [line[0] for line in lines].count("exact") == 2  # a file given twice is one problem
    assert [line[-1] for line in lines if line[0] == "exact"][:1] == ["optimal"]


def test_compare_prints_one_json_document(instance):
    done = allocsim("compare", instance, "--json", "--allocator", "reference")
    (row,) = json.loads(done.stdout)["rows"]

    assert (row["planner"], row["sound"], row["ratio"] > 1, row["file"]) == ("reference", True, True, str(instance))


def test_compare_fails_where_a_plan_is_unsound_or_missing(instance, tmp_path):
    planned = tmp_path / "bad.csv"
    planned.write_text("id,lower,upper,size,offset\na,0,2,4,0\nb,1,3,4,2\n")
    done = allocsim("compare", planned, "--allocator", "exact")

    assert done.returncode == 1
    assert "UNSOUND" in done.stdout
    (tmp_path / "broken.py").write_text("def plan(problem):\n    raise ValueError('no')\n")
    environment = subprocess.run(
        [sys.executable, "-m", "allocsim", "compare", instance, "--allocator", "broken:plan"],
        capture_output=True, text=True, check=False, cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    assert environment.returncode == 1
    assert "failed\n  broken:plan: allocator 'broken:plan' raised ValueError: no" in environment.stdout


def test_compare_draws(instance, tmp_path):
    picture = tmp_path / "x.png"

    assert allocsim("compare", instance, "--allocator", "reference", "--plot", picture).returncode == 0
    assert picture.read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("compare", "{tmp}/none.csv"), "none.csv: cannot be read"),
        (("compare", "{instance}", "--allocator", "exakt"), "allocator 'exakt' does not exist; did you mean exact"),
        (
            ("compare", "{instance}", "--allocator", "reference", "--plot", "{tmp}/x.gif"),
            "the suffix '.gif' names no format",
        ),
        (("compare",), "Missing argument 'FILE...'"),
    ],
)
def test_bad_input_is_one_line_and_status_two(arguments, message, instance, tmp_path):
    done = allocsim(*(argument.format(tmp=tmp_path, instance=instance) for argument in arguments))

    assert done.returncode == 2
    assert message in done.stderr
    assert done.stderr.count("\n") == 1


def test_a_plan_is_stamped_and_beside_another_program_it_is_named(instance, tmp_path):
    out = tmp_path / "planned.json"
    done = allocsim("plan", instance, "--allocator", "exact", "-o", out, "--json")
    document = json.loads(out.read_text())
    stamp = document["plans"][0]["meta"]["fingerprint"]
    assert json.loads(done.stdout)["plans"][0]["fingerprint"] == stamp
    assert "made for" not in allocsim("check", out).stdout

    document["programs"][0]["buffers"][0]["alignment"] = 2
    out.write_text(json.dumps(document))
    said = " ".join(allocsim("check", out).stdout.split())
    assert f"plan 0: was made for another program: its fingerprint is {stamp}" in said
    (entry,) = json.loads(allocsim("check", out, "--json").stdout)["files"]
    assert len(entry["misfits"]) == 1


def test_a_plan_below_the_bound_is_not_left_to_look_good(tmp_path):
    """ggml takes what it knows in place whether or not the program declares it: a smaller arena, and an unsound plan."""
    undeclared = Document.of(program("x = host.write; a = exp x; b = neg a; c = add b x; host.read c"))
    document.write(undeclared, tmp_path / "plan.json")
    done = allocsim("plan", tmp_path / "plan.json", "--allocator", "ggml", "-o", tmp_path / "planned.json")

    assert done.returncode == 0
    assert done.stdout.splitlines()[1] == (
        "  below the bound: buffers that live at once share bytes, or lie in no arena; allocsim check says which"
    )
    assert allocsim("check", tmp_path / "planned.json").returncode == 1
    assert allocsim("plan", tmp_path / "plan.json", "--allocator", "greedy_by_size").stdout.count("\n") == 1
