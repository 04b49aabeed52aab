"""The library of small scenarios: what each must get, how a user adds one, what the matrix says
where an answer differs.
"""

import json
import pickle
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from expected import agree, refused
from gallery import page

from allocsim.cli import main
from allocsim.errors import ModelError, UnknownNameError
from allocsim.verdict import CLASSES
from repro import scenarios
from repro.commands.matrix import MARKS, row_of
from repro.commands.small_words import tale
from repro.scenario import SmallScenario
from repro.small.answers import DETECTORS
from repro.small.small_document import SmallDocument, document
from repro.small.words import program
from repro.small_runs import run

PAGE = Path(__file__).parents[3] / "docs" / "scenarios.md"
NAMED_IN_PUBLIC = {
    "reduce-scatter-output": "pytorch/pytorch/pull/180665",
    "wrong-stream-gradient": "NVIDIA/Megatron-LM/pull/6187",
    "freed-gathered-weights": "NVIDIA/Megatron-LM/issues/5788",
    "sent-activation": "NVIDIA/Megatron-LM/pull/4047",
    "double-buffer": "NVIDIA/Megatron-LM/pull/5222",
    "reuse-chain": "microsoft/onnxruntime/pull/32466",
    "stale-plan": "ggml-org/llama.cpp/issues/28448",
    "read-only-mutation": "pytorch/pytorch/issues/183575",
}

WORKED_OUT = {
    "rmsnorm-back-30": ("C04", "ggml-org/ggml/issues/1501"),
    "softmax-back-partial-pin": ("C04", "ggml-org/ggml/pull/1521"),
    "dropped-reader": ("C01", "ggml-org/ggml/issues/1501"),
    "match-cast": ("C02", "apache/tvm/issues/20190"),
    "nested-alias": ("C02", "pytorch/pytorch/issues/100314"),
    "duplicate-operand": ("C03", "libxsmm/tpp-mlir/pull/588"),
    "saved-activation-order": ("C09", "nntile/nntile/pull/371"),
    "pin-on-view": ("C05", "tetherto/qvac-fabric-llm.cpp/pull/232"),
    "escaping-grad": ("C07", "tinygrad/tinygrad/issues/16571"),
    "index-leaf": ("C06", "matz/spinel/issues/1449"),
    "encoder-result": ("C07", "ggml-org/whisper.cpp/pull/1964"),
    "stale-plan": ("C08", "ggml-org/llama.cpp/issues/28448"),
    "train-infer-train": ("C08", "apache/mxnet/pull/16553"),
    "inputless-split": ("C09", "ggml-org/llama.cpp/pull/26040"),
    "parallel-in-place": ("C09", "microsoft/onnxruntime/issues/7633"),
    "n-copies": ("C10", "ggml-org/llama.cpp/pull/14855"),
    "donation-order": ("C11", "jax-ml/jax/issues/39625"),
    "tail-free": ("C12", "ggml-org/llama.cpp/pull/17884"),
    "double-free": ("C13", "pytorch/pytorch/pull/103720"),
    "padded-attention": ("C14", "ggml-org/whisper.cpp/pull/3941"),
    "two-conds": ("C15", "pytorch/executorch/issues/21490"),
}
"""The 21 bugs that the catalogue works out, each with the class that the verdict must name and its
link.
"""

OWN = """
from repro import SmallDocument, SmallScenario

SCENARIO = SmallScenario(
    name="my-bug",
    title="a second buffer lies on the first",
    source="https://example.com/my/bug",
    story="Two buffers that are both needed share bytes.",
    sound=SmallDocument(text="x = host.write; a = f x; b = g x; c = h b a; host.read c", slots="a=0 b=64"),
    place="placement",
    change={"slots": "a=0 b=0"},
    expected=(("C12", "plan"),),
    reports={"S": "StaleRead Overlap LifetimeIgnored", "P": "StaleRead", "D": "operand"},
    not_run="H R",
    caught="A replay of the plan.",
)
"""


@pytest.fixture
def own(tmp_path):
    """A scenario in a file of the user's own."""
    path = tmp_path / "my_bug.py"
    path.write_text(OWN)
    return path


@pytest.fixture
def two(monkeypatch):
    """A library of two small scenarios, for what is said of all."""
    monkeypatch.setattr(scenarios, "MODULES", {})
    monkeypatch.setattr(scenarios, "ON_GGML", {})
    monkeypatch.setattr(scenarios, "SMALL", {"match-cast": "match_cast", "double-buffer": "double_buffer"})


