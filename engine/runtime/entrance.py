"""The one entrance of plans into the engine: a plan is judged by `allocsim.judge` before anything
runs in the memory it gives.

    plan = planned("mine:plan", program)    # plan, judge; PlannerError in one line, with the first violation, for a plan that is not sound
    admit(plan)                             # judge a plan that came from elsewhere

Whoever binds a plan asks here: `engine.Runtime`, the front's backward, the trainer. Who looks at
what an unsound plan *does* says so (`Runtime(..., suspect=True)`): the differential runs, the
sanitizer, replays, the modes of `repro`; their findings stand beside the judge's.

A plan is judged once: what was found sound is remembered by the object (as long as it lives) and,
for the `KEPT` latest, by a hash of everything the judge looks at, so that a structure met again is
not judged again. O(columns) for a plan that is known, else as the judge (`check`). What comes
back has slots in memory of its own, so that nobody who made the plan can change it after it was
judged; a plan whose slots somebody else may write is judged by its content each time. Safe from any
number of threads.

What this module does not see: how the judge judges, and what planners do.
"""

from collections import OrderedDict
from dataclasses import fields, replace
from hashlib import blake2b
from threading import Lock
from typing import Any, Final
from weakref import WeakSet

import numpy as np

from allocsim.allocators import Planner, find
from allocsim.diagnostics import check
from allocsim.errors import ModelError, PlannerError
from allocsim.model import Document, Plan, Program
from allocsim.programs.fingerprints import fingerprint, fingerprint_of, same_program

KEPT: Final = 256

_lock: Final = Lock()
_sound: Final[WeakSet[Plan]] = WeakSet()
_known: Final[OrderedDict[bytes, None]] = OrderedDict()


def planned(planner: str | Planner, program: Program) -> Plan:
    """Return the sound plan that a planner makes of a program.

    Raises PlannerError where it makes none or one that is not sound, UnknownNameError where there
    is no such planner.
    """
    asked = find(planner) if isinstance(planner, str) else planner
    return admit(asked.plan(program), by=asked.name)


def planned_once(plans: dict[str, Plan], planner: Planner, program: Program) -> Plan:
    """Return the plan of a program out of a table by fingerprint; it is made where there is none.

    Raises PlannerError as `planned` does, and where the plan is of another program.
    """
    key = fingerprint(program)
    if key not in plans:
        made = planned(planner, program)
        if fingerprint_of(made) != key:
            raise PlannerError(f"{planner.name}: the plan is for {fingerprint_of(made)}, the program is {key}")
        plans[key] = made
    return carried(plans[key], program)


def admit(plan: Plan, *, by: str = "") -> Plan:
    """Return the plan, its slots in memory of its own, if it is sound.

    Raise PlannerError with the first violation if not, in the name of `by` (its source by default).
    """
    with _lock:
        if plan in _sound:
            return plan
    plan = _owned(plan)
    key = _key(plan)
    with _lock:
        known = key in _known
    if not known:
        _judge(plan, by or plan.source or "a planner without a name")
    with _lock:
        _sound.add(plan)
        _known[key] = None
        _known.move_to_end(key)
        while len(_known) > KEPT:
            _known.popitem(last=False)
    return plan


def carried(plan: Plan, program: Program) -> Plan:
    """Return a plan that was admitted as one of another program of the same fingerprint, with its
    belief: it is as sound there.
    """
    if plan.program is program:
        return admit(plan)
    if not same_program(plan.program, program):
        raise PlannerError(
            f"{plan!r} is not a plan of {program!r}: made for {fingerprint(plan.program)}, not for "
            f"{fingerprint(program)}"
        )
    admit(plan)
    problem = None if plan.problem is None else replace(plan.problem, program=program)
    made = replace(plan, program=program, problem=problem)
    with _lock:
        _sound.add(made)
    return made


def _owned(plan: Plan) -> Plan:
    """Return the plan with slots of its own memory: itself where nobody else can write them."""
    slots = {
        field.name: value
        for field in fields(plan)
        if isinstance(value := getattr(plan, field.name), np.ndarray) and value.base is not None
    }
    if not slots:
        return plan
    own: dict[str, Any] = {name: value.copy() for name, value in slots.items()}
    for array in own.values():
        array.flags.writeable = False
    return replace(plan, **own)


def _judge(plan: Plan, maker: str) -> None:
    try:
        report = check(Document.of(plan), limit=1)
    except ModelError as error:
        raise PlannerError(
            f"{maker}: the plan of program {plan.program.name!r} cannot be judged, so it is not run: {error}"
        ) from None
    if report.violations:
        first = report.violations[0]
        more = f" (the first of {report.count})" if report.count > 1 else ""
        raise PlannerError(
            f"{maker}: the plan of program {plan.program.name!r} is not sound: {first.kind}: {first.message}{more}"
        )


def _key(plan: Plan) -> bytes:
    """Return a hash of all a judge sees: the program's fingerprint, slots, events and belief."""
    state = blake2b(fingerprint(plan.program, ()).encode(), digest_size=20)
    for part in (plan, plan.problem):
        if part is None:
            continue
        for field in fields(part):
            value = getattr(part, field.name)
            if isinstance(value, np.ndarray):
                state.update(f"{field.name} {value.dtype.str} {value.shape}".encode())
                state.update(np.ascontiguousarray(value).tobytes())
            elif field.name in ("fixed", "gaps"):
                state.update(f"{field.name} {sorted(value.items())}".encode())
    return state.digest()
