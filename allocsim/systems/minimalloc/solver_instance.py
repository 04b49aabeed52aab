"""minimalloc: read and write a CSV that has a buffer in each row, with its lifetime and size.

The instances of idealloc have the same form.

The first line names the columns, in any order:

    id | buffer | buffer_id         a name
    lower | start | begin           first step
    upper                           the step after the last: half-open
    end                             the last step: inclusive; then the ends of gaps are inclusive too
    size                            bytes
    alignment                       bytes, 1 where it is missing
    hint                            an offset to try first; kept in the buffer's `meta`, no planner here uses it
    gaps                            `7-9 12-14`: steps in which the bytes need not survive; a gap with a window, `7-9@0:512`, in which only those
                                    bytes are needed, is kept in `meta` and is no gap of the
                                    problem: the buffer lives through it
    offset                          bytes; in every row: a plan; in some rows (else empty): fixed offsets of the problem

Reading: all buffers are in one arena without capacity. The program has no ops; the problem has the
lifetimes. Columns are found by name, not by position. `end` is `upper` minus one.

Writing: the file has the buffers of the document's only program that have a slot in its first plan,
or without a plan all buffers that are not `own`. The lifetimes come from the plan's problem, else
from the document's first problem, else they are the exact lifetimes. A pinned buffer lives to the
end. The format has no in-place pairs. Without pairs a problem is harder, but each solution is
valid. OutputError is raised if a plan uses a pair, or if there are several programs or arenas.

Source: google/minimalloc src/converter.cc, README.md (2023 to 2025); idealloc's benchmark CSVs,
whose lifetimes are half-open.
"""

import re
from pathlib import PurePath
from typing import Final

import numpy as np

from allocsim.allocators import exact
from allocsim.allocators.by_csv import ids
from allocsim.allocators.constraints import Constraints
from allocsim.allowances import metered
from allocsim.errors import DocumentError, OutputError
from allocsim.model import OWN, Arena, Document, Plan, Problem, Program
from allocsim.model.layout import LIMIT, Int64s
from allocsim.programs.builder import ProgramBuilder, plan_of

COLUMNS: Final = {
    "id": "id", "buffer": "id", "buffer_id": "id", "lower": "lower", "start": "lower", "begin": "lower", "upper": "upper",
    "end": "upper", "size": "size", "alignment": "alignment", "hint": "hint", "gaps": "gaps", "offset": "offset",
}  # fmt: skip
"""Name of a column in a file -> name of the column in this module."""

_WINDOW: Final = re.compile(r"\d+-\d+@[\d:]+", re.ASCII)

NEEDED: Final = ("id", "lower", "upper", "size")

Gaps = tuple[tuple[int, int], ...]


def looks_like(head: bytes) -> bool:
    """Return whether the first line of a file that begins with `head` names columns of an instance:
    either all needed columns, or `size`, at least one other known column and no unknown column.
    """
    first = head.removeprefix(b"\xef\xbb\xbf").split(b"\n", 1)[0].decode("ascii", "replace")
    found = {COLUMNS.get(name.strip()) for name in first.split(",")}
    return found.issuperset(NEEDED) or (None not in found and "size" in found and len(found) > 1)


@metered
def loads(data: bytes, source: str = "instance") -> Document:
    """Return the program, its problem and, if every row has an offset, its plan.

    O(rows). Raises DocumentError with line and rule if the data are no instance.
    """
    rows = _Rows(data, source)
    name = PurePath(source).stem or "instance"
    builder = ProgramBuilder(name, arenas=(Arena(name="memory", alignment=1),))
    lives: list[tuple[int, int]] = []
    gaps: dict[int, Gaps] = {}
    offsets: dict[int, int] = {}
    while rows.advance():
        start, stop = rows.number("lower"), rows.number("upper") + rows.inclusive
        if stop < start:
            raise rows.refuse("upper", f"the lifetime [{start}, {stop}) ends before it starts")
        believed, windows = _gaps(rows)
        meta = {
            key: value for key, value in (("hint", rows.optional("hint")), ("windows", windows)) if value is not None
        }
        alignment = rows.optional("alignment")
        if alignment == 0:
            raise rows.refuse("alignment", "an alignment of 0 is not allowed; the least is 1")
        buffer = builder.buffer(rows.cell("id"), rows.number("size"), alignment=alignment or 1, meta=meta or None)
        lives.append((start, stop))
        offset = rows.optional("offset", signed=True)
        if believed:
            gaps[buffer] = believed
        if offset is not None:
            offsets[buffer] = offset
    return _document(builder.build(), lives, gaps, offsets)


