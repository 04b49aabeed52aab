"""Kernels run in a process of their own, so that a crash is an incident; and run twice, so that
what they read of dead bytes shows wherever it ends.

    found = allocsim.watched(program, plan, kernel, twice=True)
    print(found.report())

`kernel(op, operands, results)` is called for every op that is no view, with the views that
`allocsim.sanitized` gives, in a fork of this process. A fork that dies is a `Crash`: the op, the
signal, and how far the address lies from the nearest buffer. What the kernel changes in Python's
memory is lost with its process.

With `twice` all runs are repeated over other forms of poison (`poison.drawn`), and with dead bytes
left as they lay. The first result
that differs, of an op whose operands are the same, was computed from dead bytes: an
`UndeclaredRead`, whatever became of the value on the way. Which bytes it read is found by
repetition, with the other form in a part of the memory only: the first and the last one of each
part that matters by itself, O(log bytes) runs. What differs between two equal runs as well is
*unsettled*: nothing is said of it. An op that crashes or raises over another form only, and does so
again, read dead bytes as well; what comes after it is not compared over that form.

With `strict` all is run once more with each buffer on pages of its own that end at a guard page,
and again with pages that begin at one (`guard`): what an op does not declare is a fault there, dead
or live, kept or undone, on whatever thread.

What this module does not see: without `strict`, a live byte that a kernel reads without declaring
it; what a kernel leaves to itself from op to op; of undeclared readers in a chain, any but the
first.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from hashlib import blake2b
from itertools import pairwise
from typing import Any, Final

from numpy.typing import NDArray

from allocsim.errors import ModelError
from allocsim.model import VIEW, Op, Plan, Program
from allocsim.p_sanitizer import poison
from allocsim.p_sanitizer.arena import Pages, Sanitized, sanitized
from allocsim.p_sanitizer.held_ranges import union
from allocsim.p_sanitizer.incident_words import crash, op_words, told
from allocsim.p_sanitizer.incidents import WRITES, Incident
from allocsim.p_sanitizer.kernel_child import KernelChild, in_child
from allocsim.p_sanitizer.program_facts import Facts, Range
from allocsim.p_sanitizer.row_actions import Other
from allocsim.p_sanitizer.scope import examined
from allocsim.programs.placed_plans import Slots, placed

Array = NDArray[Any]
Kernel = Callable[[Op, tuple[Array, ...], tuple[Array, ...]], Any]
Key = tuple[int, int, int]
"""Run, op, and result of it."""

EVERYTHING: Final = 1 << 62

LOCATED: Final = 8
"""Undeclared reads whose bytes are looked for; others are told without."""

PARTS: Final = 4
"""Stretches of an op's results that are looked at one by one."""

