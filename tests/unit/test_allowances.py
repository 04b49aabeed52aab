"""The ledger: small files that mean much are refused in one line before that is made, whatever way they repeat or share."""

import json
import os
import pickle
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from allocsim import systems
from allocsim.allowances import FULL, LIMITS, charge, metered, reading
from allocsim.document import BLANKS, may_begin
from allocsim.errors import DocumentError
from allocsim.files import gate
from allocsim.programs.builder import ProgramBuilder
from allocsim.systems.executorch import pte_program
from allocsim.systems.litert import tflite
from allocsim.systems.xla import hlo_walk
from allocsim.systems.xla.hlo_text import parse_module

PTE = Path(__file__).parents[1] / "data" / "plans" / "executorch" / "map.pte"


@pytest.mark.parametrize("thing", LIMITS)
def test_a_thing_is_charged_up_to_its_allowance(thing: str) -> None:
    """Exactly what is allowed passes, one more is refused with file, count and rule; nested files have ledgers of their own."""
    most = LIMITS[thing].free + 1000 // LIMITS[thing].bytes_each
    with reading("x", 1000):
        charge(thing, most)
        with reading("y", 0):
            charge(thing, LIMITS[thing].free)
        with pytest.raises(
            DocumentError, match=f"x: means {most + 1} .* or more; a file of 1000 bytes may mean {most}"
        ):
            charge(thing)
    charge(thing, 10 * most)


def test_a_reader_is_charged_for_its_file_alone() -> None:
    """What a program makes by itself is free, also after a reader was refused."""

    @metered
    def loads(data: bytes, source: str = "s") -> None:
        charge("op", len(data) + LIMITS["op"].free)

    for source in ("a", "b"):
        with pytest.raises(DocumentError, match=f"^{source}: means"):
            loads(b"x" * 100, source)
    charge("op", 1 << 40)


def document(ops: list[dict], runs: int = 1) -> bytes:
    row = {
        "name": "p",
        "buffers": [{"name": "b", "nbytes": 4}],
        "values": [{"name": "v", "buffer": 0, "dtype": "f32", "shape": [1]}],
        "ops": ops,
    }
    plan = {"program": 0, "slots": [{"arena": 0, "offset": 0, "nbytes": 4}]}
    whole = {"format": "allocsim", "version": 1, "programs": [row], "plans": [plan], "session": [{"plan": 0}] * runs}
    return json.dumps(whole, separators=(",", ":")).encode()


def snapshot() -> bytes:
    events = [{"action": "alloc", "addr": number * 512, "size": 512, "stream": 0} for number in range(1000)]
    return pickle.dumps({"device_traces": [events] * 1000, "segments": []})


