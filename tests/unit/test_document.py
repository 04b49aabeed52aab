"""The native document: defaults, places, limits, and what is written."""

import copy
import inspect
import json
import re
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from columns import difference

import allocsim
from allocsim import document
from allocsim.document import rows
from allocsim.errors import DocumentError, OutputError
from allocsim.model import DTYPES, OWN, UNPLACED, Arena, Document, Plan, Problem, Role, Run
from allocsim.programs.builder import ProgramBuilder

BASE = {
    "format": "allocsim",
    "version": 1,
    "programs": [
        {
            "name": "p",
            "buffers": [{"name": "x", "nbytes": 256}, {"name": "y", "nbytes": 256}],
            "values": [
                {"name": "x", "buffer": 0, "dtype": "f32", "shape": [8, 8]},
                {"name": "y", "buffer": 1, "dtype": "f32", "shape": [8, 8]},
            ],
            "ops": [
                {"name": "up", "kind": "host.write", "operands": [], "results": [0]},
                {"name": "mul", "kind": "mul", "operands": [0, 0], "results": [1], "in_place": [[0, 0]]},
            ],
        }
    ],
    "problems": [{"program": 0, "start": [0, 1], "stop": [2, 2]}],
    "plans": [{"program": 0, "slots": [{"arena": 0, "offset": 0, "nbytes": 256}, "own"]}],
}
PROGRAM = ("programs", 0)


def loads(tree):
    return document.loads(json.dumps(tree), "f.json")


def with_change(path, value):
    tree = copy.deepcopy(BASE)
    node = tree
    for key in path[:-1]:
        node = node[key]
    node[path[-1]] = value
    return tree


def test_defaults_are_those_of_the_format():
    found = loads(BASE)
    program = found.programs[0]
    assert program.arenas == (Arena(name="cpu", alignment=32, capacity=None),)
    assert program.streams == ("main",)
    assert program.buffers.alignment.tolist() == [32, 32]
    assert program.buffers.arena.tolist() == [0, 0]
    assert program.buffers.role.tolist() == [Role.TEMPORARY, Role.TEMPORARY]
    assert not program.buffers.read_only.any()
    assert program.values[0].strides == (32, 4)
    assert program.values[0].offset == 0
    assert program.ops[0].in_place == ()
    assert program.ops[1].stream == 0
    assert program.ops[1].after == ()
    problem = found.problems[0]
    assert problem.nbytes.tolist() == [256, 256]
    assert not problem.pinned.any()
    assert problem.order.tolist() == [0, 1]
    assert problem.may_share.shape == (0, 2)
    assert found.plans[0].problem is None
    assert found.plans[0].arena.tolist() == [0, OWN]
    assert found.session is None
    assert [run.plan for run in found.runs] == [found.plans[0]]


def test_own_defaults_to_parameters_and_state():
    found = loads(with_change((*PROGRAM, "buffers", 1, "role"), "state"))
    assert found.problems[0].own.tolist() == [False, True]


def test_order_defaults_to_start_then_index():
    tree = with_change(("problems", 0), {"program": 0, "start": [1, 0], "stop": [2, 2]})
    assert loads(tree).problems[0].order.tolist() == [1, 0]


def test_alignment_defaults_to_that_of_the_buffers_arena():
    tree = with_change((*PROGRAM, "buffers", 1, "arena"), 1)
    tree["arenas"] = [{"name": "a", "alignment": 4}, {"name": "b", "alignment": 64, "capacity": 1024}]
    found = loads(tree)
    assert found.programs[0].buffers.alignment.tolist() == [4, 64]
    assert [arena.capacity for arena in found.arenas] == [None, 1024]


def test_in_place_null_means_that_nobody_knows():
    found = loads(with_change((*PROGRAM, "ops", 1, "in_place"), None))
    assert found.programs[0].ops[1].in_place is None
    assert found.programs[0].ops[0].in_place == ()


def test_a_session_run_takes_another_program_and_skips_uploads():
    tree = copy.deepcopy(BASE)
    tree["programs"].append(copy.deepcopy(tree["programs"][0]))
    tree["session"] = [{"plan": 0}, {"plan": 0, "program": 1, "skip": [0]}]
    first, second = loads(tree).runs
    assert first.program is first.plan.program
    assert second.program is not second.plan.program
    assert second.skip == (0,)


def test_a_byte_order_mark_is_passed_over():
    assert document.loads(b"\xef\xbb\xbf" + json.dumps(BASE).encode()).programs[0].name == "p"


