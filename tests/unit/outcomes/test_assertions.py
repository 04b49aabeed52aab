"""`assert_clean` in anybody's test, and the fixture for pytest, in a pytest of its own."""

import json
import re
from pathlib import Path

import numpy as np
import pytest

import allocsim
from allocsim.errors import ModelError
from allocsim.model import Document, Run
from allocsim.outcomes import baseline, outcome_of
from allocsim.outcomes.verification import document_of
from repro.small.words import belief, plan, program

pytest_plugins = ("pytester",)

MADE = program("x = host.write; a = f x; b = g x; c = h a b; host.read c")
SOUND, WRONG = plan(MADE, "x=0 a=64 b=128 c=192"), plan(MADE, "x=0 a=64 b=64 c=128")


@pytest.mark.parametrize(
    "what",
    [(MADE, SOUND), (MADE, [0, 64, 128, 192]), (SOUND,), (Document.of(SOUND),), ([SOUND, Run.of(SOUND)],)],
    ids=["plan", "offsets", "bare plan", "document", "runs"],
)
def test_whatever_is_a_question_is_answered(what):
    assert allocsim.assert_clean(*what).clean


@pytest.mark.parametrize("what", [MADE, [], 3, None, [MADE]], ids=["program", "nothing", "number", "none", "programs"])
def test_what_is_no_question_is_misuse(what):
    with pytest.raises(ModelError, match="alone cannot be judged"):
        allocsim.assert_clean(what)
    with pytest.raises(ModelError, match="alone cannot be judged"):
        allocsim.verify(what)


def test_one_line_in_a_test_is_verify_whatever_there_is_to_judge():
    believed = belief(MADE)
    for what in (
        (MADE, SOUND),
        (MADE, [0, 64, 128, 192]),
        (SOUND,),
        (Document.of(SOUND),),
        ([SOUND, SOUND],),
        (believed,),
        (believed, SOUND),
    ):
        assert allocsim.verify(*what).clean
    for what in (
        (MADE, WRONG),
        (WRONG,),
        (Document.of(WRONG),),
        ([SOUND, WRONG],),
        (belief(MADE, a=(1, 2)),),
        (believed, WRONG),
    ):
        assert not allocsim.verify(*what).clean


@pytest.mark.parametrize(
    ("slots", "line"),
    [
        ([0, 64], "slots: has 2 entries; the program has 4 buffers"),
        ({9: 0}, "slots[9]: buffer 9 does not exist; there are 4"),
        ({"nope": 0}, "slots['nope']: no buffer is named 'nope'; there are 4"),
        ([0, 64, 128, 1.5], "slots[3]: 1.5 is no whole number"),
        ([0, 64, 128, True], "slots[3]: True is no whole number"),
        ([0, 64, 128, "owm"], "slots[3]: 'owm' is no whole number"),
        ([0, 64, 128, 1 << 63], f"slots[3]: {1 << 63} exceeds 2^62"),
        (3, "slots: 3 is neither a plan nor an offset for each buffer"),
        ("own", "slots: 'own' is neither a plan nor an offset for each buffer"),
    ],
)
def test_what_is_no_offset_is_misuse(slots, line):
    with pytest.raises(ModelError) as caught:
        allocsim.verify(MADE, slots)
    assert str(caught.value) == line


def test_offsets_of_numpy_are_offsets():
    """They must not come out as 0: two buffers at 0 and one at 128 are a plan as well."""
    found = allocsim.plan_of(MADE, np.array([0, 64, 128, 192]))
    assert found.offset.tolist() == [0, 64, 128, 192]
    assert allocsim.plan_of(MADE, {np.int64(1): np.int32(64)}).offset.tolist() == [0, 64, 0, 0]


def test_the_message_shows_the_ops_round_the_fault():
    with pytest.raises(AssertionError, match="the plan is not clean: 2 violations") as caught:
        allocsim.assert_clean(WRONG)
    message = str(caught.value)
    assert message.index("StaleRead: op 3") < message.index("Overlap: ")
    assert "  >      3  h (a, b) -> c  <- reads it late: bytes [0, 32)" in message
    assert caught.value.outcome.new == 2
    assert caught.value.document.plans == (WRONG,)


def test_a_file_is_judged_as_the_command_judges_it(tmp_path):
    allocsim.write(Document.of(WRONG), tmp_path / "plan.json")
    with pytest.raises(allocsim.UncleanError, match="the plan is not clean"):
        allocsim.assert_clean(tmp_path / "plan.json")
    with pytest.raises(allocsim.AllocsimError, match=r"nowhere\.json"):
        allocsim.assert_clean(str(tmp_path / "nowhere.json"))
    assert allocsim.judge_file(tmp_path / "plan.json").status == 1


