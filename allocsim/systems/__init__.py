"""Systems: one folder for each, and the table of their file formats, recorders and live planners.

    document = systems.load("plan.json")           # the content decides the format, never the name
    document = systems.load("dump", "ggml")        # or the caller names it
    systems.save(document, "instance.csv")         # the suffix decides the format

A room is the folder of one system, `allocsim/systems/NAME`. A room has the readers of the system's
files, the recorders of its running programs, and the script that runs its live planner. A room also
has the system's rules: which op may write over which operand, and when a lifetime ends. The row in
`SYSTEMS` lists a room's parts and its page in `docs`. No room imports another; shared code is in
`allocsim.formats`. A module that needs the system itself imports it inside the function that is
called, or is a script for an interpreter that has the system.

Each format is a row of `FORMATS`: a test of a file's first bytes, a reader, and for some formats a
writer. The module docstring of a reader states how its format counts time and bytes; the reader
converts both once. A reader runs no code and checks every number. A damaged file raises one
`DocumentError` with file, place and rule. A file that no row recognises is read as a native
document. The tests judge a clean, a convicted and a damaged sample of each format; they fail for a
row without samples.

What this module does not see: the content of a file (its room reads it), and faults of plans.
"""

import gzip
import re
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final

from allocsim import document
from allocsim.collector import paused
from allocsim.errors import OutputError, UnknownNameError
from allocsim.exports import EXPORTS, Export
from allocsim.files import write_atomic
from allocsim.files.gate import INFLATED, INPUT, content
from allocsim.model import Document
from allocsim.systems.executorch import pte_program
from allocsim.systems.ggml import dump_document, remarks
from allocsim.systems.iree import iree_stream
from allocsim.systems.litert import litert_pointers, tflite
from allocsim.systems.minimalloc import solver_instance
from allocsim.systems.tinygrad import tinygrad_schedule
from allocsim.systems.torch import cpp_wrapper, inductor, torch_snapshot
from allocsim.systems.triton import triton_kernel
from allocsim.systems.tvm import tvm_script
from allocsim.systems.xla import xla_dump

if TYPE_CHECKING:
    from allocsim.verdict.records import Cause

HEAD: Final = 1 << 16
"""How many bytes at the beginning of a file are read to recognise its format."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Format:
    """One kind of file."""

    name: str
    what: str
    """A clause that describes the format to people."""
    matches: Callable[[bytes], bool]
    """Whether a file that begins with these bytes (at most `HEAD`) is of this format."""
    loads: Callable[[bytes, str], Document]
    """Return the document in these bytes; the second argument names the file in errors."""
    saves: Callable[[Document], bytes] | None = None
    """Return the document as bytes of a file; raise OutputError if the format cannot hold it.

    None for a format that can be read but not written.
    """
    is_folder: Callable[[Path], bool] | None = None
    """Whether a folder is a dump of this format; None if every dump is a single file."""
    load_folder: Callable[[Path], Document] | None = None
    """Return the document in a folder that is a dump; raise DocumentError if it is damaged."""
    suffix: str = ""
    """The ending of the names of written files; empty for a format that is only read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class System:
    """One system: its formats, recorders and live planners."""

    name: str
    """The system's name, which is also the name of its folder in `allocsim/systems`."""
    page: str
    """The page of `docs`, with its section, that says how the system's files are read."""
    formats: tuple[Format, ...]
    """The file formats of the system."""
    recorders: tuple[str, ...] = ()
    """Functions that record a running program, as `module:function` of the room."""
    asked: tuple[str, ...] = ()
    """The system's planners that can be run live: names in `allocsim.allocators.live_planners`."""
    remarks: "Callable[[Document, Sequence[Cause]], dict[str, list[str]]] | None" = None
    """Return the texts printed beside a verdict: hints, assumptions, and parts not examined."""


def _is_native(head: bytes) -> bool:
    return re.search(rb'"format"\s*:\s*"allocsim"|"programs"\s*:\s*\[', head) is not None


NATIVE: Final = Format(
    name="native",
    what="allocsim's own document, versions 1 and 2",
    matches=_is_native,
    loads=document.loads,
    saves=document.dumps,
    suffix=".json",
)