PLACES = [
    # path, value, complaint
    ((*PROGRAM, "ops", 1, "operands", 1), 99, "programs[0].ops[1].operands[1]: value 99 does not exist; there are 2"),
    (
        (*PROGRAM, "ops", 1, "operands", 1),
        1 << 40,
        f"programs[0].ops[1].operands[1]: value {1 << 40} does not exist; there are 2",
    ),
    ((*PROGRAM, "ops", 1, "operands", 1), -1, "programs[0].ops[1].operands[1]: -1 is below 0"),
    ((*PROGRAM, "ops", 1, "operands", 1), 1 << 63, f"programs[0].ops[1].operands[1]: {1 << 63} exceeds 2^62"),
    (
        (*PROGRAM, "ops", 1, "operands", 1),
        10**300,
        "programs[0].ops[1].operands[1]: a number of 301 digits exceeds 2^62",
    ),
    ((*PROGRAM, "ops", 1, "operands", 1), 1.0, "programs[0].ops[1].operands[1]: 1.0 is not an integer"),
    ((*PROGRAM, "ops", 1, "operands", 1), True, "programs[0].ops[1].operands[1]: true is not an integer"),
    ((*PROGRAM, "ops", 1, "operands", 1), "a\nb", 'programs[0].ops[1].operands[1]: "a\\nb" is not an integer'),
    ((*PROGRAM, "ops", 1, "operands"), None, "programs[0].ops[1].operands: null is not a list"),
    (
        (*PROGRAM, "ops", 1, "oprands"),
        [],
        "programs[0].ops[1]: has the unknown key \"oprands\"; did you mean 'operands'?",
    ),
    (
        (*PROGRAM, "ops", 0, "color"),
        [],
        (
            'programs[0].ops[0]: has the unknown key "color"; '
            "the keys here are name kind operands results in_place stream after meta; your own go into `meta`"
        ),
    ),
    ((*PROGRAM, "ops", 1), {"name": "m"}, "programs[0].ops[1]: has no 'kind', which is required"),
    (
        (*PROGRAM, "ops", 1, "in_place"),
        [[0, 1]],
        "programs[0].ops[1].in_place[0]: result position 1 does not exist; there are 1",
    ),
    (
        (*PROGRAM, "ops", 1, "in_place"),
        [[0, 1 << 35]],
        f"programs[0].ops[1].in_place[0]: position {1 << 35} does not exist",
    ),
    ((*PROGRAM, "ops", 1, "in_place"), [[0]], "programs[0].ops[1].in_place[0]: has 1 entries; 2 are needed"),
    ((*PROGRAM, "ops", 1, "stream"), 1, "programs[0].ops[1].stream: stream 1 does not exist; there are 1"),
    ((*PROGRAM, "ops", 1, "stream"), 1 << 33, f"programs[0].ops[1].stream: stream {1 << 33} does not exist"),
    ((*PROGRAM, "ops", 1, "after"), [1], "programs[0].ops[1].after[0]: op 1 is not earlier than op 1"),
    ((*PROGRAM, "ops", 0, "kind"), "view", "programs[0].ops[0]: a view has one operand and one result, not 0 and 1"),
    ((*PROGRAM, "streams"), [], "programs[0].streams: has 0 entries; at least 1 is needed"),
    ((*PROGRAM, "values", 0, "dtype"), "f31", 'programs[0].values[0].dtype: "f31" is none of f64 f32'),
    (
        (*PROGRAM, "values", 0, "shape"),
        [1] * 33,
        "programs[0].values[0].shape: has 33 entries; at most 32 are supported",
    ),
    ((*PROGRAM, "values", 0, "shape"), [1 << 40] * 3, "programs[0].values[0].shape: has more than 2^62 bytes"),
    ((*PROGRAM, "values", 0, "shape"), [1 << 61], "programs[0].values[0]: reaches beyond 2^62 bytes"),
    ((*PROGRAM, "values", 0, "strides"), [4], "programs[0].values[0].strides: has 1 entries; the shape has 2"),
    ((*PROGRAM, "values", 1, "strides"), [0, 4], "programs[0].values[1].strides: a result whose own elements overlap"),
    ((*PROGRAM, "values", 0, "buffer"), 2, "programs[0].values[0].buffer: buffer 2 does not exist; there are 2"),
    ((*PROGRAM, "buffers", 0, "arena"), 3, "programs[0].buffers[0].arena: arena 3 does not exist; there are 1"),
    (
        (*PROGRAM, "buffers", 0, "role"),
        "weight",
        'programs[0].buffers[0].role: "weight" is none of input parameter state temporary',
    ),
    ((*PROGRAM, "buffers", 0, "nbytes"), -1, "programs[0].buffers[0].nbytes: -1 is below 0"),
    ((*PROGRAM, "buffers", 0, "alignment"), 0, "programs[0].buffers[0].alignment: 0 is below 1"),
    ((*PROGRAM, "buffers", 0, "read_only"), 1, "programs[0].buffers[0].read_only: 1 is not true or false"),
    (("arenas",), [], "arenas: there are no arenas; at least one is needed"),
    (("arenas",), [{"alignment": 0}], "arenas[0].alignment: 0 is below 1"),
    (("arenas",), [{"capacity": "4G"}], 'arenas[0].capacity: "4G" is not an integer or null'),
    (("problems", 0, "program"), 1, "problems[0].program: program 1 does not exist; there are 1"),
    (("problems", 0, "start"), [0], "problems[0].start: has 1 entries; the program has 2 buffers"),
    (("problems", 0, "start"), [3, 0], "problems[0].stop[0]: the lifetime [3, 2) ends before it starts"),
    (("problems", 0, "nbytes"), [1], "problems[0].nbytes: has 1 entries; the program has 2 buffers"),
    (("problems", 0, "order"), [0, 0], "problems[0].order: buffer 0 stands in it twice"),
    (("problems", 0, "order"), [0, 2], "problems[0].order[1]: buffer 2 does not exist; there are 2"),
    (("problems", 0, "order"), [0, 1 << 50], f"problems[0].order[1]: buffer {1 << 50} does not exist; there are 2"),
    (("problems", 0, "pinned"), [5], "problems[0].pinned[0]: buffer 5 does not exist; there are 2"),
    (("problems", 0, "own"), [1 << 40], f"problems[0].own[0]: buffer {1 << 40} does not exist; there are 2"),
    (
        ("problems", 0, "may_share"),
        [[0, 1], [0, 1 << 40]],
        f"problems[0].may_share[1][1]: buffer {1 << 40} does not exist",
    ),
    (("problems", 0, "may_share"), [[0, 0]], "problems[0].may_share[0]: buffer 0 is its own donor"),
    (("problems", 0, "fixed"), {"0": 1, "1": "x"}, 'problems[0].fixed.1: "x" is not an integer'),
    (("problems", 0, "fixed"), {"7": 1}, "problems[0].fixed.7: buffer 7 does not exist; there are 2"),
    (("problems", 0, "fixed"), {"01": 1}, "problems[0].fixed.01: is not the index of a buffer"),
    (("problems", 0, "fixed"), {"٣": 1}, "problems[0].fixed.٣: is not the index of a buffer"),
    (("problems", 0, "gaps"), {"0": [[0, 1]], "1": [[3]]}, "problems[0].gaps.1[0]: has 1 entries; 2 are needed"),
    (("problems", 0, "gaps"), {"0": [[5, 1]]}, "problems[0].gaps.0[0]: [5, 1) is not a range of steps"),
    (("plans", 0, "problem"), 7, "plans[0].problem: problem 7 does not exist; there are 1"),
    (("plans", 0, "slots"), [], "plans[0].slots: has 0 entries; the program has 2 buffers"),
    (("plans", 0, "slots", 0), "foo", 'plans[0].slots[0]: "foo" is not a slot; a slot is an object, "own" or null'),
    (("plans", 0, "slots", 0), 3, "plans[0].slots[0]: 3 is not a string, an object or null"),
    (("plans", 0, "slots", 0, "arena"), 1, "plans[0].slots[0].arena: arena 1 does not exist; there are 1"),
    (("plans", 0, "slots", 0, "arena"), -1, "plans[0].slots[0].arena: -1 is below 0"),
    (("plans", 0, "events"), [[0, "use", 1]], 'plans[0].events[0][1]: "use" is neither alloc nor free'),
    (("plans", 0, "events"), [[0, "alloc", 7]], "plans[0].events[0][2]: buffer 7 does not exist; there are 2"),
    (("session",), [{"plan": 3}], "session[0].plan: plan 3 does not exist; there are 1"),
    (("session",), [{"plan": 0, "program": 1}], "session[0].program: program 1 does not exist; there are 1"),
    (("session",), [{"plan": 0, "skip": [1]}], "session[0].skip[0]: op 1 is no host.write"),
    (("version",), 3, "version: 3 is not a version this reader knows; it knows 1 and 2"),
    (("format",), "x", 'format: "x" is not "allocsim"'),
    (("meta",), [1], "meta: a list is not an object"),
]