OP = {"name": "", "kind": "f", "operands": [0], "results": []}
HOSTILE = {
    "a session that runs one program often": (lambda: document([OP] * 20_000, 1000), "ops of runs"),
    "a session of many runs": (lambda: document([OP], 100_000), "runs"),
    "a session that often runs one op of many results": (
        lambda: document([{**OP, "operands": [], "results": [0] * 200_000}], 100),
        "ops of runs",
    ),
    "a text of two million brackets": (
        lambda: b"# from tvm.script import ir as I\n@I.ir_module\nx = [" + b"()," * 700_000 + b"]",
        "tokens",
    ),
    "a text of a million lines": (
        lambda: b"# from tvm.script import ir as I\n@I.ir_module\n" + b"x\n" * 1_000_000,
        "tokens",
    ),
    "a list of operands as long as the file": (lambda: document([{**OP, "operands": [0] * 1_600_000}]), "operands"),
    "a snapshot that names one list a thousand times": (snapshot, "events"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_what_repeats_or_shares_is_refused_at_once(name: str, tmp_path: Path) -> None:
    """One line with the file, the number and the rule; the memory of the process stays below a gibibyte."""
    make, things = HOSTILE[name]
    path = tmp_path / "file"
    path.write_bytes(make())
    with pytest.raises(
        DocumentError, match=rf"file: .*means \d+ {things} or more; a file of {path.stat().st_size} bytes may mean"
    ) as raised:
        systems.load(path)
    assert "\n" not in str(raised.value)


def test_values_that_a_reader_makes_are_charged_one_by_one() -> None:
    """A reader that makes a value in two lines of a loop is refused where its file means more than it may."""

    @metered
    def loads(data: bytes, _: str) -> None:
        builder = ProgramBuilder("p")
        home = builder.buffer("b", 4)
        for _turn in range(int(data)):
            builder.value("v", home, "f32", (1,))

    loads(b"1000", "few")
    with pytest.raises(DocumentError, match="many: means 262145 values or more; a file of 6 bytes may mean 262144"):
        loads(b"300000", "many")


def test_a_program_whose_calls_share_one_list_is_charged_for_each_call(monkeypatch: pytest.MonkeyPatch) -> None:
    """The instructions of a real file are given a list of a thousand tensors: it is charged before it is opened."""
    real = pte_program.parse

    def shared(data: bytes, source: str) -> list:
        methods = []
        for method in real(data, source):
            tensor = next(i for i, row in enumerate(method.values) if isinstance(row, pte_program.PlannedTensor))
            listed = pte_program.Listed((tensor,) * 1000)
            calls = tuple(
                type(row)(row.kind, (len(method.values), *row.args), row.delegate)
                if isinstance(row, pte_program.Call)
                else row
                for row in method.instructions
            )
            made = type(method)(
                name=method.name, values=(*method.values, listed), inputs=method.inputs, outputs=method.outputs,
                instructions=calls, sizes=method.sizes,
            )  # fmt: skip
            methods.append(made)
        return methods

    monkeypatch.setattr(pte_program, "parse", shared)
    monkeypatch.setitem(LIMITS, "listed operand", type(LIMITS["op"])(1000, 1 << 30))
    with pytest.raises(DocumentError, match="listed operands"):
        systems.load(PTE)


def loop_within_loop(depth: int) -> str:
    """A module of XLA whose only instructions are loops, each in the body of the one before."""
    bodies = "".join(
        f"%b{k} (p{k}: (f32[])) -> (f32[]) {{\n  %p{k} = (f32[]) parameter(0)\n"
        f"  %w{k} = (f32[]) while(%p{k}), condition=%c, body=%b{k + 1}\n}}\n\n"
        for k in range(depth)
    )
    return (
        f"HloModule m, is_scheduled=true\n\n{bodies}%b{depth} (p: (f32[])) -> (f32[]) {{\n  %p = (f32[]) parameter(0)\n}}\n\n"
        "%c (q: (f32[])) -> pred[] {\n  %q = (f32[]) parameter(0)\n}\n\n"
        "ENTRY %e (p: (f32[])) -> (f32[]) {\n  %p = (f32[]) parameter(0)\n  ROOT %w = (f32[]) while(%p), condition=%c, body=%b0\n}\n"
    )


def test_loops_within_loops_are_charged_before_they_are_unrolled() -> None:
    """Each loop doubles the turns of what it holds: forty of them, in 6 kB, would never end."""
    text = loop_within_loop(40)
    with (
        reading("deep", len(text)),
        pytest.raises(DocumentError, match=r"deep: means \d+ instructions or more; a file of"),
    ):
        hlo_walk.choices(parse_module(text, "m"))
    graphs: Any = [SimpleNamespace(operators=[SimpleNamespace(kind="while", called=(k + 1,))]) for k in range(40)]
    graphs.append(SimpleNamespace(operators=[]))
    with reading("deep", 6000), pytest.raises(DocumentError, match=r"deep: means \d+ instructions or more"):
        tflite._choices(tuple(graphs), "deep")


def test_a_folder_is_charged_for_all_its_files(monkeypatch: pytest.MonkeyPatch) -> None:
    """A dump is read as one file of the bytes of all that it has: its walk is charged as that of any file."""
    folder = PTE.parents[1] / "xla" / "condition"
    assert len(systems.load(folder).plans) == 1
    monkeypatch.setitem(LIMITS, "instruction", type(LIMITS["op"])(3, 1 << 30))
    nbytes = sum(path.stat().st_size for path in folder.iterdir())
    with pytest.raises(DocumentError, match=rf"condition: means \d+ instructions or more; a file of {nbytes} bytes"):
        systems.load(folder)


def test_every_reader_opens_a_ledger() -> None:
    """A reader without one would let a file mean anything: `metered` wraps the function of each format."""
    for row in systems.FORMATS.values():
        assert hasattr(row.loads, "__wrapped__"), row.name


def test_blanks_are_not_read_to_their_end(tmp_path: Path) -> None:
    path = tmp_path / "blank.json"
    with path.open("wb") as file:
        file.write(b" " * BLANKS)
        file.truncate(400 << 20)
    assert len(gate.content(path, begins=may_begin)) == BLANKS
    with pytest.raises(DocumentError):
        systems.load(path)
    assert may_begin(b" " * (BLANKS - 2) + b"{}")


def test_a_pipe_that_nobody_writes_into_is_one_line_and_one_that_is_written_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    os.mkfifo(tmp_path / "pipe")
    monkeypatch.setattr(gate, "PATIENCE_SECONDS", 0)
    with pytest.raises(DocumentError, match="it is a pipe into which nothing was written for 0 s"):
        gate.content(tmp_path / "pipe")
    monkeypatch.undo()
    writer = threading.Thread(target=lambda: (tmp_path / "pipe").write_bytes(b"x" * 200_000))
    writer.start()
    assert gate.content(tmp_path / "pipe") == b"x" * 200_000
    writer.join()


def test_a_program_made_in_memory_may_be_of_any_size() -> None:
    builder = ProgramBuilder("p")
    value = builder.tensor("v", "f32", (1,))
    builder.op("f", (value,) * (LIMITS["operand"].free + 1), ())
    assert len(builder.build().ops) == 1


def test_a_larger_file_may_mean_as_much_more_as_it_is_larger() -> None:
    """Beyond the size that is promised an end in time what is honest is as dense as before."""
    each = LIMITS["instruction"]
    full = each.free + FULL // each.bytes_each
    for times in (1, 2, 7):
        with reading("x", times * FULL):
            charge("instruction", times * full)
            with pytest.raises(DocumentError, match="means"):
                charge("instruction")
