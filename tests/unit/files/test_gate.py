"""Every file that is read goes through the gate, and what it refuses is one line."""

import ast
import io
import os
import resource
from pathlib import Path

import msgspec
import pytest

from allocsim.errors import DocumentError, EngineError
from allocsim.files import gate

ROOT = Path(__file__).parents[3]

ELSEWHERE = {
    "allocsim/files/gate.py": "the gate",
    "allocsim/document/decoding.py": "behind the gate: a document's own decoder, which says where a fault is",
    "allocsim/document/__init__.py": "the schema, made from the types",
    "allocsim/document/writer.py": "formats what it has just encoded",
    "allocsim/systems/ggml/ggml_dump.py": "behind the gate: bytes in memory",
    "allocsim/outcomes/plain_report.py": "what it has just encoded itself",
    "allocsim/systems/litert/litert_pointers.py": "behind the gate: bytes in memory",
    "allocsim/cli/record_live.py": "a log that a program of ours still writes, in pieces with a ceiling",
    "allocsim/cli/trace.py": "behind the gate: one line of a stream, refused with its number",
    "allocsim/allocators/by_command.py": "no file: a pipe to a command that a person named, with a ceiling of its own",
    "allocsim/programs/networkx_graph.py": "no file: an attribute of a graph in memory",
    "allocsim/files/journal.py": "what it has just encoded itself",
    "allocsim/cure/patch.py": "what it has just encoded itself",
    "allocsim/fuzzing/tracing.py": "a file that coverage has just written into a folder of ours",
    "allocsim/fuzzing/worker.py": "pipes from and to the process that asks",
    "allocsim/files/frames.py": "pipes between processes of ours",
    "allocsim/files/signals.py": "the kernel's list of a process's children",
    "allocsim/fuzzing/target.py": "the kernel's numbers of a process of ours",
    "allocsim/fuzzing/pasting.py": "what it has just encoded itself",
    "allocsim/fuzzing/broken_property.py": "what it has just encoded itself",
    "allocsim/cli/bisect.py": "what it has just encoded itself",
    "allocsim/p_sanitizer/crashes.py": "no file: a page of memory that a fork shares",
    "allocsim/p_sanitizer/guard.py": "no file: memory mapped twice, and this package's own source of the handler",
    "allocsim/p_sanitizer/pools.py": "no file: memory between guard pages",
    "allocsim/p_sanitizer/kernel_child.py": "a pipe to a fork of ours, and the kernel's numbers of it",
    "reports/serving/static_files.py": "this package's own page",
    "reports/serving/bundling.py": "this package's own sources",
    "reports/serving/in_browser.py": "no file: a text that the page hands over, answered in one line where it is none",
    "allocsim/online/elsewhere.py": "a pipe to a fork of ours",
    "allocsim/processor.py": "the kernel's description of the processor",
    "engine/training/array_files.py": "headers first: `refusing` is round all of it",
    "engine/training/digests.py": "what it has just encoded itself",
    "engine/training/checkpoint_parts.py": "headers first: `refusing` is round all of it",
    "engine/training/checkpoint.py": "metadata within `refusing`, and what it has just encoded itself",
    "engine/models/gguf_header.py": "walks the file before the library does",
    "engine/kernels/compiled/jit.py": "this package's own sources",
    "allocsim/systems/ggml/access/child.py": "a pipe to a process of ours",
    "allocsim/systems/ggml/access/readable_memory.py": "the kernel's map of this process",
    "allocsim/systems/ggml/access/probe.py": "a library's text, named by a person",
    "allocsim/systems/ggml/random_graphs/graph_fuzzing.py": "a file that a fork of ours has just written",
    "engine/commands/capture.py": "this package's own source of the dumper",
    "engine/k_audit/isolated.py": "a pipe to a process of ours",
    "allocsim/systems/tinygrad/tinygrad_schedule.py": "behind the gate: bytes in memory, into declared types with ceilings",
    "allocsim/allocators/asking.py": "a pipe to the process that asks",
    "allocsim/systems/xla/ask_xla.py": "what the compiler in this process has just written into a folder of its own",
    "allocsim/recordings/malloc_log.py": "copies, piece by piece, what our recorder has just written",
    "allocsim/fuzzing/campaigns.py": "no file: a target is opened",
    "allocsim/fuzzing/explorer.py": "no file: a target is opened",
    "engine/models/weights.py": "`refusing` is round all of it; sizes are checked by its reader",
    "reports/interactive/assets.py": "this package's own page",
}
"""Modules that read, or decode, by themselves; why each may."""