def _read_by(module: ModuleType, name: str, what: str, **rest: Any) -> Format:
    """Return the format that a room's module recognises (`looks_like`) and reads (`loads`)."""
    return Format(name=name, what=what, matches=module.looks_like, loads=module.loads, **rest)


SYSTEMS: Final[dict[str, System]] = {
    row.name: row
    for row in (
        System(
            name="ggml",
            page="ggml.md",
            formats=(_read_by(dump_document, "ggml", "a ggml graph and the addresses it was given"),),
            recorders=("capture.graph_document:capture", "capture.computed_graphs:watch"),
            remarks=remarks.remarks_on,
        ),
        System(
            name="executorch",
            page="plans.md#executorch",
            formats=(
                _read_by(pte_program, "executorch", "an ExecuTorch program (.pte) with the memory planned for it"),
            ),
            recorders=("planned_program:document_of",),
            asked=("executorch",),
        ),
        System(
            name="xla",
            page="plans.md#xla",
            formats=(
                _read_by(
                    xla_dump,
                    "xla",
                    "a dump of XLA: its buffer assignment and the scheduled module, or a folder of them",
                    is_folder=xla_dump.looks_like_folder,
                    load_folder=xla_dump.load_folder,
                ),
            ),
            asked=("xla",),
        ),
        System(
            name="litert",
            page="plans.md#litert-and-tensorflow-lite",
            formats=(
                _read_by(tflite, "tflite", "a TensorFlow Lite model (.tflite), with its offline plan where it has one"),
                _read_by(litert_pointers, "litert", "the pointers that a LiteRT interpreter gave its tensors, as JSON"),
            ),
            recorders=("record_litert:recorded",),
            asked=("litert",),
        ),
        System(
            name="torch",
            page="plans.md#pytorch-eagerly",
            formats=(
                _read_by(inductor, "inductor", "the wrapper that TorchInductor generates, as text"),
                _read_by(
                    cpp_wrapper,
                    "inductor-cpp",
                    "the wrapper in C++ that TorchInductor generates, or a package with one (.pt2)",
                ),
                _read_by(torch_snapshot, "torch-snapshot", "a memory snapshot of PyTorch's caching allocator"),
            ),
            recorders=("eager_recording:record",),
            asked=("inductor",),
        ),
        System(
            name="tinygrad",
            page="plans.md#tinygrad",
            formats=(
                _read_by(tinygrad_schedule, "tinygrad", "schedules of tinygrad after its memory planner, as JSON"),
            ),
            recorders=("record_tinygrad:recorded",),
            asked=("tinygrad",),
        ),
        System(
            name="tvm",
            page="plans.md#tvm",
            formats=(_read_by(tvm_script, "tvm", "a Relax module of TVM after memory planning, as TVMScript"),),
        ),
        System(
            name="iree",
            page="plans.md#iree",
            formats=(
                _read_by(iree_stream, "iree", "IREE's stream dialect before and after it lays out slices, as text"),
            ),
        ),
        System(
            name="triton",
            page="plans.md#triton",
            formats=(
                _read_by(
                    triton_kernel,
                    "triton",
                    "a kernel of Triton after shared memory was allocated and barriers were set, as text",
                ),
            ),
            remarks=triton_kernel.remarks_on,
        ),
        System(
            name="minimalloc",
            page="allocators.md",
            formats=(
                _read_by(
                    solver_instance,
                    "minimalloc",
                    "a solver's instance: lifetimes and sizes, with or without offsets (minimalloc, idealloc)",
                    saves=solver_instance.dumps,
                    suffix=".csv",
                ),
            ),
        ),
    )
}
"""Every system, in the order in which its formats are tried."""

FORMATS: Final[dict[str, Format]] = {
    row.name: row for row in (NATIVE, *(kind for system in SYSTEMS.values() for kind in system.formats))
}
"""Every format that can be read, in the order in which they are tried."""


