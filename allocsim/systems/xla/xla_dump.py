"""Reads dumps of XLA (`--xla_dump_to=FOLDER`). For each module, a dump has
`*after_optimizations.txt` and `*buffer-assignment.txt` (`--xla_dump_hlo_as_text`), or
`*after_optimizations.hlo.pb`, which has both (`--xla_dump_hlo_as_proto`).

The module is scheduled, so the order of the instructions is the order of the steps; called
computations are inlined. If the dump has XLA's live ranges (`*live-range.txt`), these are the
belief (`allocsim.systems.xla.hlo_live_range`). `allocsim.systems.xla.hlo_walk` turns instructions
into ops.

What this module does not see: a module with only one of the two texts and no proto.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from allocsim.allowances import metered, reading
from allocsim.errors import DocumentError, ModelError
from allocsim.files.gate import content
from allocsim.model import Document, Plan
from allocsim.programs.ways import ways
from allocsim.systems.xla import hlo_proto
from allocsim.systems.xla.hlo_assignment import Assignment, in_common_arenas, parse_assignment
from allocsim.systems.xla.hlo_live_range import parse_live_ranges
from allocsim.systems.xla.hlo_text import ReadableModule, parse_module
from allocsim.systems.xla.hlo_walk import MAX_OPS, choices, plan_of_way

ASSIGNED: Final = "buffer-assignment.txt"
LIVE: Final = "live-range.txt"
SCHEDULED: Final = "after_optimizations.txt"
PROTO: Final = "after_optimizations.hlo.pb"


@dataclass(frozen=True, slots=True)
class Files:
    """The paths of one module's files in a dump."""

    module: Path
    """The module's text, or an HloProto, which also has the assignment."""
    assigned: Path | None
    live: Path


def looks_like(head: bytes) -> bool:
    """Return whether a file that begins with `head` is a module, an assignment or an HloProto."""
    return head.startswith((b"BufferAssignment:", b"HloModule ")) or hlo_proto.looks_like(head)


def looks_like_folder(folder: Path) -> bool:
    """Return whether a folder has files of an XLA dump."""
    return any(True for _ in _modules(folder)) or any(folder.glob(f"*{ASSIGNED}"))


@metered
def loads(data: bytes, source: str) -> Document:
    """Return the document of one module, from an HloProto or from one of its two texts. The other
    text is read from the same folder.
    """
    path = Path(source)
    if hlo_proto.looks_like(data):
        return _document([_proto_files(path)], source, data)
    for files in _modules(path.parent):
        if path in (files.module, files.assigned):
            with reading(source, _nbytes([files])):
                return _document([files], source)
    raise DocumentError(source, "", f"needs *{SCHEDULED} and *{ASSIGNED} with the same prefix in one folder")


def load_folder(folder: Path) -> Document:
    """Return the document of a dump: a program and a plan for each way through each module.

    Raises DocumentError, which names file, line and rule. O(size of the files x ways).
    """
    modules = list(_modules(folder))
    with reading(str(folder), _nbytes(modules)):
        return _document(modules, str(folder))


def _nbytes(modules: Sequence[Files]) -> int:
    """Return the total size in bytes of the modules' files."""
    paths = {path for files in modules for path in (files.module, files.assigned, files.live) if path is not None}
    return sum(path.stat().st_size for path in paths if path.is_file())


def _modules(folder: Path) -> Iterator[Files]:
    """Yield the files of each module, sorted by name; modules with texts come before protos."""
    told = set()
    for assigned in sorted(folder.glob(f"*{ASSIGNED}")):
        stem = assigned.name.removesuffix(ASSIGNED)
        for name in (f"{stem.removesuffix('-')}.txt", f"{stem}{SCHEDULED}"):
            if name != ".txt" and (folder / name).is_file():
                told.add(name.removesuffix(".txt"))
                yield Files(folder / name, assigned, folder / f"{stem}{LIVE}")
                break
    for path in sorted(folder.glob(f"*{PROTO}")):
        if path.name.removesuffix(".hlo.pb") not in told:
            yield _proto_files(path)


def _proto_files(path: Path) -> Files:
    return Files(path, None, path.with_name(f"{path.name.removesuffix('.hlo.pb')}-{LIVE}"))


def _document(modules: Sequence[Files], source: str, data: bytes | None = None) -> Document:
    read = [_read(files, data) for files in modules]
    plans: list[Plan] = []
    total = 0
    assignments = in_common_arenas([assignment for _, assignment in read])
    for files, (module, _), assignment in zip(modules, read, assignments, strict=True):
        if not module.scheduled:
            place = "line 1" if files.assigned else ""
            raise DocumentError(
                str(files.module), place, "is not scheduled: the order of its instructions is not the order of the plan"
            )
        live = parse_live_ranges(_text(files.live), str(files.live)) if files.live.is_file() else None
        try:
            found: dict[str, Plan] = {}
            for taken in ways(choices(module)):
                plan = plan_of_way(module, assignment, taken, live)
                found[plan.program.path] = plan
                total += len(plan.program.ops)
                if total > MAX_OPS:
                    raise DocumentError(
                        source, module.name, f"the ways through the modules have more than {MAX_OPS} ops"
                    )
        except ModelError as error:
            if isinstance(error, DocumentError):
                raise
            raise DocumentError(str(files.module), error.place, error.rule) from None
        plans += found.values()
    if not plans:
        raise DocumentError(source, "", f"no plan here: no module has both its *{SCHEDULED} and its *{ASSIGNED}")
    return Document.of(*plans)


def _read(files: Files, data: bytes | None) -> tuple[ReadableModule, Assignment]:
    if files.assigned is None:
        return hlo_proto.read_proto(content(files.module) if data is None else data, str(files.module))
    assignment = parse_assignment(_text(files.assigned), str(files.assigned))
    return parse_module(_text(files.module), str(files.module)), assignment


def _text(path: Path) -> str:
    return content(path).decode("utf-8", "replace")


__all__ = ["ASSIGNED", "SCHEDULED", "load_folder", "loads", "looks_like", "looks_like_folder"]