READS = {"read_bytes", "read_text", "fromfile", "memmap", "mmap", "fdopen", "ZipFile", "safe_open"}
DECODES = {
    ("json", "loads"),
    ("json", "load"),
    ("np", "load"),
    ("numpy", "load"),
    ("pickle", "load"),
    ("pickle", "loads"),
    ("tomllib", "load"),
}


def reads(tree):
    """Yield the lines of a module on which it opens something for reading, or decodes it."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute | ast.Name):
            continue
        bare = isinstance(node.func, ast.Name)
        name, owner = (node.func.id, None) if bare else (node.func.attr, node.func.value)
        modes = [*node.args[int(bare) : int(bare) + 1], *(k.value for k in node.keywords if k.arg == "mode")]
        said = [
            word.value
            for word in [*modes, *node.args[1:2]]
            if isinstance(word, ast.Constant) and isinstance(word.value, str)
        ]
        system = isinstance(owner, ast.Name) and owner.id == "os"
        opens = name == "open" and not system and (not said or any(set(word) <= set("rbt") for word in said))
        decodes = isinstance(owner, ast.Name) and (owner.id, name) in DECODES
        typed = name == "decode" and owner is not None and "msgspec" in ast.unparse(owner)
        if opens or decodes or typed or name in READS:
            yield node.lineno


@pytest.mark.parametrize(
    "line",
    [
        "open(p)",
        "open(p, 'rb')",
        "p.open()",
        "p.open(mode='r')",
        "io.open(p, 'rb')",
        "ZipFile(p)",
        "zipfile.ZipFile(p)",
        "safe_open(p, 'np')",
    ],
)
def test_an_opening_is_seen_however_it_is_written(line):
    assert list(reads(ast.parse(line))) == [1]
    assert list(reads(ast.parse("open(p, 'ab'); p.open('wb'); os.open(p, 0)"))) == []


def test_nothing_else_opens_a_file_for_reading():
    found = {}
    for package in ("allocsim", "engine", "repro", "reports"):
        for path in sorted((ROOT / package).rglob("*.py")):
            lines = list(reads(ast.parse(path.read_text(encoding="utf-8"))))
            if lines:
                found[str(path.relative_to(ROOT))] = lines
    assert {name: lines for name, lines in found.items() if name not in ELSEWHERE} == {}
    assert sorted(set(ELSEWHERE) - found.keys()) == []


def test_a_file_is_read_up_to_its_ceiling_and_no_further(tmp_path):
    path = tmp_path / "f"
    path.write_bytes(b"x" * (1 << 20))
    assert len(gate.content(path, 1 << 20)) == 1 << 20
    with pytest.raises(DocumentError, match=r"^[^\n]*f: is larger than 0 MiB, the most that is read$"):
        gate.content(path, (1 << 20) - 1)


@pytest.mark.skipif(not Path("/dev/zero").exists(), reason="the system has no endless file")
def test_an_endless_file_ends_at_the_ceiling():
    with pytest.raises(DocumentError, match="is larger than 4 MiB"):
        gate.content("/dev/zero", 4 << 20)


def test_a_file_that_begins_otherwise_is_not_read_on(tmp_path):
    path = tmp_path / "f"
    path.write_bytes(b"no" * (1 << 20))
    assert len(gate.content(path, begins=lambda head: head.startswith(b"{"))) == 1 << 16


@pytest.mark.parametrize("name", ["none", ".", "a\0b", "x" * 300])
def test_what_cannot_be_opened_is_one_line_with_the_error_asked_for(tmp_path, name):
    with pytest.raises(EngineError, match=r"\A[^\n]*: cannot be read: [^\n]+\Z"):
        gate.content(tmp_path / name, refusal=gate.refused_with(EngineError))


def test_standard_input_has_the_same_ceiling():
    assert gate.stream_content(io.BytesIO(b"abc"), "-", 3) == b"abc"
    with pytest.raises(DocumentError, match=r"^-: is larger"):
        gate.stream_content(io.BytesIO(b"abcd"), "-", 3)


class Row(msgspec.Struct, forbid_unknown_fields=True):
    n: int
    rest: list["Row"] = []


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b'{"n": "1"}', "n: expected int, got str"),
        (b'{"n": 1, "rest": [{"n": 2}, {}]}', "rest[1]: object missing required field n"),
        (b"[]", "Expected object, got array"),
        (b'{"n": 1', "Input data was truncated"),
        (b'{"n": \xff}', "JSON is malformed"),
        (b'{"n": 1e999}', "n: number out of range"),
        (b'{"rest": [' * 100_000, "it is nested too deeply"),
    ],
)
def test_json_that_is_not_of_its_type_is_one_line_with_the_place(data, says):
    with pytest.raises(DocumentError) as raised:
        gate.record_of(data, Row, "r.json", what="row")
    assert str(raised.value).startswith(f"r.json: is no row: {says}")
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("error", "says"),
    [
        (ValueError("two\nlines"), "is no readable thing: two lines"),
        (KeyError(), "is no readable thing: KeyError"),
        (MemoryError(), "is no readable thing: it asks for more memory than there is"),
        (RecursionError(), "is no readable thing: it is nested too deeply"),
        (PermissionError(13, "Permission denied"), "is no readable thing: Permission denied"),
    ],
)
def test_whatever_a_library_raises_becomes_one_line(error, says):
    with pytest.raises(DocumentError) as raised, gate.refusing("f", "thing"):
        raise error
    assert str(raised.value) == f"f: {says}"


@pytest.mark.parametrize("error", [KeyboardInterrupt(), SystemExit(1), EngineError("ours")])
def test_what_ends_a_command_and_errors_of_ours_pass_as_they_are(error):
    with pytest.raises(type(error)) as raised, gate.refusing("f", "thing"):
        raise error
    assert raised.value is error


def test_a_small_file_takes_no_room_for_its_ceiling(tmp_path: Path) -> None:
    """A journal may have 4 GiB; to read a short one takes a few megabytes, also where a process may have no more."""
    path = tmp_path / "j"
    path.write_bytes(b"x" * 1000)
    child = os.fork()
    if child == 0:
        status = 1
        try:
            mapped = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
            resource.setrlimit(resource.RLIMIT_AS, (mapped + (64 << 20),) * 2)
            status = int(gate.content(path, gate.CEILINGS["stream"]) != b"x" * 1000)
        finally:
            os._exit(status)
    assert os.waitpid(child, 0)[1] == 0


@pytest.mark.parametrize("most", [5, 7, 64])
def test_lines_come_whole_however_the_file_is_cut(tmp_path, most):
    """Ends of lines, an empty line, and a last line without an end; pieces of 5 bytes and more."""
    data = b"ab\n\ncdef\nx"
    path = tmp_path / "lines"
    path.write_bytes(data)
    assert b"".join(line for lines in gate.file_lines(path, "lines", most) for line in lines) == data
    assert [line for lines in gate.file_lines(io.BytesIO(data), "lines", most) for line in lines] == data.splitlines(
        keepends=True
    )


def test_a_line_without_end_is_refused_before_it_fills_memory():
    """A stream that gives zeros for ever is read as far as twice the longest line."""

    class Zeros:
        given = 0

        def read(self, count):
            self.given += count
            return bytes(count)

    zeros = Zeros()
    with pytest.raises(DocumentError, match="has a line of more than 1 KiB"):
        list(gate.file_lines(zeros, "zeros", 1024))
    assert zeros.given <= 2048
