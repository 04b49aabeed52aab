"""Incidents in words: one line for lists, and a block of lines as memory sanitizers print it.

What this module does not see: how an incident was found.
"""

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Final

from allocsim.model import Program
from allocsim.p_sanitizer.incidents import KINDS, Incident
from allocsim.p_sanitizer.kernel_child import Told
from allocsim.p_sanitizer.pools import GUARD_BYTES
from allocsim.p_sanitizer.program_facts import Facts

Nearest = Callable[[int, int], tuple[int, str, int] | None]
"""As `Facts.nearest`."""

SHOWN: Final = 4
"""Byte ranges, or suspects, listed before the rest is counted."""


def tell(facts: Facts, incident: Incident) -> Incident:
    """Return the incident with its message."""
    return replace(
        incident,
        message=": ".join(part for part in (_headline(facts.program, incident), _found(facts, incident)) if part),
    )


def told(program: Program, incidents: Iterable[Incident], examined: Iterable[str], more: Iterable[str] = ()) -> str:
    """Return an answer: a block of lines for each incident, `clean` where there are none, and what
    was examined.
    """
    blocks = [describe(program, incident) for incident in incidents] + list(more)
    return "\n\n".join([*(blocks or ["clean"]), "\n".join(f"examined: {line}" for line in examined)]).rstrip()


def describe(program: Program, incident: Incident) -> str:
    """Return an incident as a block of lines: what happened, where the bytes lie, who wrote them,
    when they were released.
    """
    lines = [f"{incident.kind}: {KINDS[incident.kind]}", f"  {_headline(program, incident)}"]
    if not incident.bytes:
        return "\n".join(lines)
    known = incident.address is not None and incident.arena is not None
    where = f" at address {incident.address} of arena {incident.arena}" if known else ""
    lines.append(f"  bytes {_bytes(incident)} of {_whose(program, incident)}{where}")
    if incident.kind in ("StaleRead", "OverwrittenRead"):
        lines.append(f"  wanted: what {op_words(program, incident.want_op, incident.want_run)} wrote")
    if incident.held_value is not None:
        name = program.values.names[incident.held_value]
        lines.append(f"  there was: {name}, written by {op_words(program, incident.held_op, incident.held_run)}")
    if incident.released_op is not None:
        lines.append(f"  released after {op_words(program, incident.released_op)}, the last to use it")
    if incident.suspects is not None:
        lines.append(f"  one of: {suspects_words(program, incident)}")
    return "\n".join(lines)


def crash(nearest: Nearest, base: int, program: Program, child: Told) -> Incident:
    """Return the incident of a child that died in the middle of an op of `program`, in memory that
    begins at an address.
    """
    (run, step), address = child.place, child.address
    message = f"{op_words(program, step, run) if step >= 0 else 'the process'} {child.how}"
    incident = Incident(kind="Crash", run=max(run, 0), op=step, message=message)
    if address is None:
        return incident
    near = nearest(address - base, step)
    far = near is None or near[2] > 2 * GUARD_BYTES
    where = "far from all memory of the arena" if near is None or far else near[1]
    return replace(
        incident, buffer=None if near is None or far else near[0], message=f"{message} at address {address:#x}, {where}"
    )


def op_words(program: Program, op: int | None, run: int | None = None) -> str:
    """Name an op with its kind, layer and run."""
    if op is None:
        return "the content laid before the first run"
    layer = program.ops.meta.get(op, {}).get("layer")
    kind = program.ops.kinds[program.ops.kind[op]]
    name = program.ops.names[op]
    parts = [f"op {op}", f"({name})" if name == kind else f"({name}, {kind})"]
    if layer is not None:
        parts.append(f"of layer {layer}")
    if run:
        parts.append(f"in run {run}")
    return " ".join(parts)


def suspects_words(program: Program, incident: Incident) -> str:
    """List the suspects, the first few by name."""
    low, high = incident.suspects or (0, 0)
    named = ", ".join(op_words(program, op) for op in range(low, min(high, low + SHOWN)))
    more = high - low - SHOWN
    return f"{named}{f' and {more} more' if more > 0 else ''}" if high > low else "no op; the host, between two runs"


def _headline(program: Program, incident: Incident) -> str:
    run = f" of run {incident.run}" if incident.run else ""
    if not incident.bytes and incident.message:
        return incident.message
    if incident.op is None:
        return (
            f"bytes {_bytes(incident)} of {_whose(program, incident)} changed{run}; one of: "
            f"{suspects_words(program, incident)}"
        )
    who = op_words(program, incident.op) + run
    what = f"bytes {_bytes(incident)} of {_whose(program, incident)}"
    verb = {
        "UninitialisedRead": f"reads {what}, which nobody wrote",
        "OverwrittenRead": f"reads {what} after another value was written over them",
        "StaleRead": f"reads {what}; they are another's by now",
        "PoisonRead": f"has poison in {what} and in no operand",
        "UndeclaredRead": f"reads {what}, which it does not declare",
        "ResultUnwritten": f"leaves {what} unwritten",
        "Overrun": f"writes {what}, outside its results",
        "OperandWritten": f"writes {what}, its operand",
        "ReadOnlyWritten": f"writes {what}, which is read-only",
    }
    return f"{who} {verb[incident.kind]}{f' ({incident.witness})' if incident.witness else ''}"


def _found(facts: Facts, incident: Incident) -> str:
    program = facts.program
    if incident.held_value is None or incident.kind == "UninitialisedRead":
        return ""
    name = program.values.names[incident.held_value]
    writer = op_words(program, incident.held_op, incident.held_run)
    if incident.kind in ("StaleRead", "OverwrittenRead"):
        return (
            f"{writer} wrote {name} there; wanted is what {op_words(program, incident.want_op, incident.want_run)} "
            "wrote"
        )
    if incident.released_op is not None:
        return f"{name} was there, written by {writer}, released after {op_words(program, incident.released_op)}"
    return f"{name} is there, written by {writer}"


def _whose(program: Program, incident: Incident) -> str:
    if incident.buffer is not None:
        return program.buffers.names[incident.buffer]
    if incident.arena is None:
        return "the red zone of a buffer outside the arenas"
    return f"arena {program.arenas[incident.arena].name}, held by nobody"


def _bytes(incident: Incident) -> str:
    shown = ", ".join(f"[{low}, {high})" for low, high in incident.bytes[:SHOWN])
    more = len(incident.bytes) - SHOWN
    return f"{shown}{f' and {more} more' if more > 0 else ''}"