@pytest.mark.parametrize(
    ("path", "value", "complaint"), PLACES, ids=[f"{p[-1]}-{i}" for i, (p, _, _) in enumerate(PLACES)]
)
def test_a_fault_is_told_with_its_exact_place(path, value, complaint):
    with pytest.raises(DocumentError) as error:
        loads(with_change(path, value))
    assert str(error.value).startswith(f"f.json: {complaint}")
    assert "\n" not in str(error.value)


def test_unequal_sizes_of_one_persistent_buffer_are_refused():
    tree = with_change((*PROGRAM, "buffers", 0, "role"), "state")
    tree["programs"].append(copy.deepcopy(tree["programs"][0]))
    tree["programs"][1]["buffers"][0]["nbytes"] = 512
    with pytest.raises(DocumentError) as error:
        loads(tree)
    assert error.value.place == "programs[1].buffers[0].nbytes"


def test_every_level_carries_meta_and_keeps_it():
    tree = copy.deepcopy(BASE)
    meta = {"layer": 3, "stack": ["a", {"b": None}], "big": 10**30, "x": 1.5, "ü": "\u2028"}
    tree["arenas"] = [{"name": "cpu", "alignment": 32, "meta": meta}]
    tree["session"] = [{"plan": 0, "meta": meta}]
    (program,) = tree["programs"]
    for part in (tree, program, program["buffers"][1], program["values"][0], program["ops"][1]):
        part["meta"] = meta
    for part in (tree["problems"][0], tree["plans"][0], tree["plans"][0]["slots"][0]):
        part["meta"] = meta
    found = loads(tree)
    again = json.loads(document.dumps(found))
    assert json.dumps(again).count('"layer": 3') == 10
    assert difference(found, document.loads(document.dumps(found))) is None
    assert found.programs[0].ops.meta == {1: meta}
    assert found.plans[0].slot_meta == {0: meta}