def _document(
    program: Program, lives: list[tuple[int, int]], gaps: dict[int, Gaps], offsets: dict[int, int]
) -> Document:
    columns = np.array(lives, dtype=np.int64).reshape(-1, 2)
    whole = bool(lives) and len(offsets) == len(lives)
    problem = Problem.of(program, start=columns[:, 0], stop=columns[:, 1], gaps=gaps, fixed={} if whole else offsets)
    if not whole:
        return Document(programs=(program,), problems=(problem,))
    return Document.of(
        plan_of(program, [offsets[buffer] for buffer in range(len(lives))], problem=problem, source="minimalloc")
    )


class _Rows:
    """The lines of a file, read one after another; errors name the line and the column."""

    def __init__(self, data: bytes, source: str) -> None:
        self.source = source
        try:
            lines = data.decode("utf-8-sig").split("\n")
        except UnicodeDecodeError as error:
            raise DocumentError(source, "", f"is no UTF-8 text: {error.reason} at byte {error.start}") from None
        self.lines = [line.removesuffix("\r") for line in lines]
        self.line = 0
        self.cells: list[str] = []
        names = [name.strip() for name in self.lines[0].split(",")]
        self.column: dict[str, int] = {}
        for place, name in enumerate(names):
            if name not in COLUMNS:
                raise self.refuse("", f"column {name!r} is unknown; the columns are {', '.join(COLUMNS)}")
            if COLUMNS[name] in self.column:
                raise self.refuse("", f"column {name!r} means the same as an earlier column")
            self.column[COLUMNS[name]] = place
        missing = [name for name in NEEDED if name not in self.column]
        if missing:
            raise self.refuse("", f"there is no column {missing[0]!r}")
        self.inclusive = int("end" in names)

    def advance(self) -> bool:
        """Go to the next line that is not empty; return whether there is one."""
        self.line += 1
        while self.line < len(self.lines) and not self.lines[self.line].strip():
            self.line += 1
        if self.line >= len(self.lines):
            return False
        self.cells = self.lines[self.line].split(",")
        if len(self.cells) != len(self.column):
            raise self.refuse("", f"has {len(self.cells)} cells; {len(self.column)} are needed")
        return True

    def cell(self, column: str) -> str:
        """Return the text of a column in this row; empty if the file has no such column."""
        return self.cells[self.column[column]].strip() if column in self.column else ""

    def number(self, column: str) -> int:
        """Return the number in a column of this row; raise DocumentError if the cell is empty."""
        return self.whole(column, self.cell(column))

    def optional(self, column: str, *, signed: bool = False) -> int | None:
        """Return the number in a column of this row; None if the cell is empty."""
        cell = self.cell(column)
        return self.whole(column, cell, signed=signed) if cell else None

    def whole(self, column: str, text: str, *, signed: bool = False) -> int:
        """Return the integer that `text` spells.

        Raises DocumentError if the text is no integer, if the integer is negative (unless
        `signed`), or if its magnitude exceeds 2^62.
        """
        plain = len(text) <= 30 and text.isascii() and text.isdecimal()
        if not plain and re.fullmatch(r"-?[0-9]{1,30}", text) is None:
            raise self.refuse(column, f"{text[:40]!r} is no whole number")
        number = int(text)
        if abs(number) > LIMIT or (number < 0 and not signed):
            raise self.refuse(column, f"{number} {'is negative' if number < 0 else 'exceeds 2^62'}")
        return number

    def refuse(self, column: str, rule: str) -> DocumentError:
        """Return the error that names this line, a column, and the rule that the line breaks."""
        return DocumentError(self.source, f"line {self.line + 1}{f', {column}' if column else ''}", rule)


def _gaps(rows: _Rows) -> tuple[Gaps, str | None]:
    """Return the gaps of a row that have no window, and the text of the other gaps, or None."""
    believed, windows = [], []
    for text in rows.cell("gaps").split():
        steps, at, _ = text.partition("@")
        low, dash, high = steps.partition("-")
        if not dash:
            raise rows.refuse("gaps", f"{text[:40]!r} is no range of steps like 7-9")
        gap = rows.whole("gaps", low), rows.whole("gaps", high) + rows.inclusive
        if gap[1] < gap[0]:
            raise rows.refuse("gaps", f"[{gap[0]}, {gap[1]}) ends before it starts")
        if at:
            windows.append(f"{gap[0]}-{gap[1]}{text[text.index('@') :]}")
        else:
            believed.append(gap)
    return tuple(believed), " ".join(windows) or None