WIDEST: Final = 16
"""Bytes of the widest element: of two bytes nearer than that, what lies between is told as well."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Watched:
    """What was found."""

    program: Program
    incidents: tuple[Incident, ...]
    """In order of run and step; a crash is the last one."""
    unsettled: tuple[Key, ...] = ()
    """Results that differ between two equal runs: run, op, value."""
    examined: tuple[str, ...] = ()
    """Lines that say what was, and what was not."""

    @property
    def clean(self) -> bool:
        """Whether nothing was found."""
        return not self.incidents

    def report(self) -> str:
        """Return all incidents as text, a block of lines each, `clean` where there are none; and
        what was examined.
        """
        differing = f"{len(self.unsettled)} results differ between two equal runs; of them nothing is said"
        return told(self.program, self.incidents, self.examined, [differing] if self.unsettled else [])


def watched(
    program: Program | Any,
    plan: Slots,
    kernel: Kernel,
    *,
    runs: int = 2,
    skip: Sequence[Sequence[int | str]] = (),
    content: Mapping[str, Array] | None = None,
    twice: bool = False,
    forms: int = poison.FORMS,
    strict: bool = False,
    pages: Pages | None = None,
    every_op: bool | None = None,
    compiled: bool = False,
    seconds: float | None = None,
) -> Watched:
    """Run kernels in guarded memory, in a process of their own.

    Args:
        program: as `sanitized` takes it.
        plan: as `sanitized` takes it.
        kernel: what runs each op that is no view, uploads and downloads included.
        runs: how many runs; what one leaves vague the next one pins on its op.
        skip: for each run the uploads that are left out; none where it is shorter.
        content: as `sanitized` takes it.
        twice: look for undeclared reads by other forms of poison.
        forms: drawn forms that `twice` compares, beside dead bytes as they lay.
        strict: do what `twice` does, and run all once more with each buffer on pages of its own,
            ending at a guard page, and again beginning at one: what an op does not declare is a
            fault.
        pages: as `sanitized` takes it.
        every_op: as `sanitized` takes it.
        compiled: as `sanitized` takes it.
        seconds: the process is killed after so many, with all that it began, and that is a `Crash`;
            those in which a busy machine let it wait do not count (`allocsim.files.patience`).

    Raises:
        ModelError: as `sanitized`; where the kernel raised, with the op and what it said; or where
            the system cannot fork.
    """
    made = placed(program, plan)
    laid = {"content": content, "compiled": compiled, "every_op": every_op, "pages": pages}
    session = _Session(plan=made, kernel=kernel, runs=runs, skip=skip, laid=laid, seconds=seconds, forms=forms)
    first = session.child()
    found = _ended_well(made.program, first)
    if first.crash is None and (twice or strict):
        found = _compared(session, first)
    for ends in ("end", "begin") if strict else ():
        found = replace(found, incidents=_merged(found.incidents, session.child(pages=ends)))
    facts = Facts(program=made.program, origin=first.origin, size=first.size)
    lines = examined(facts, pages=pages, strict=strict, forms=forms if twice or strict else 0)
    return replace(found, examined=tuple(lines))


def _ended_well(program: Program, told: "_Told") -> Watched:
    """Return what a child found; raise ModelError where its kernel raised."""
    if told.raised:
        step = told.place[1]
        raise ModelError(f"ops[{step}]", f"({program.ops.names[step]}) raised {told.raised}")
    return Watched(program=program, incidents=told.incidents + (() if told.crash is None else (told.crash,)))


def _merged(known: tuple[Incident, ...], told: "_Told") -> tuple[Incident, ...]:
    """Return what is known and what a strict child adds: faults at other bytes, and what no other
    run has seen of an op; and take away writes that a thread turned out to have done that another
    op had left behind.
    """
    kinds = {(i.run, i.op, i.kind) for i in known}
    places = {(i.run, i.op, i.kind, i.buffer) for i in known if i.witness}
    found = told.incidents if told.crash is None else (*told.incidents, told.crash)
    more = [
        i
        for i in found
        if (i.witness and (i.run, i.op, i.kind, i.buffer) not in places) or (i.run, i.op, i.kind) not in kinds
    ]
    late = {(i.run, i.during) for i in more}
    known = tuple(i for i in known if i.witness or i.kind not in WRITES or (i.run, i.op) not in late)
    return tuple(sorted((*known, *more), key=lambda i: (i.run, i.step)))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Told:
    """What a child says at its end."""

    incidents: tuple[Incident, ...] = ()
    digests: dict[Key, bytes] = field(default_factory=dict)
    """Of each result up to its end."""
    crash: Incident | None = None
    raised: str = ""
    """What its kernel raised."""
    place: tuple[int, int] = (-1, -1)
    """Run and op at which it was last."""
    origin: tuple[int, ...] = ()
    """Where its buffers began, in memory of so many bytes."""
    size: int = 0

    @property
    def whole(self) -> bool:
        """Whether it came to its end."""
        return self.crash is None and not self.raised


Asked = tuple[Key, tuple[Range, ...]]
"""What a child stops at, and the dead bytes that op turned out to depend on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Session:
    """What a child is to do."""

    plan: Plan
    kernel: Kernel
    runs: int
    skip: Sequence[Sequence[int | str]]
    laid: Mapping[str, Any]
    seconds: float | None
    forms: int

    def child(self, other: Other | None = None, asked: Asked | None = None, pages: Pages | None = None) -> _Told:
        """Do all of it in a fork, with another form of poison in a range of the pool.

        Raises ModelError for an upload that does not exist.
        """
        arena = sanitized(
            self.plan.program, self.plan, other=other, **{**self.laid, "pages": pages or self.laid["pages"]}
        )
        for skip in self.skip:
            arena.steps_of(skip)
        told = in_child(partial(self._perform, arena, asked), seconds=self.seconds)
        digests = {
            key: digest for message in told.messages if isinstance(message, dict) for key, digest in message.items()
        }
        incidents = next((message for message in reversed(told.messages) if isinstance(message, tuple)), ())
        return _Told(
            incidents=incidents,
            digests=digests,
            crash=crash(arena.nearest, arena.base, self.plan.program, told) if told.how else None,
            raised=told.raised,
            place=told.place,
            origin=arena.origin,
            size=arena.size,
        )

    def _perform(self, arena: Sanitized, asked: Asked | None, child: KernelChild) -> None:
        """Send the digests of each op's results, and all incidents whenever there are more."""
        count = 0
        program = arena.program
        for run in range(self.runs):
            skip = self.skip[run] if run < len(self.skip) else ()
            left_out = set(arena.steps_of(skip))
            with arena.run(skip=skip):
                for op in program.ops:
                    if op.kind == VIEW or op.step in left_out:
                        continue
                    child.at(run, op.step)
                    with arena.op(op.step) as (operands, results):
                        self.kernel(op, operands, results)
                        images = {(run, op.step, value): arena.image(value) for value in op.results}
                        last = asked is not None and asked[0][:2] == (run, op.step)
                        if asked is not None and last and asked[1]:
                            arena.undeclared(op.step, asked[0][2], asked[1])
                    child.say({key: blake2b(image, digest_size=12).digest() for key, image in images.items()})
                    if len(arena.incidents) != count:
                        count = len(arena.incidents)
                        child.say(arena.incidents)
                    if last:
                        return
        child.say(arena.incidents)


