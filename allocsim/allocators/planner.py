"""What a planner is: a belief and a placement under one name, and what each may return.

A *belief* is a function `(Program, Constraints) -> Problem`, a *placement* a function
`(Problem) -> Plan`. All a placement needs, alignments, arenas and capacities, is reachable as
`problem.program`. `Allocator` joins one of each.

Whatever a planner returns is looked at before it is passed on, because it may be a stranger's:
type, program, length, whole numbers, capacity. What is wrong in one of these ways is no plan and
raises `PlannerError` in one line with the allocator's name. What is merely *unsound* is a plan;
`allocsim.judge` judges it.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Protocol

import numpy as np

from allocsim.allocators.constraints import Constraints
from allocsim.errors import AllocsimError, ExceededError, ModelError, PlannerError
from allocsim.model import Bools, Plan, Problem, Program
from allocsim.plugins import not_found
from allocsim.programs.builder import plan_of

Belief = Callable[[Program, Constraints], Problem]
Placement = Callable[[Problem], Plan]

GUARANTEES: Final[dict[str, str]] = {
    "sound": "every plan for an honest program is clean",
    "no_reuse": "no two buffers share a byte",
    "deterministic": "gives the same answer to the same question, in every process",
    "streams": "every plan is clean where ops of several streams do not wait for each other, too",
    "at_most_reference": "needs no more bytes than `reference`, each buffer rounded up to its alignment",
    "rename": "other names move no slot",
    "permute": "buffers numbered otherwise change no peak, where all alignments are the arena's",
    "split_arena": "no slot moves for what lies in another arena",
    "add_pin": "one pin more lowers no peak",
    "enlarge": "a larger buffer lowers no peak",
    "monotone": "a longer life lowers no peak",
}
"""What an allocator may promise; the tests hold it to it."""


class Planner(Protocol):
    """What `find` returns: something with a name that makes plans."""

    @property
    def name(self) -> str:
        """The name it was found under."""
        ...

    def plan(self, program: Program, constraints: Constraints | None = None) -> Plan:
        """Return a plan for `program`."""
        ...

    def place(self, problem: Problem) -> Plan:
        """Return a plan for a problem that is already believed."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Allocator:
    """A belief and a placement under one name."""

    name: str
    belief: Belief
    placement: Placement
    guarantees: tuple[str, ...] = ()
    """Names from `GUARANTEES`."""
    source: str = ""
    """Where the algorithm comes from: paper, file, version."""

    def believe(self, program: Program, constraints: Constraints | None = None) -> Problem:
        """Return what this planner thinks of `program`.

        The default constraints are `Constraints.of(program)`.
        """
        told = constraints if constraints is not None else Constraints.of(program)
        return a_problem(self.name, program, call(self.name, self.belief, program, told))

    def place(self, problem: Problem) -> Plan:
        """Place a problem, believed by this planner or by another.

        Raises CapacityError where it does not fit into the arenas (ExceededError where the
        placement did not notice) and PlannerError where the placement fails otherwise.
        """
        return a_plan(self.name, problem.program, call(self.name, self.placement, problem), problem=problem)

    def plan(self, program: Program, constraints: Constraints | None = None) -> Plan:
        """Return the plan, with its `problem` and its `source`; errors as `place`."""
        return self.place(self.believe(program, constraints))


def plan_program(
    planner: Planner, program: Program, *, believed: Problem | None = None, constraints: Constraints | None = None
) -> Plan:
    """Return the planner's plan for a program of a document that may carry a problem for it.

    The planner is told `constraints`, by default those of `believed`, and believes the rest anew;
    but a program without ops says nothing that could be believed, and then `believed` is placed as
    it stands (a solver's instance, a snapshot). Errors as `Allocator.place`.
    """
    if constraints is None:
        constraints = Constraints.of(program) if believed is None else Constraints.from_problem(believed)
    if believed is None or len(program.ops):
        return planner.plan(program, constraints)
    told = constraints
    return planner.place(replace(believed, pinned=told.pinned, own=told.own, fixed=told.fixed))


def a_problem(name: str, program: Program, answer: Any) -> Problem:
    """Return `answer` if it is a problem of `program`.

    Raise PlannerError in the name of the allocator if not.
    """
    if not isinstance(answer, Problem):
        raise PlannerError(f"allocator {name!r} returned {_what(answer)}; a belief returns a Problem")
    if answer.program is not program:
        raise PlannerError(f"allocator {name!r} returned a problem of another program ({answer.program.name!r})")
    for column in ("start", "stop", "nbytes", "order", "may_share"):
        _whole(name, column, getattr(answer, column))
    for column in ("pinned", "own"):
        if getattr(answer, column).dtype != np.bool_:
            raise PlannerError(f"allocator {name!r} returned a problem whose {column} is no mask")
    return answer


