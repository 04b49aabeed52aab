"""XLA: a dump (`--xla_dump_to=FOLDER --xla_dump_hlo_as_text`), of each module
`*after_optimizations.txt` and `*buffer-assignment.txt`.

Time: the module is scheduled, so the lines of a computation are the steps, called computations in
line. XLA's live ranges (closed, over the schedule with each body once) are not read: what is judged
is the assignment against the instructions. What becomes of them: `allocsim.formats.hlo_walk`.

What this module does not see: modules of which the dump has only one of the two files.
"""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

from allocsim.errors import DocumentError, ModelError
from allocsim.files.gate import content
from allocsim.formats.hlo_assignment import parse_assignment
from allocsim.formats.hlo_text import parse_module
from allocsim.formats.hlo_walk import MAX_OPS, choices, plan_of_way
from allocsim.model import Document, Plan
from allocsim.programs.ways import ways

ASSIGNED: Final = "buffer-assignment.txt"
SCHEDULED: Final = "after_optimizations.txt"

MAX_BYTES: Final = 1 << 29
"""Of one file of a dump."""


def looks_like(head: bytes) -> bool:
    """Return whether a file that begins with `head` is one of a dump's two."""
    return head.startswith((b"BufferAssignment:", b"HloModule "))


def looks_like_folder(folder: Path) -> bool:
    """Return whether a folder is a dump."""
    return any(folder.glob(f"*{ASSIGNED}"))


def loads(_data: bytes, source: str) -> Document:
    """Return the document of one module, from either of its files; the other lies beside it."""
    path = Path(source)
    for assigned, scheduled in _modules(path.parent):
        if path.name in (assigned.name, scheduled.name):
            return _document([(assigned, scheduled)], source)
    raise DocumentError(source, "", f"there is no *{ASSIGNED} with a *{SCHEDULED} of its name beside it")


def load_folder(folder: Path) -> Document:
    """Return the modules of a dump, one program and plan for each way through each.

    Raises DocumentError with file, line and rule. O(size of the files x ways).
    """
    return _document(list(_modules(folder)), str(folder))


def _modules(folder: Path) -> Iterator[tuple[Path, Path]]:
    """Yield the two files of each module, by name."""
    for assigned in sorted(folder.glob(f"*{ASSIGNED}")):
        stem = assigned.name.removesuffix(ASSIGNED)
        for name in (f"{stem.removesuffix('-')}.txt", f"{stem}{SCHEDULED}"):
            if name != ".txt" and (folder / name).is_file():
                yield assigned, folder / name
                break


def _document(modules: Iterable[tuple[Path, Path]], source: str) -> Document:
    plans: list[Plan] = []
    total = 0
    for assigned, scheduled in modules:
        assignment = parse_assignment(_text(assigned), str(assigned))
        module = parse_module(_text(scheduled), str(scheduled))
        if not module.scheduled:
            raise DocumentError(str(scheduled), "line 1", "is not scheduled: its order is not that of the plan")
        try:
            found: dict[str, Plan] = {}
            for taken in ways(choices(module)):
                plan = plan_of_way(module, assignment, taken)
                found[plan.program.path] = plan
                total += len(plan.program.ops)
                if total > MAX_OPS:
                    raise DocumentError(source, module.name, f"the ways through it have more than {MAX_OPS} ops")
        except ModelError as error:
            if isinstance(error, DocumentError):
                raise
            raise DocumentError(str(scheduled), error.place, error.rule) from None
        plans += found.values()
    if not plans:
        raise DocumentError(source, "", f"no plan here: there is no *{ASSIGNED} with its *{SCHEDULED}")
    return Document.of(*plans)


def _text(path: Path) -> str:
    return content(path).decode("utf-8", "replace")


__all__ = ["ASSIGNED", "SCHEDULED", "load_folder", "loads", "looks_like", "looks_like_folder"]