# --- the library ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", scenarios.SMALL)
def test_every_detector_answers_as_expected_and_the_twin_is_clean(name: str):
    result = run(scenarios.find_small(name))
    assert result.differs == ()
    assert result.matches
    assert row_of(result, name).differs == ()


def test_the_library_is_large_and_has_every_class_and_every_bug_that_was_asked_for():
    every = scenarios.every_small()
    assert len(every) >= 45
    assert {class_ for s in every for class_, _ in s.expected} >= set(CLASSES) - {"unknown"}
    assert all(scenarios.find_small(name).source.endswith(link) for name, link in NAMED_IN_PUBLIC.items())
    assert all(s.source.startswith("https://") and s.story and s.caught for s in every)


@pytest.mark.parametrize("name", WORKED_OUT)
def test_each_bug_that_the_catalogue_works_out_is_a_scenario_with_switch_and_twin(name: str):
    scenario = scenarios.find_small(name)
    class_, link = WORKED_OUT[name]
    assert scenario.source.endswith(link)
    assert class_ in {named for named, _ in scenario.expected}
    assert scenario.change
    assert scenario.faulty != scenario.sound
    assert set(scenario.answers) == set(DETECTORS)


def test_every_scenario_of_any_kind_says_what_would_have_caught_it():
    every = (*scenarios.every(), *scenarios.every_on_ggml(), *scenarios.every_small())
    assert [s.name for s in every if not s.caught] == []


def test_a_scenario_has_the_name_of_its_row_and_no_name_is_taken_twice():
    names = [*scenarios.MODULES, *scenarios.ON_GGML, *scenarios.SMALL]
    assert len(set(names)) == len(names)
    assert [scenarios.find_any(name).name for name in names] == names
    assert len({s.title for s in scenarios.every_small()}) == len(scenarios.SMALL)
    assert all(pickle.loads(pickle.dumps(s)) == s for s in scenarios.every_small())


def test_a_defect_is_a_change_and_nothing_else():
    for scenario in scenarios.every_small():
        changed = {name for name in scenario.change if getattr(scenario.sound, name) != scenario.change[name]}
        assert changed == set(scenario.change), scenario.name


def test_the_gallery_is_what_the_tables_say():
    agree(PAGE, page())


# --- answers that differ --------------------------------------------------------------------------------------------------

MATCH_CAST = scenarios.find_small("match-cast")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"reports": {**MATCH_CAST.reports, "S": "StaleRead"}}, "faulty: S says Overlap StaleRead, expected StaleRead"),
        ({"reports": {**MATCH_CAST.reports, "K": "unsafe"}}, "faulty: K says nothing, expected unsafe"),
        ({"not_run": "R"}, "faulty: H says not run, expected nothing"),
        ({"not_run": "H R K"}, "faulty: K says nothing, expected not run"),
        ({"expected": (("C01", "plan"),)}, "faulty: the verdict names C02 plan, expected C01 plan"),
        ({"sound": MATCH_CAST.faulty}, "twin: S says Overlap StaleRead, expected nothing"),
    ],
)
def test_each_answer_that_differs_is_said_and_the_row_differs(change, said):
    result = run(replace(MATCH_CAST, **change))
    assert said in result.differs
    assert not result.matches
    assert row_of(result, "match-cast").differs == result.differs


@pytest.mark.parametrize(
    ("expected", "answers", "differs"),
    [
        ((("C04", "kernel"),), "S· L· H- R· P- D● K●", ()),
        ((("C04", "kernel"),), "S· L· H- R· P- D· K●", ("D reports nothing, expected: reports",)),
        ((("C04", "kernel"),), "S· L· H- R· P· D● K●", ("P reports nothing, expected: is not run",)),
        ((), "S· L· H- R· P- D· K●", ()),
        ((), "S· L· H- R· P- D● K●", ("D reports, expected: reports nothing",)),
    ],
)
def test_training_on_ggml_is_held_to_what_its_scenario_states_of_ggml(expected, answers, differs):
    statuses = {"●": "violations", "·": "clean", "-": "not run"}
    verdict = SimpleNamespace(joint=(), detectors={word[0]: {"status": statuses[word[1]]} for word in answers.split()})
    scenario = scenarios.find("ggml-1501")
    result = SimpleNamespace(which="after", scenario=scenario, expected=expected, matches=True, verdict=verdict)
    assert row_of(result, scenario.name).differs == differs