@paused()  # a reader's objects stay alive, and almost none of them is in a reference cycle
def load(path: str | Path, format_name: str | None = None) -> Document:
    """Return the document in a file; without `format_name` its first bytes decide the format.

    O(size). Raises DocumentError if the file cannot be opened or does not have the format, and
    UnknownNameError for an unknown format.
    """
    if format_name is not None and format_name not in FORMATS:
        raise UnknownNameError("format", format_name, FORMATS)
    folder = None if str(path) == INPUT else folder_format(Path(path), format_name)
    if folder is not None and folder.load_folder is not None:
        return folder.load_folder(Path(path))
    if format_name is not None:
        data = content(path)
    else:  # read once: a pipe cannot be read again
        data = content(path, begins=lambda head: detect(head) != "native" or document.may_begin(head))
        format_name = detect(data[:HEAD])
    return FORMATS[format_name].loads(data, str(path))


def folder_format(path: Path, format_name: str | None = None) -> Format | None:
    """Return the format of the dump in a folder; None if the path is no folder or no dump."""
    if not path.is_dir():
        return None
    rows = FORMATS.values() if format_name is None else (FORMATS[format_name],)
    return next((row for row in rows if row.is_folder is not None and row.is_folder(path)), None)


def save(made: Document, path: str | Path, format_name: str | None = None) -> None:
    """Write a document atomically; without `format_name` the path's suffix decides the format.

    A further suffix `.gz` compresses the file. The path `-` is standard output, whose default
    format is `native`. Raises OutputError if the format cannot hold the document, no format has the
    suffix, or the file cannot be written; UnknownNameError for an unknown format.
    """
    if str(path) != INPUT and Path(path).is_dir():
        raise OutputError(f"{path}: cannot be written: it is a folder")
    name = Path(path).name.lower()
    plain = name.removesuffix(".gz")
    writer = _writable(plain, str(path), format_name)
    try:
        data = writer(made)
    except OutputError as error:
        raise OutputError(f"{path}: {error}") from None
    if plain != name:
        if len(data) > INFLATED:
            raise OutputError(
                f"{path}: {len(data):,} bytes; a compressed file that can be read again holds at most {INFLATED:,}"
            )
        data = gzip.compress(data, mtime=0)  # equal documents give equal files
    if str(path) == INPUT:
        sys.stdout.buffer.write(data)
    else:
        write_atomic(path, data)


def _writable(name: str, shown: str, format_name: str | None) -> Callable[[Document], bytes]:
    """Return the writer of the format `format_name`, or of the format with the suffix of `name`."""
    rows: dict[str, Export | Format] = {**EXPORTS, **FORMATS}  # suffixes of two parts are tried first
    if name == INPUT:
        format_name = format_name or NATIVE.name
    if format_name is not None:
        if format_name not in rows:
            raise UnknownNameError("format", format_name, rows)
        found = rows[format_name].saves
        if found is None:
            raise OutputError(f"{shown}: the format {format_name!r} can be read, not written")
        return found
    ends = [(row.suffix, row.saves) for row in rows.values() if row.saves is not None and row.suffix]
    for suffix, saves in ends:
        if name.endswith(suffix):
            return saves
    raise OutputError(
        f"{shown}: no format has this suffix; the suffixes are {', '.join(sorted(suffix for suffix, _ in ends))}"
    )


def remarks_on(made: Document, causes: "Sequence[Cause]" = ()) -> dict[str, list[str]]:
    """Return the texts that the systems print beside a verdict, by heading: `in ggml` (cures of
    the causes as calls of ggml), `hints`, `assumed`, `not examined`.
    """
    rows = (row.remarks for row in SYSTEMS.values() if row.remarks is not None)
    return {name: texts for remarks in rows for name, texts in remarks(made, causes).items()}


def detect(head: bytes) -> str:
    """Return the name of the format of a file that begins with `head`.

    Return `native` if no row recognises the file.
    """
    return next((row.name for row in FORMATS.values() if row.matches(head)), "native")


__all__ = [
    "FORMATS",
    "HEAD",
    "NATIVE",
    "SYSTEMS",
    "Format",
    "System",
    "detect",
    "folder_format",
    "load",
    "remarks_on",
    "save",
]