BROKEN = {
    b"": "is empty",
    b" \n ": "is empty",
    b"[]": "starts with '['; a document is a JSON object",
    b"{": "is cut off at line 1, column 2",
    b"\xff": "is not UTF-8: byte 0xff at 0",
    b'{"format": "alloc\xff"}': "is not UTF-8: byte 0xff at 17",
    "{}".encode("utf-16"): "is not UTF-8: byte 0xff at 0",
    b"{}": "has no 'format', which is required",
    b'{"format":"allocsim","version":1} x': "is not JSON: Extra data at line 1, column 35",
    b'{"format":"allocsim",\n "version":1,}': "is not JSON: ",
    b'{"format":"allocsim","version":1,"format":"allocsim"}': 'has the key "format" twice',
    b'{"format":"allocsim","version":1,"meta":{"a":{"b":1,"\\u0062":2}}}': 'meta.a: has the key "b" twice',
    b'{"format":"allocsim","version":1,"meta":{"a":NaN}}': "is not JSON: NaN is not a number",
    b'{"format":"allocsim","version":-Infinity}': "is not JSON: -Infinity is not a number",
    b'{"format":"allocsim","version":1,"meta":{"a":1e999}}': "meta: holds a number that is out of range",
    b'{"format":"allocsim","version":1,"meta":{"a":"\\ud800"}}': "is not JSON: a string contains half of a surrogate pair",
    b'{"format":"allocsim","version":' + b"1" * 9999 + b"}": "version: a number of 9999 digits is out of range",
    b'{"format":"allocsim","version":1,"meta":{"a":' + b"1" * 9999 + b"}}": "meta: holds a number that is out of range",
    b'{"format":"allocsim","version":1,"meta":{"q":' + b"[" * 100_000 + b"]" * 100_000 + b"}}": "is nested too deeply",
    b'{"format":"allocsim","version":1,"meta":{"q":' + b"[" * 100_000: "is nested too deeply",
    b'{"format":"allocsim","version":1,"meta":{"q":'
    + b"[" * 65
    + b"]" * 65
    + b"}}": "meta: is nested deeper than 64 levels",
}


@pytest.mark.parametrize(("data", "complaint"), BROKEN.items(), ids=[str(i) for i in range(len(BROKEN))])
def test_what_is_no_document_is_refused_in_one_line(data, complaint):
    with pytest.raises(DocumentError) as error:
        document.loads(data, "f.json")
    assert str(error.value).startswith(f"f.json: {complaint}")
    assert "\n" not in str(error.value)