def test_a_twin_that_nobody_looked_at_is_not_clean():
    result = run(replace(MATCH_CAST, sound=replace(MATCH_CAST.sound, believed=None)))
    assert "twin: L says not run, expected nothing" in result.differs


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"place": "nowhere"}, "place: 'nowhere' is none of belief"),
        ({"change": {"slot": "a=0"}}, "change: 'slot' is none of"),
        ({"reports": {"X": "StaleRead"}}, "reports: 'X' is none of"),
        ({"reports": {"S": "StaleReed"}}, "reports: S: 'StaleReed' is none of AllocOverLive"),
        ({"reports": {"S": "BadShare"}}, "reports: S: 'BadShare' is none of"),
        ({"reports": {"K": "clean"}}, "reports: K: 'clean' is none of unsafe"),
        ({"not_run": "H P"}, "P is in `reports` too; a detector can be in one of the two"),
        ({"reports": {}}, "a scenario needs a cause and a report"),
        ({"expected": ()}, "a scenario needs a cause and a report"),
        ({"expected": ("C05", "plan")}, r"expected: \('C05', 'plan'\) is no tuple"),
        ({"expected": (("C5", "plan"),)}, "expected: 'C5' is none of C01"),
        ({"expected": (("C05", "planner"),)}, "expected: 'planner' is none of caller"),
        ({"not_run": ["H", "R"]}, r"not_run: \['H', 'R'\] is no"),
    ],
)
def test_what_could_never_be_met_is_refused_at_once(change, said):
    with pytest.raises(ModelError, match=said):
        replace(MATCH_CAST, **change)


# --- the command line -----------------------------------------------------------------------------------------------------


def test_a_file_of_ones_own_is_run_and_shown(own, capsys):
    assert main(["repro", "run", str(own)]) == 0
    assert "as expected" in capsys.readouterr().out
    assert main(["repro", "show", str(own)]) == 0
    said = capsys.readouterr().out
    assert "slots: a=0 b=64 -> a=0 b=0" in said
    assert said.endswith("what would have caught it: A replay of the plan.\n")


def test_a_file_whose_expectation_is_wrong_exits_1_and_says_what_differs(own, capsys):
    own.write_text(OWN.replace('"D": "operand"', '"D": "result"'))
    assert main(["repro", "run", str(own)]) == 1
    said = capsys.readouterr().out
    assert "faulty: D says operand, expected result" in said
    assert "NOT as expected" in said


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "has no SCENARIO"),
        ("SCENARIO = 3", "has no SCENARIO"),
        ("x = (", "cannot be run: SyntaxError"),
        ("raise ValueError('two\\nlines')", "cannot be run: ValueError"),
        (OWN.replace("h b a", "h b &a"), "'&a' is no value"),
        (OWN.replace('"a=0 b=64"', '"q=0"'), "'q' is no buffer"),
        (
            OWN.replace('{"slots"', '{"share": "a-b", "slots"'),
            "share: 'a-b': a pair is `a>b`, b may take the slot of a",
        ),
        (OWN.replace('"placement"', '"moon"'), "'moon' is none of"),
        (OWN.replace('{"slots"', '{"believed": {"q": (1, 2)}, "slots"'), "believed: 'q' is no buffer; there are x, a"),
        (OWN.replace('{"slots"', '{"believed": {"a": 3}, "slots"'), "believed: {'a': 3} is no Mapping[str"),
        (OWN.replace('{"slots"', '{"runs": (0,), "slots"'), "runs: (0,) is no tuple"),
        (OWN.replace('{"slots"', '{"roles": {"a": "state"}, "slots"'), "roles: {'a': 'state'} is no Mapping"),
        (OWN.replace('{"slots"', '{"roles": {"a": "state"}, "slots"'), "a Role is one of Role.TEMPORARY, Role.INPUT"),
        (OWN.replace("h b a", "h b &a"), "my-bug, twin.program: '&a'"),
        (OWN.replace('"a=0 b=0"', '"q=0"'), "my-bug, faulty.words: 'q' is no buffer"),
        (
            "from repro import Role\n" + OWN.replace('{"slots"', '{"roles": {"z": Role.STATE}, "slots"'),
            "my-bug, faulty.roles: no op of program 'p' names 'z'",
        ),
    ],
)
def test_a_file_that_is_no_scenario_is_refused_in_one_line(text, said, own, capsys):
    own.write_text(text)
    assert said in refused(capsys, "repro", "run", own)


