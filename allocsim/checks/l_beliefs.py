"""What a planner believes of a program against what the program does.

Kinds: `LifetimeTooShort`, `MissingPin`, `LifetimeTooLong`, `BadSize`, `BadShare`.

Judged for every problem of the document, whether a plan was made from it or not, against the accesses of its program with no
upload left out. One record for each (problem, buffer), or for each (problem, pair).

    LifetimeTooShort   `start` after the first access or `stop` not after the last one
    MissingPin         the same, where some reader is missed and every reader missed is a `host.read`
    LifetimeTooLong    (warning) the reverse: `start` before the first access or `stop` later than just after the last one, unless the
                       buffer is pinned, or persistent (those live through the run); a buffer nothing accesses has no lifetime to exceed
    BadSize            believed nbytes below the buffer's
    BadShare           a believed pair that is not permissible (`in_place`)

Of the first two, `op` is the first reader missed, or the first writer missed where no reader is. `buffer` of a `BadShare` is the donor,
`other_buffer` the recipient.

A program without ops has nothing to hold lifetimes and pairs against: they stand for facts, and only sizes are judged.

Complexity: O(accesses log accesses), vectorised.

What this module does not see: plans, and the gaps a problem believes in.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from allocsim.checks.accesses import Accesses
from allocsim.checks.intervals import among
from allocsim.checks.s_in_place import Sharing
from allocsim.checks.trial import Findings, TrialDocument, buffer_words, named, op_words, value_words
from allocsim.checks.violations import Violation
from allocsim.model import HOST_READ, Bools, Problem, Program
from allocsim.model.layout import Int64s


def check_beliefs(case: TrialDocument, findings: Findings) -> None:
    """Report every belief of every problem that the program contradicts."""
    for index in range(len(case.document.problems)):
        for kind, bad, make in _rows(case, index):
            for row in np.flatnonzero(bad).tolist():
                findings.report(kind, partial(make, kind, row))


Make = Callable[[str, int], Violation]


def _rows(case: TrialDocument, index: int) -> list[tuple[str, Bools, Make]]:
    """Return, for each kind, which buffers or pairs have it, and what makes the record of one."""
    problem = case.document.problems[index]
    accesses = case.accesses(problem.program)
    book = _Book(problem, accesses, program=case.problem_programs[index], problem_index=index)
    rows: list[tuple[str, Bools, Make]] = [("BadSize", problem.nbytes < problem.program.buffers.nbytes, book.bad_size)]
    if not len(problem.program.ops):
        return rows
    touched, persistent = accesses.touched, problem.program.buffers.persistent
    short = touched & ((problem.start > accesses.first) | (problem.stop <= accesses.last))
    long = touched & ((problem.start < accesses.first) | (problem.stop > accesses.last + 1))
    pin = short & _only_host_missed(problem, accesses)
    return [
        ("LifetimeTooShort", short & ~pin, book.too_short),
        ("MissingPin", pin, book.too_short),
        ("LifetimeTooLong", long & ~problem.pinned & ~persistent, book.too_long),
        *rows,
        ("BadShare", _bad_pairs(problem, case.permissible(accesses)), book.bad_share),
    ]


def _first_missed(problem: Problem, op: Int64s, buffer: Int64s) -> Int64s:
    """Return, for each buffer, the first of the ops given that lies outside its believed lifetime; `len(ops)` if none does."""
    first = np.full(len(problem.start), len(problem.program.ops), dtype=np.int64)
    missed = (op < problem.start[buffer]) | (op >= problem.stop[buffer])
    np.minimum.at(first, buffer[missed], op[missed])
    return first


def _only_host_missed(problem: Problem, accesses: Accesses) -> Bools:
    """Return for which buffers some read lies outside the believed lifetime, and all that do are the host's."""
    by_host = problem.program.ops.is_kind(HOST_READ)[accesses.read_op]
    never = len(problem.program.ops)
    host = _first_missed(problem, accesses.read_op[by_host], accesses.read_buffer[by_host]) < never
    other = _first_missed(problem, accesses.read_op[~by_host], accesses.read_buffer[~by_host]) < never
    mask: Bools = host & ~other
    return mask