def test_shown_limits_the_descriptions_and_the_rest_is_a_line_each():
    with pytest.raises(AssertionError) as caught:
        allocsim.assert_clean(WRONG, shown=0)
    assert "<-" not in str(caught.value)
    assert len(re.findall(r"^(?:StaleRead|Overlap): ", str(caught.value), re.MULTILINE)) == 2


def test_what_is_not_listed_is_counted():
    text = "; ".join(["x = host.write", *(f"a{n} = f x" for n in range(30)), *(f"host.read a{n}" for n in range(30))])
    made = program(text)
    with pytest.raises(AssertionError) as caught:
        allocsim.assert_clean(made, [0, *[64] * 30])
    count = caught.value.outcome.new
    assert str(caught.value).endswith(f"and {count - 20} more")


def test_known_faults_do_not_count_and_a_peak_is_a_gate():
    known = {finding.fingerprint for finding in outcome_of("", document_of(WRONG)).findings}
    assert not allocsim.assert_clean(WRONG, known=known).clean
    assert allocsim.assert_clean(SOUND, max_peak=256).clean
    with pytest.raises(AssertionError, match="needs 256 bytes; at most 255 are allowed"):
        allocsim.assert_clean(SOUND, max_peak=255)


PLANNER_TESTS = """
import allocsim

def made():
    b = allocsim.ProgramBuilder("step")
    x, y, z = (b.tensor(name, "f32", (8,)) for name in "xyz")
    b.op("host.write", (), (x,))
    b.op("neg", (x,), (y,))
    b.op("add", (x, y), (z,))
    b.op("host.read", (z,), ())
    return b.build()

def test_sound(allocsim_check):
    assert allocsim_check(made(), [0, 32, 64]).clean

def test_wrong(allocsim_check):
    allocsim_check(made(), [0, 0, 64])
"""


@pytest.fixture
def run(pytester, monkeypatch):
    """Run pytest on the tests of a planner, with the plugin and more arguments."""
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[3]))
    pytester.makepyfile(PLANNER_TESTS)
    return lambda *arguments: pytester.runpytest_subprocess(
        "-p", "allocsim.outcomes.pytest_plugin", "-p", "no:cacheprovider", *arguments
    )


def test_the_fixture_fails_a_test_with_the_ops_round_the_fault(run):
    result = run()
    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines(
        ["E *StaleRead: op 2 'add' reads bytes*", "E *> *2  add (x, y) -> z  <- reads it late*"]
    )
    result.stdout.no_fnmatch_line("*def assert_clean*")  # the frames of the plugin are not shown


def test_the_options_of_a_run_reach_every_check(run, pytester):
    run("--allocsim-max-peak=0.09KiB").assert_outcomes(failed=2)
    run("--allocsim-save=out").assert_outcomes(passed=1, failed=1)
    saved = allocsim.read(pytester.path / "out" / "test_wrong.json")
    assert not allocsim.check(saved).clean
    assert len(saved.programs[0].ops) <= 3
    space = {}
    exec((pytester.path / "out" / "test_wrong_test.py").read_text(), space)
    space["test_the_fault_is_found"]()


@pytest.mark.parametrize(
    ("option", "line"),
    [
        ("--allocsim-baseline=nobody.json", "ERROR: nobody.json: cannot be read: No such file or directory"),
        ("--allocsim-baseline=other.json", "ERROR: other.json: is no file of known faults: *"),
        ("--allocsim-max-peak=much", "ERROR: 'much' is no number of bytes; write 4096, 64KiB or 2GiB"),
    ],
)
def test_an_option_that_cannot_be_read_ends_the_run_in_a_line_before_any_test(run, pytester, option, line):
    (pytester.path / "other.json").write_text('{"format": "allocsim"}')
    result = run(option)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines([line])
    assert "Traceback" not in result.stderr.str()


def test_a_baseline_silences_what_is_known(run, pytester):
    space = {}
    exec(PLANNER_TESTS, space)
    wrong = outcome_of("", document_of(space["made"](), [0, 0, 64]))
    (pytester.path / "known.json").write_bytes(baseline.dumps([wrong]))
    run("--allocsim-baseline=known.json").assert_outcomes(passed=2)
    assert json.loads((pytester.path / "known.json").read_text())["format"] == "allocsim-baseline"