def test_bad_usage_is_one_line_and_exit_2(tmp_path, capsys):
    assert "is no Python file" in refused(capsys, "repro", "run", tmp_path / "none.py")
    assert "cannot be joined" in refused(capsys, "repro", "run", "ggml-1501+match-cast")
    assert "one size" in refused(capsys, "repro", "run", "match-cast", "--layers", "2")
    assert "runs on the engine" in refused(capsys, "repro", "run", "match-cast", "--runtime", "ggml")
    assert "--jobs goes with --all" in refused(capsys, "repro", "run", "match-cast", "--jobs", "2")
    assert "did you mean match-cast" in refused(capsys, "repro", "run", "match-casts")


def test_show_tells_the_story_with_both_plans_and_list_has_them_all(capsys):
    assert main(["repro", "show", "match-cast"]) == 0
    said = capsys.readouterr().out
    before, after = said.split("with it:")
    assert "'r' (buffer 2): 64 bytes in cpu[64, 128)" in before
    assert "'r' (buffer 2): 64 bytes in cpu[0, 64)" in after
    assert MATCH_CAST.source in before
    assert MATCH_CAST.caught in " ".join(after.split())  # paragraphs are wrapped
    assert all(len(line) <= 80 for line in said.splitlines() if line.startswith("A storage") or "caught" in line)
    assert main(["repro", "show", "double-buffer"]) == 0
    assert "op 5: g2 = wgrad3 x ^2 -> g2 = wgrad3 x\n" in capsys.readouterr().out
    assert main(["repro", "list", "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)["scenarios"]
    assert [s["name"] for s in listed if s["runtime"] == "small"] == list(scenarios.SMALL)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("n-copies", "runs: run 0: none, run 1: none -> run 0: op 1, run 1: op 0"),
        ("encoder-result", "slots: e=0 q=64 t=128 y=192 -> e=0 q=64 t=0 y=192"),
        ("train-infer-train", "(p/q: the program p on the plan of q)"),
    ],
)
def test_a_defect_is_told_in_words_that_fit_a_terminal(name: str, words: str):
    lines = list(tale(scenarios.find_small(name)))
    assert f"  {words}" in lines
    assert all(len(line) <= 80 for line in lines)


def test_show_marks_the_ops_at_fault_and_draws_them(tmp_path, capsys, monkeypatch):
    assert main(["repro", "show", "match-cast", "--plot", str(tmp_path / "x.svg")]) == 0
    said = capsys.readouterr().out
    before, after = said.split("with it:")
    assert "<-" not in before
    assert [line.split("<- ")[1] for line in after.splitlines() if "<- " in line] == [
        "made what is lost", "took the bytes", "reads it late",
    ]  # fmt: skip
    assert (tmp_path / "x.svg").read_bytes().startswith(b"<?xml")
    assert main(["repro", "show", "double-buffer"]) == 0
    said = capsys.readouterr().out
    assert "reads it, in no order" in said
    assert "late" not in said.split("the defect,")[0].split("with it:")[1]
    monkeypatch.setattr("repro.commands.repro._sides", None)  # refused before anything is run
    assert "names no format" in refused(capsys, "repro", "show", "match-cast", "--plot", tmp_path / "x.jpg")


def test_the_gallery_has_the_story_answers_and_picture_of_each(own, tmp_path, capsys):
    page = tmp_path / "gallery.html"
    assert main(["repro", "gallery", "match-cast", str(own), "-o", str(page)]) == 0
    text = page.read_text()
    assert text.count('<section id="') == text.count("data:image/png;base64,") == 2
    for words in (
        MATCH_CAST.source,
        "What would have caught it",
        "● must report",
        'href="#my-bug"',
        "C12 plan",
        "<script></script>",
    ):
        assert words in text
    capsys.readouterr()
    assert "names no page" in refused(capsys, "repro", "gallery", "match-cast", "-o", tmp_path / "x.png")
    assert not (tmp_path / "x.png").exists()


