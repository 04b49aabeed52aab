"""Why a buffer lives when and where it does: `explain`, for people and for `allocsim explain`.

The record has the facts (steps, values and buffers by index); its `text` has them in words, one
fact in a line. Lifetimes and permissible pairs are those of `allocsim.liveness`. With a plan it
also names the buffers that have the same bytes before, while and after the buffer lives; with a
problem, the believed lifetime, and whether that leaves out an access.

What this module does not see: bytes within a buffer. Sharing is judged by whole slots;
`allocsim.judge` judges bytes.
"""

from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from allocsim.errors import ModelError, UnknownNameError
from allocsim.liveness import lifetimes, permissible_pairs
from allocsim.model import HOST_READ, OWN, UNPLACED, VIEW, Plan, Problem, Program, Role
from allocsim.model.layout import Int64s
from allocsim.programs.networkx_graph import as_program

LISTED: Final = 12
"""Most readers, views and neighbours that `text` names; the record has all of them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reader:
    """One read of a buffer."""

    step: int
    value: int
    op: str
    """Name of the op."""
    view: bool
    """Whether the op reads a view, which is a value that an op of kind `view` made."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """Why a buffer lives when and where it does."""

    buffer: int
    name: str
    start: int
    stop: int
    """The derived lifetime is `[start, stop)`."""
    writers: tuple[int, ...]
    """Steps that write the buffer; it lives from the first one on."""
    readers: tuple[Reader, ...]
    pins: tuple[int, ...]
    """Steps of `host.read` ops that read the buffer."""
    donors: tuple[int, ...]
    """Buffers whose bytes it may take at its first op; with a plan, those whose bytes it takes."""
    recipients: tuple[int, ...]
    """Buffers that may take its bytes at its last op; with a plan, those that take them."""
    before: tuple[int, ...]
    """Buffers that, under the plan, have some of its bytes before it lives."""
    after: tuple[int, ...]
    """Buffers that, under the plan, have some of its bytes after it lives."""
    conflicts: tuple[int, ...]
    """Buffers that, under the plan, have some of its bytes while it lives, without donors and
    recipients.
    """
    text: str
    """All facts in words."""


def explain(program: Any, buffer: int | str, plan: Plan | None = None, problem: Problem | None = None) -> Explanation:
    """Return why `buffer` (index or name) of a program or DiGraph lives when it does and, given a
    plan, where.

    O(size of the program). Raises ModelError for an index that does not exist or a plan of another
    program, UnknownNameError for an unknown name. If several buffers have the name, the first is
    explained and the text says so.
    """
    program = as_program(program)
    index = _resolve(program, buffer)
    for what, part in (("plan", plan), ("problem", problem)):
        if part is not None and part.program is not program:
            raise ModelError(what, "was made for another program")
    if problem is None and plan is not None:
        problem = plan.problem
    facts = _facts(program, index, plan)
    return Explanation(**facts, text="\n".join(_lines(program, facts, plan, problem)))


def _resolve(program: Program, buffer: int | str) -> int:
    names, count = program.buffers.names, len(program.buffers)
    if isinstance(buffer, str) and buffer in names:
        return names.index(buffer)
    if isinstance(buffer, str) and not buffer.isdecimal():
        raise UnknownNameError("buffer", buffer, names)
    if not 0 <= int(buffer) < count:
        raise ModelError("", f"buffer {buffer} does not exist; there are {count}")
    return int(buffer)


def _facts(program: Program, buffer: int, plan: Plan | None) -> dict[str, Any]:
    ops, owner = program.ops, program.values.buffer
    made_by_view = np.zeros(len(program.values), dtype=np.bool_)
    made_by_view[ops.results[np.repeat(ops.is_kind(VIEW), np.diff(ops.result_starts))]] = True
    acts = ~ops.is_kind(VIEW)
    steps = np.arange(len(ops))
    read_at = np.repeat(steps, np.diff(ops.operand_starts))
    written_at = np.repeat(steps, np.diff(ops.result_starts))
    reads = np.flatnonzero((owner[ops.operands] == buffer) & acts[read_at])
    readers = tuple(
        Reader(step=step, value=value, op=ops.names[step], view=bool(made_by_view[value]))
        for step, value in zip(read_at[reads].tolist(), ops.operands[reads].tolist(), strict=True)
    )
    host = ops.is_kind(HOST_READ)
    span = lifetimes(program)
    pairs = permissible_pairs(program)
    pairs = pairs[program.buffers.arena[pairs[:, 1]] == program.buffers.arena[pairs[:, 2]]]
    donors = set(pairs[pairs[:, 2] == buffer, 1].tolist())
    recipients = set(pairs[pairs[:, 1] == buffer, 2].tolist())
    sharers = _sharers(program, span, plan, buffer)
    shared = {other for group in sharers.values() for other in group}
    if plan is not None:
        donors, recipients = donors & shared, recipients & shared
    return {
        "buffer": buffer,
        "name": program.buffers.names[buffer],
        "start": int(span[buffer, 0]),
        "stop": int(span[buffer, 1]),
        "writers": tuple(np.unique(written_at[(owner[ops.results] == buffer) & acts[written_at]]).tolist()),
        "readers": readers,
        "pins": tuple(dict.fromkeys(reader.step for reader in readers if host[reader.step])),
        "donors": tuple(sorted(donors)),
        "recipients": tuple(sorted(recipients)),
        "before": sharers["before"],
        "after": sharers["after"],
        "conflicts": tuple(other for other in sharers["while"] if other not in donors | recipients),
    }


def _sharers(program: Program, span: Int64s, plan: Plan | None, buffer: int) -> dict[str, tuple[int, ...]]:
    """Return the buffers whose slots share bytes with this one's, by when they live.

    Nearest in time first.
    """
    if plan is None or plan.arena[buffer] < 0:
        return {"before": (), "while": (), "after": ()}
    size = program.buffers.nbytes
    low, last = plan.offset, plan.offset + (size - 1)  # ends may be 2^63, one too many for 64 bits
    meets = (plan.arena == plan.arena[buffer]) & (low <= last[buffer]) & (low[buffer] <= last)
    meets &= (size > 0) & (size[buffer] > 0) & (span[:, 1] > span[:, 0])
    meets[buffer] = False
    start, stop = span[buffer]
    before, after = meets & (span[:, 1] <= start), meets & (span[:, 0] >= stop)
    return {
        "before": _sorted(before, -span[:, 1]),
        "while": _sorted(meets & ~before & ~after, span[:, 0]),
        "after": _sorted(after, span[:, 0]),
    }


def _sorted(mask: Any, key: Int64s) -> tuple[int, ...]:
    found = np.flatnonzero(mask)
    return tuple(found[np.argsort(key[found], kind="stable")].tolist())


def _lines(program: Program, facts: dict[str, Any], plan: Plan | None, problem: Problem | None) -> list[str]:
    buffer = facts["buffer"]
    names, sizes = program.buffers.names, program.buffers.nbytes
    role = Role(int(program.buffers.role[buffer])).name.lower()
    lines = [f"buffer {buffer} {names[buffer]!r}: {sizes[buffer]} bytes, {role}"]
    twins = names.count(names[buffer]) - 1
    if twins:
        lines.append(
            f"{twins} more {'buffer has' if twins == 1 else 'buffers have'} this name; this is the one with "
            f"index {buffer}"
        )
    lines += _time_lines(program, facts)
    lines += _readers_lines(facts["readers"], program)
    alone = plan is None
    donors, recipients = _some(facts["donors"], names), _some(facts["recipients"], names)
    if donors:
        lines.append(
            f"in place: {'may take' if alone else 'takes'} the bytes of {donors}, read for the last time by "
            "its first op"
        )
    if recipients:
        lines.append(
            f"in place: {'may give' if alone else 'gives'} its bytes to {recipients}, first written by its last op"
        )
    if plan is not None:
        lines += _place_lines(program, facts, plan)
    if problem is not None:
        lines += _belief_lines(facts, problem)
    return lines


def _time_lines(program: Program, facts: dict[str, Any]) -> list[str]:
    start, stop = facts["start"], facts["stop"]
    if program.buffers.persistent[facts["buffer"]]:
        return [f"lives [{start}, {stop}): the whole program, because its content persists from run to run"]
    if start == stop:
        return ["never lives: no op reads or writes it"]
    last_reader = facts["readers"][-1].step if facts["readers"] else -1
    deed = "read" if last_reader == stop - 1 else "written and then read by nobody"
    if stop - 1 in facts["pins"]:
        deed = "read by the host, which pins it until then"
    born = "is first written" if start in facts["writers"] else "is read before anything writes it"
    return [f"lives [{start}, {stop}): {born} by {_op(program, start)} and last {deed} by {_op(program, stop - 1)}"]


def _readers_lines(readers: tuple[Reader, ...], program: Program) -> list[str]:
    lines = []
    for reader in readers[:LISTED]:
        through = "through the view" if reader.view else "as"
        lines.append(f"read by {_op(program, reader.step)} {through} {program.values.names[reader.value]!r}")
    if len(readers) > LISTED:
        lines.append(f"and {len(readers) - LISTED} more reads")
    return lines


def _place_lines(program: Program, facts: dict[str, Any], plan: Plan) -> list[str]:
    buffer, names = facts["buffer"], program.buffers.names
    arena = int(plan.arena[buffer])
    if arena == OWN:
        return ["has memory of its own, outside all arenas"]
    if arena == UNPLACED:
        return ["has no slot"]
    offset = int(plan.offset[buffer])
    lines = [f"lies at [{offset}, {offset + int(plan.nbytes[buffer])}) of arena {program.arenas[arena].name!r}"]
    for key, phrase in (
        ("before", "its bytes belonged before it to"),
        ("after", "its bytes go after it to"),
        ("conflicts", "CONFLICT: while it lives, some of its bytes are also those of"),
    ):
        if facts[key]:
            lines.append(f"{phrase} {_some(facts[key], names)}")
    return lines


def _belief_lines(facts: dict[str, Any], problem: Problem) -> list[str]:
    buffer = facts["buffer"]
    start, stop = int(problem.start[buffer]), int(problem.stop[buffer])
    told = [word for word, mask in (("pinned", problem.pinned), ("own memory", problem.own)) if mask[buffer]]
    lines = [f"believed to live [{start}, {stop}){''.join(f', {word}' for word in told)}"]
    if facts["start"] < facts["stop"] and not problem.pinned[buffer]:
        missed = [
            step
            for step in (*facts["writers"], *(reader.step for reader in facts["readers"]))
            if not start <= step < stop
        ]
        if missed:
            lines.append(f"TOO SHORT: that leaves out its access at step {min(missed)}")
    return lines


def _op(program: Program, step: int) -> str:
    return f"op {step} {program.ops.called(step)!r}"


def _some(buffers: tuple[int, ...], names: tuple[str, ...]) -> str:
    shown = [f"{buffer} {names[buffer]!r}" for buffer in buffers[:LISTED]]
    return ", ".join(shown) + (f" and {len(buffers) - LISTED} more" if len(buffers) > LISTED else "")