def dumps(document: Document, *, inclusive: bool = False) -> bytes:
    """Return the CSV of a document.

    With `inclusive` the columns are `start` and `end` instead of `lower` and `upper`. O(buffers).
    Raises OutputError if the format cannot hold the document.
    """
    if len(document.programs) != 1:
        raise OutputError(f"a minimalloc file holds one program; the document has {len(document.programs)}")
    program = document.programs[0]
    plan = document.plans[0] if document.plans else None
    problem = _problem(document, program, plan)
    placed = np.flatnonzero(~problem.own if plan is None else plan.placed)
    _one_arena(program, placed)
    if plan is not None:
        _no_pairs(problem, plan)
    steps = max(len(program.ops), int(problem.stop.max(initial=0)))
    stop = np.where(problem.pinned, np.maximum(problem.stop, steps), problem.stop)
    if inclusive and bool((stop == problem.start)[placed].any()):
        raise OutputError("an empty lifetime has no last step; write the columns `lower` and `upper` instead")
    return _table(program, problem, plan, placed, stop, inclusive=inclusive).encode()


def _problem(document: Document, program: Program, plan: Plan | None) -> Problem:
    if plan is not None and plan.problem is not None:
        return plan.problem
    if document.problems:
        return document.problems[0]
    return exact.believe(program, Constraints.of(program))


def _one_arena(program: Program, placed: Int64s) -> None:
    used = np.unique(program.buffers.arena[placed])
    if len(used) > 1:
        raise OutputError(f"a minimalloc file holds one arena; the document uses {len(used)}")


def _no_pairs(problem: Problem, plan: Plan) -> None:
    for donor, recipient in problem.may_share.tolist():
        together = plan.arena[donor] == plan.arena[recipient] != OWN and plan.offset[donor] == plan.offset[recipient]
        if together and plan.placed[donor] and problem.stop[donor] == problem.start[recipient] + 1:
            names = plan.program.buffers.names
            raise OutputError(
                f"a minimalloc file cannot express that {names[recipient]!r} is in place over {names[donor]!r}"
            )


def _table(
    program: Program, problem: Problem, plan: Plan | None, placed: Int64s, stop: Int64s, *, inclusive: bool
) -> str:
    buffers = program.buffers
    names = ids([buffers.names[b] for b in placed.tolist()], placed.tolist())
    rows: list[dict[str, object]] = []
    for place, b in enumerate(placed.tolist()):
        meta = buffers.meta.get(b, {})
        gaps = [f"{low}-{high - inclusive}" for low, high in problem.gaps.get(b, ())]
        for window in str(meta.get("windows", "")).split():
            if not _WINDOW.fullmatch(window):
                raise OutputError(f"buffer {b}: windows: {window[:40]!r} is no gap with a window like 7-9@0:512")
            steps, _, where = window.partition("@")
            low, _, high = steps.partition("-")
            gaps.append(f"{low}-{int(high) - inclusive}@{where}")
        rows.append(
            {
                "id": names[place],
                "start" if inclusive else "lower": int(problem.start[b]),
                "end" if inclusive else "upper": int(stop[b]) - inclusive,
                "size": int(problem.nbytes[b]),
                "alignment": int(buffers.alignment[b]),
                "hint": hint if isinstance(hint := meta.get("hint"), int) else "",
                "gaps": " ".join(gaps),
                "offset": problem.fixed.get(b, "") if plan is None else int(plan.offset[b]),
            }
        )
    defaults = {"alignment": 1, "hint": "", "gaps": "", "offset": ""}
    spelled = ("id", "start", "end", "size") if inclusive else ("id", "lower", "upper", "size")
    columns = [*spelled, *(name for name, default in defaults.items() if any(row[name] != default for row in rows))]
    lines = [columns, *([str(row[column]) for column in columns] for row in rows)]
    return "".join(",".join(line) + "\n" for line in lines)


__all__ = ["COLUMNS", "dumps", "loads", "looks_like"]