def test_a_repeated_key_is_found_at_its_place():
    text = json.dumps(BASE).replace('"nbytes": 256}', '"nbytes": 256, "nbytes": 3}', 1)
    with pytest.raises(DocumentError, match=r'f\.json: programs\[0\]\.buffers\[0\]: has the key "nbytes" twice'):
        document.loads(text, "f.json")


@pytest.mark.parametrize("piece", [1, 40, 1 << 22])
@pytest.mark.parametrize(
    "meta",
    ['{"a:b":":::","c":[":",{"d":":"}]}', '{"a\\":":1,"a":":\\"b\\":"}', '{"a":{},"b":[[],[{}],{"a":null}],"a ":1e3}', '{"\\u003a":"\\u003A"}'],
)  # fmt: skip
def test_keys_are_told_apart_by_what_they_say_and_colons_in_strings_are_none(meta, piece, monkeypatch):
    """As they are, and with one key of the `meta` repeated, in objects taken whole and in pieces."""
    monkeypatch.setattr("allocsim.document.decoding.PIECE", piece)
    text = f'\n {json.dumps(BASE, indent=1)[:-1]}, "meta" : {meta}\n}}'
    assert document.loads(text).meta == json.loads(meta)

    key = json.dumps(next(iter(json.loads(meta))))
    with pytest.raises(DocumentError, match=r"meta: has the key .* twice"):
        document.loads(text.replace(meta, f"{meta[:-1]}, {key} :2}}"))


def test_a_document_beyond_the_limit_is_refused(monkeypatch):
    monkeypatch.setattr("allocsim.document.decoding.MAX_BYTES", 100)
    with pytest.raises(DocumentError, match="is larger than 0 MiB"):
        document.loads(b"{" + b" " * 100)


def test_no_more_is_read_of_a_file_that_does_not_start_like_a_document(tmp_path):
    path = tmp_path / "zeros"
    with path.open("wb") as file:
        file.truncate(1 << 33)
    tracemalloc.start()
    with pytest.raises(DocumentError, match="a document is a JSON object"):
        document.read(path)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 1 << 20


def test_a_missing_file_is_refused_by_its_name(tmp_path):
    with pytest.raises(DocumentError, match=r"nothing\.json: cannot be read: No such file"):
        document.read(tmp_path / "nothing.json")


def example():
    b = ProgramBuilder(
        "p", arenas=(Arena(name="a", alignment=4), Arena(name="b", capacity=9)), streams=("m", "n"), meta={"k": 1}
    )
    x = b.tensor("x", "f32", (2, 3), role=Role.INPUT, alignment=8, read_only=True)
    s = b.tensor("s", "i8", (), role=Role.STATE, arena=1)
    y = b.tensor("y", "f32", (2, 3))
    b.op("host.write", (), (x,))
    flip = b.view(x, "flip", (3, 2), strides=(4, 12), offset=0)
    b.op("mul", (flip, s, flip), (y,), in_place=None, stream=1, after=(0, 1), name='"\n\u00e9')
    b.op("host.read", (y,), ())
    program = b.build()
    problem = Problem.of(
        program, start=[0, 0, 2], stop=[3, 4, 4], pinned=[2], own=[], order=[2, 1, 0], may_share=[[0, 2]], fixed={2: -8},
        gaps={0: ((1, 2),)}, nbytes=[24, 8, 24],
    )  # fmt: skip
    plan = Plan(
        program=program,
        problem=problem,
        source="by hand",
        arena=np.array([0, OWN, UNPLACED], dtype=np.int32),
        offset=np.array([-4, 0, 0]),
        nbytes=np.array([24, 0, 0]),
        events=np.array([[0, 0, 0], [3, 1, 0]]),
    )
    return Document.of(problem, plan, Run.of(plan), Run.of(plan, skip=(0,)))