# --- other forms of poison


def _compared(session: _Session, first: _Told) -> Watched:
    """Compare all results over one form of poison with those over the others."""
    program = session.plan.program
    suspects: dict[Key, int] = {}
    faults: dict[tuple[int, int], tuple[int, _Told]] = {}
    for form in (*range(1, session.forms + 1), poison.AS_IT_LAY):
        second = session.child(other=(0, EVERYTHING, form))
        keys, fault = _unexplained(program, first, second)
        for key in keys:
            suspects.setdefault(key, form)
        if fault:
            faults.setdefault(second.place, (form, second))
    if not suspects and not faults:
        return Watched(program=program, incidents=first.incidents)
    again = session.child()
    unsettled = tuple(key for key in first.digests if again.digests.get(key) != first.digests[key])
    # what a result that is not the same twice was handed on to is as unsettled
    found = list(first.incidents)
    for number, key in enumerate(sorted(suspects.keys() - set(unsettled))):
        found += _located(session, first, key, suspects[key]) if number < LOCATED else [_bare(program, key)]
    for form, second in faults.values():
        found += _fault(session, again, form, second)
    return Watched(program=program, incidents=tuple(sorted(found, key=lambda i: (i.run, i.step))), unsettled=unsettled)


def _unexplained(program: Program, first: _Told, second: _Told) -> tuple[list[Key], bool]:
    """Return the results that differ and whose op had the same operands, and nothing told of it;
    and whether the second ended early, at such an op. Results that it did not come to are not
    compared.
    """
    told = {(i.run, i.op) for i in first.incidents}
    owner = program.values.buffer.tolist()
    tainted: set[int] = set()

    def explained(run: int, step: int) -> bool:
        return (run, step) in told or any(owner[operand] in tainted for operand in program.ops[step].operands)

    found: list[Key] = []
    for key, digest in first.digests.items():
        run, step, value = key
        if key not in second.digests or second.digests[key] == digest:
            continue
        came_in = explained(run, step)
        tainted.add(owner[value])
        if not came_in:
            found.append(key)
    return found, not second.whole and second.place[1] >= 0 and not explained(*second.place)