def a_plan(
    name: str, program: Program, answer: Any, *, problem: Problem | None = None, own: Bools | None = None
) -> Plan:
    """Return `answer` as a plan of `program`: a Plan as it is, offsets (by position or by buffer)
    as slots.

    `own` are the buffers for which no offset is asked; by default those of `problem`. A plan that
    names no problem and no source is given `problem` and `name`. Raises PlannerError for anything
    else and ExceededError for a slot beyond its arena's capacity.
    """
    if isinstance(answer, Plan):
        if answer.program is not program:
            raise PlannerError(f"allocator {name!r} returned a plan for another program ({answer.program.name!r})")
        for column in ("arena", "offset", "nbytes", "events"):
            _whole(name, f"slots' {column}", getattr(answer, column))
        plan = answer
    else:
        apart = own if own is not None else problem.own if problem is not None else program.buffers.persistent
        plan = _of_offsets(name, program, apart.tolist(), answer)
    _within_capacity(name, plan)
    if plan.problem is None and problem is not None:
        plan = replace(plan, problem=problem)
    return plan if plan.source else replace(plan, source=name)


def _of_offsets(name: str, program: Program, own: Sequence[bool], answer: Any) -> Plan:
    count = len(own)
    if isinstance(answer, np.ndarray):
        answer = answer.tolist()
    if isinstance(answer, Mapping):
        stray = [
            key
            for key in answer
            if isinstance(key, bool) or not isinstance(key, int | np.integer) or not 0 <= key < count
        ]
        if stray:
            raise PlannerError(
                f"allocator {name!r} placed buffer {stray[0]!r}, which does not exist; there are {count}"
            )
        answer = [answer.get(buffer) for buffer in range(count)]
    if not isinstance(answer, Sequence) or isinstance(answer, str | bytes):
        raise PlannerError(
            f"allocator {name!r} returned {_what(answer)}; a plan, or an offset for each buffer, is needed"
        )
    if len(answer) != count:
        raise PlannerError(f"allocator {name!r} returned {len(answer)} offsets; the program has {count} buffers")
    slots: list[int | str | None] = []
    for buffer, offset in enumerate(answer):
        if offset is None or (isinstance(offset, str) and offset == "own"):
            slots.append("own" if own[buffer] else offset)
        elif isinstance(offset, bool) or not isinstance(offset, int | np.integer):
            raise PlannerError(
                f"allocator {name!r} put buffer {buffer} at {_what(offset)}; an offset is a whole number of bytes"
            )
        else:
            slots.append(int(offset))
    try:
        return plan_of(program, slots)
    except (ModelError, OverflowError) as error:
        raise PlannerError(f"allocator {name!r} returned offsets that make no plan: {error}") from error


def _within_capacity(name: str, plan: Plan) -> None:
    for index, arena in enumerate(plan.program.arenas):
        if arena.capacity is None:
            continue
        over = np.flatnonzero((plan.arena == index) & (plan.offset + plan.nbytes > arena.capacity))
        if over.size:
            buffer = int(over[0])
            end = int(plan.offset[buffer] + plan.nbytes[buffer])
            rule = f"ends at byte {end} of arena {arena.name!r}, which has {arena.capacity}"
            raise ExceededError(f"allocator {name!r}: buffer {buffer} ({plan.program.buffers.names[buffer]!r}) {rule}")


def call(name: str, function: Callable[..., Any], *arguments: Any, **keywords: Any) -> Any:
    """Call a planner's function.

    Whatever it raises becomes a PlannerError in the name of the allocator.
    """
    try:
        return function(*arguments, **keywords)
    except AllocsimError as error:
        if isinstance(error, PlannerError):
            raise
        raise PlannerError(f"allocator {name!r}: {error}") from error
    except ModuleNotFoundError as error:
        raise PlannerError(f"allocator {name!r}: {not_found(error)}") from error
    except (Exception, SystemExit) as error:
        raise PlannerError(f"allocator {name!r} raised {in_a_line(error)}") from error


def in_a_line(error: BaseException) -> str:
    """Return type and message of an exception in one line of bounded length."""
    line = " ".join(str(error).split())[:200]
    return f"{type(error).__name__}: {line}" if line else type(error).__name__


def _whole(name: str, what: str, column: Any) -> None:
    if not isinstance(column, np.ndarray) or not np.issubdtype(column.dtype, np.integer):
        kind = column.dtype if isinstance(column, np.ndarray) else type(column).__name__
        raise PlannerError(f"allocator {name!r} returned {what} of {kind}; whole numbers are needed")


def _what(answer: Any) -> str:
    """Name a wrong answer in a few words: its value where that is short, its type where it is
    not.
    """
    shown = repr(answer)
    return shown if isinstance(answer, int | float | str | None) and len(shown) <= 40 else f"a {type(answer).__name__}"