GOLDEN = """\
{"format": "allocsim", "version": 1,
 "arenas": [
  {"name": "a", "alignment": 4},
  {"name": "b", "capacity": 9}],
 "programs": [
  {"name": "p",
   "buffers": [
    {"name": "x", "nbytes": 24, "alignment": 8, "role": "input", "read_only": true},
    {"name": "s", "nbytes": 1, "arena": 1, "role": "state"},
    {"name": "y", "nbytes": 24}],
   "values": [
    {"name": "x", "buffer": 0, "dtype": "f32", "shape": [2, 3]},
    {"name": "s", "buffer": 1, "dtype": "i8", "shape": []},
    {"name": "y", "buffer": 2, "dtype": "f32", "shape": [2, 3]},
    {"name": "flip", "buffer": 0, "dtype": "f32", "shape": [3, 2], "strides": [4, 12]}],
   "streams": ["m", "n"],
   "ops": [
    {"name": "host.write", "kind": "host.write", "operands": [], "results": [0]},
    {"name": "flip", "kind": "view", "operands": [0], "results": [3]},
    {"name": "\\"\\né", "kind": "mul", "operands": [3, 1, 3], "results": [2], "in_place": null, "stream": 1, "after": [0, 1]},
    {"name": "host.read", "kind": "host.read", "operands": [2], "results": []}],
   "meta": {"k": 1}}],
 "problems": [
  {"program": 0,
   "start": [0, 0, 2],
   "stop": [3, 4, 4],
   "nbytes": [24, 8, 24],
   "pinned": [2],
   "own": [],
   "order": [2, 1, 0],
   "may_share": [[0, 2]],
   "fixed": {"2": -8},
   "gaps": {"0": [[1, 2]]}}],
 "plans": [
  {"program": 0, "problem": 0, "source": "by hand",
   "slots": [
    {"arena": 0, "offset": -4, "nbytes": 24},
    "own",
    null],
   "events": [
    [0, "alloc", 0],
    [3, "free", 0]]}],
 "session": [
  {"plan": 0},
  {"plan": 0, "skip": [0]}]}
"""


def test_writing_leaves_out_defaults_and_puts_one_row_on_a_line():
    assert document.dumps(example()).decode() == GOLDEN
    assert difference(document.loads(GOLDEN), example()) is None


def test_writing_to_a_file_is_whole_or_not_at_all(tmp_path):
    path = tmp_path / "d.json"
    document.write(example(), path)
    assert path.read_text() == GOLDEN
    broken = Document(programs=(), meta={"x": {1, 2}})
    with pytest.raises(OutputError, match="cannot be written as JSON"):
        document.write(broken, path)
    assert path.read_text() == GOLDEN
    assert [entry.name for entry in tmp_path.iterdir()] == ["d.json"]
    with pytest.raises(OutputError, match="cannot be written"):
        document.write(example(), tmp_path / "none" / "d.json")


def test_the_schema_in_the_package_is_the_one_the_code_gives():
    kept = Path(allocsim.__file__).with_name("schema.json").read_text()
    assert json.loads(kept) == document.schema()


def test_what_the_schema_says_is_the_same_whether_python_takes_indentation_from_docstrings(monkeypatch):
    """From 3.13 on the compiler does."""
    made = document.schema()
    assert not [text for text in _descriptions(made) if re.search(r"\n[ \t]+\S", text)]
    assert any("\n\n" in text for text in _descriptions(made))
    for row in (rows.PairRow, rows.DocumentRow):
        monkeypatch.setattr(row, "__doc__", inspect.cleandoc(row.__doc__))
    assert document.schema() == made


def _descriptions(tree):
    if isinstance(tree, dict):
        yield from ([tree["description"]] if isinstance(tree.get("description"), str) else [])
    for child in tree.values() if isinstance(tree, dict) else tree if isinstance(tree, list) else ():
        yield from _descriptions(child)


def test_the_schema_is_closed_and_names_every_row():
    schema = document.schema()
    tables = [schema, *schema["$defs"].values()]
    assert {table["title"] for table in tables[1:]} == set(rows.PUBLIC_NAMES.values()) - {"Document"}
    assert all(table["additionalProperties"] is False and "meta" in table["properties"] for table in tables)
    assert "Row" not in json.dumps(schema)


def test_words_of_the_format_are_those_of_the_model():
    assert rows.Dtype.__args__ == tuple(name for name, _ in DTYPES)
    assert [name.upper() for name in rows.ROLE_NAMES] == [role.name for role in Role]


@pytest.mark.parametrize("ops", [10_000, pytest.param(100_000, marks=pytest.mark.campaign)])
def test_thousands_of_ops_are_read_back_equal(ops):
    b = ProgramBuilder("big")
    last = b.tensor("x", "f32", (8, 8), role=Role.INPUT)
    b.op("host.write", (), (last,))
    for step in range(ops):
        made = b.tensor(f"t{step}", "f32", (8, 8))
        b.op("relu", (last,), (made,), in_place=((0, 0),))
        last = made
    program = b.build()
    again = document.loads(document.dumps(Document.of(program)))
    assert difference(program, again.programs[0]) is None