def _bad_pairs(problem: Problem, fine: Sharing) -> Bools:
    """Return which rows of `may_share` are not permissible; a pair listed again is not judged again."""
    count = len(problem.start)
    pair = problem.may_share[:, 0].astype(np.int64) * count + problem.may_share[:, 1]
    bad: Bools = ~among(pair, fine.donor * count + fine.recipient)
    once = np.zeros(len(pair), dtype=np.bool_)
    once[np.unique(pair, return_index=True)[1]] = True
    return bad & once


class _Book:
    """Makes the records of one problem."""

    def __init__(self, problem: Problem, accesses: Accesses, *, program: int, problem_index: int) -> None:
        self.problem = problem
        self.program: Program = problem.program
        self.accesses = accesses
        self.index = problem_index
        self.program_index = program
        self.readers_missed = _first_missed(problem, accesses.read_op, accesses.read_buffer)
        self.writers_missed = _first_missed(problem, accesses.write_op, accesses.write_buffer)

    def too_short(self, kind: str, buffer: int) -> Violation:
        problem, program = self.problem, self.program
        start, stop = int(problem.start[buffer]), int(problem.stop[buffer])
        first, last = int(self.accesses.first[buffer]), int(self.accesses.last[buffer])
        late = int(self.readers_missed[buffer])
        op = late if late < len(program.ops) else int(self.writers_missed[buffer])
        verb, values = ("reads", program.ops[op].operands) if late == op else ("writes", program.ops[op].results)
        value = next(v for v in values if program.values.buffer[v] == buffer)
        message = (
            f"{buffer_words(program, buffer)} is believed to live in steps [{start}, {stop}); its accesses are in [{first}, {last + 1}): "
            f"{op_words(program, op)} {verb} {value_words(program, value)}"
        )
        return self._record(kind=kind, step=op, op=op, buffer=buffer, message=message)

    def too_long(self, kind: str, buffer: int) -> Violation:
        start, stop = int(self.problem.start[buffer]), int(self.problem.stop[buffer])
        first, last = int(self.accesses.first[buffer]), int(self.accesses.last[buffer])
        needed = f"its accesses are in [{first}, {last + 1})"
        message = f"{buffer_words(self.program, buffer)} is believed to live in steps [{start}, {stop}); {needed}"
        return self._record(kind=kind, buffer=buffer, message=message)

    def bad_size(self, kind: str, buffer: int) -> Violation:
        believed, size = int(self.problem.nbytes[buffer]), int(self.program.buffers.nbytes[buffer])
        message = f"{buffer_words(self.program, buffer)} is believed to have {believed} bytes; it has {size}: {size - believed} are lost"
        return self._record(kind=kind, buffer=buffer, message=message)

    def bad_share(self, kind: str, row: int) -> Violation:
        donor, recipient = self.problem.may_share[row].tolist()
        program, accesses = self.program, self.accesses
        message = (
            f"{buffer_words(program, recipient)} is believed to be free to take the place of {buffer_words(program, donor)}, "
            f"and must not: {_why(program, accesses, donor, recipient)}"
        )
        return self._record(kind=kind, buffer=donor, other_buffer=recipient, message=message)

    def _record(self, **fields: Any) -> Violation:
        return named(Violation(program=self.program_index, problem=self.index, **fields), self.program)


def _why(program: Program, accesses: Accesses, donor: int, recipient: int) -> str:
    """Say which condition of a permissible pair fails first."""
    last, first = int(accesses.last[donor]), int(accesses.first[recipient])
    if program.buffers.persistent[donor] or program.buffers.persistent[recipient]:
        return "one of them is a parameter or state"
    if last < 0 or first >= len(program.ops):
        return "one of them is never accessed"
    if last != first:
        return f"the last op to access the donor is {op_words(program, last)}, the first to access the recipient {op_words(program, first)}"
    op = op_words(program, last)
    if not np.any(accesses.given & (accesses.read_buffer == donor)):
        return f"{op} does not only read the donor"
    if not np.any(accesses.taken & (accesses.write_buffer == recipient)):
        return f"{op} does not only write the recipient"
    return f"{op} declares no such pair, or would read bytes that it has written"