def _fault(session: _Session, again: _Told, form: int, second: _Told) -> list[Incident]:
    """Return the incident of an op at which a child ended early over another form of poison.

    It read dead bytes if it ends there over that form once more, and never over the first.
    """
    run, step = second.place
    program = session.plan.program
    more = session.child(other=(0, EVERYTHING, form))
    sure = again.whole and not more.whole and more.place == second.place
    if not sure:
        return [] if second.crash is None else [_with_words(second.crash, ", not each time it ran")]
    why = ", only over other poison: it reads dead bytes that it does not declare"
    if second.crash is not None:
        return [_with_words(second.crash, why)]
    message = f"{op_words(program, step, run)} raised {second.raised}{why}"
    return [Incident(kind="UndeclaredRead", run=run, op=step, message=message)]


def _with_words(incident: Incident, words: str) -> Incident:
    return replace(incident, message=incident.message + words)


def _located(session: _Session, first: _Told, key: Key, form: int) -> list[Incident]:
    """Return the incidents of one undeclared read, with the dead bytes it read.

    The memory is taken in parts: the op's own results, and what lies before, between and behind
    them. Of each part that matters by itself the first and the last byte that do are looked for.
    """
    arena = sanitized(session.plan.program, session.plan, **session.laid)

    def differs(low: int, high: int) -> bool:
        told = session.child(other=(low, high, form), asked=(key, ()))
        if key in told.digests:
            return told.digests[key] != first.digests[key]
        return not told.whole and told.place == key[:2]

    own = _own(arena, key[1])
    edges = [0, *(edge for span in own for edge in span), arena.size]
    places: list[Range] = []
    for number, (low, high) in enumerate(pairwise(edges)):
        if low < high and differs(low, high):
            begin, end = _ends(differs, low, high)
            whole = number % 2 == 1 or end - begin < WIDEST
            places += [(begin, end + 1)] if whole else [(begin, begin + 1), (end, end + 1)]
    told = session.child(asked=(key, tuple(places))).incidents if places else ()
    named = [i for i in told if (i.run, i.op) == key[:2] and i not in first.incidents]
    return named or [_bare(session.plan.program, key)]


def _own(arena: Sanitized, step: int) -> list[Range]:
    """Return where in memory the results of an op lie, in order and apart; one stretch for all if
    they are many.
    """
    merged = union(span for value in arena.program.ops[step].results for span in arena.places(value))
    return merged if len(merged) <= PARTS else [(merged[0][0], merged[-1][1])]


def _ends(differs: Callable[[int, int], bool], low: int, high: int) -> Range:
    """Return the first and the last byte of a range that matter."""
    begin, stop, top = low, high, high
    while begin < stop - 1:  # the first byte that matters lies in [begin, stop)
        middle = (begin + stop) // 2
        begin, stop = (begin, middle) if differs(low, middle) else (middle, stop)
    end, stop = begin, top
    while end < stop - 1:  # the last one
        middle = (end + stop) // 2
        end, stop = (middle, stop) if differs(middle, top) else (end, middle)
    return begin, end


def _bare(program: Program, key: Key) -> Incident:
    run, step, value = key
    message = (
        f"{op_words(program, step, run)} reads dead bytes that it does not declare: {program.values.names[value]} "
        "depends on them"
    )
    return Incident(
        kind="UndeclaredRead", run=run, op=step, value=value, buffer=int(program.values.buffer[value]), message=message
    )


__all__ = ["Kernel", "Watched", "watched"]