@pytest.mark.usefixtures("two")
def test_all_prints_a_row_for_each_scenario_and_a_cell_for_each_detector(capsys):
    assert main(["repro", "run", "--all"]) == 0
    lines = capsys.readouterr().out.splitlines()
    cells = dict(zip(DETECTORS, lines[1].split()[2:], strict=False))
    assert cells == {letter: MARKS[None if letter in "HR" else letter in "SLPD"] for letter in DETECTORS}
    assert [line.split()[0] for line in lines[1:3]] == ["match-cast", "double-buffer"]
    assert lines[-1].endswith("none differs from what is expected")


@pytest.mark.usefixtures("two")
def test_the_matrix_is_drawn_too(tmp_path, capsys):
    assert main(["repro", "run", "--all", "--plot", str(tmp_path / "matrix.svg")]) == 0
    assert (tmp_path / "matrix.svg").read_bytes().startswith(b"<?xml")
    capsys.readouterr()
    assert "names no format" in refused(capsys, "repro", "run", "--all", "--plot", tmp_path / "matrix.gif")
    assert "--plot goes with --all" in refused(capsys, "repro", "run", "match-cast", "--plot", tmp_path / "m.png")


@pytest.mark.usefixtures("two")
def test_a_cell_that_differs_fails_the_matrix(monkeypatch, capsys):
    wrong = replace(MATCH_CAST, reports={"S": "StaleRead Overlap"})
    monkeypatch.setattr(scenarios, "find_small", lambda name: wrong if name == wrong.name else None)
    monkeypatch.setattr(scenarios, "SMALL", {wrong.name: "match_cast"})
    assert main(["repro", "run", "--all"]) == 1
    said = capsys.readouterr().out
    assert "DIFFERS" in said
    assert "match-cast: faulty: P says StaleRead, expected nothing" in said
    assert "1 rows differ" in said
    assert main(["repro", "run", "--all", "--json"]) == 1
    printed = json.loads(capsys.readouterr().out)
    assert printed["matrix"][0]["differs"] == printed["runs"][0]["differs"] != []


@pytest.mark.slow
def test_a_report_of_ones_own_scenario_is_written(own, tmp_path):
    assert main(["repro", "run", str(own), "--out", str(tmp_path / "report")]) == 0
    assert {"report.json", "report.md", "figures"} <= {entry.name for entry in (tmp_path / "report").iterdir()}


@pytest.mark.slow
@pytest.mark.usefixtures("two")
def test_several_processes_print_the_same_matrix(capsys):
    printed = []
    for workers in ("1", "2"):
        assert main(["repro", "run", "--all", "--jobs", workers]) == 0
        printed.append(capsys.readouterr().out)
    assert printed[0] == printed[1]


# --- the words ------------------------------------------------------------------------------------------------------------


def test_runs_follow_their_order_each_by_the_plan_that_is_named():
    one, other = "x = host.write; y = f x; host.read y", "x = host.write; y = g x; host.read y"
    small = SmallDocument(text=one, others={"q": SmallDocument(text=other)}, order="p q p/q")
    first, second, third = document(small).runs
    assert first.program is first.plan.program
    assert second.program is second.plan.program
    assert (third.program, third.plan) == (first.program, second.plan)
    with pytest.raises(ModelError, match="no program 'r'"):
        document(replace(small, order="p r"))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("x = host.write; y = f-g x", "'f-g' is no op"),
        ("x = host.write; y = f x,y", "'x,y' is no value"),
        ("v:b = host.write", "'b' is no buffer so far"),
        ("x =", "an op is `results = kind operands`"),
    ],
)
def test_a_word_that_is_none_is_named(text, said):
    with pytest.raises(ModelError, match=said):
        program(text)


def test_a_misdeed_that_is_none_is_named():
    with pytest.raises(UnknownNameError, match="misdeed 'two_passes' does not exist; did you mean two_pass"):
        run(replace(scenarios.find_small("rms-norm-back"), change={"kernels": {"norm": "two_passes"}}))


def test_a_scenario_is_data_that_no_detector_sees():
    """What is asked of the engine and of the judge is built of the document alone."""
    sources = Path(run.__code__.co_filename).parent / "small"
    assert not any("repro.scenario" in path.read_text() for path in sources.glob("*.py"))
    assert SmallScenario.__dataclass_params__.frozen
