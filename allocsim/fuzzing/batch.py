"""A batch: many small programs as one, so that one call of the planner or the judge serves all.

A batch is a program in which the programs stand one after another: disjoint in time, in buffers and
in values, and each with arenas of its own, so disjoint in space as well. No byte, step or name is
shared, so the judge finds in the batch exactly the violations it finds in the programs, and says of
each at which op, value and buffer, that is, in which program. It is the same check: a batch is
nothing but a program.

What is not the same: a lifetime that ends with the program ends with the batch, for parameters,
states and pins. In arenas of their own nothing else is there to meet them. Warnings
(`LifetimeTooLong`) may therefore differ; violations do not (a law in the tests). Judging is quicker
with few arenas; `flat` lays those of all programs side by side.

Complexity: O(columns) to join and to cut. What this module does not see: where programs come from,
and what a plan is worth.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any, Final, TypeVar

import numpy as np

from allocsim.errors import ModelError
from allocsim.judge.fast import Defects, defects
from allocsim.model import OWN, Arena, Buffers, Document, Ops, Plan, Problem, Program, Values
from allocsim.model.layout import Int64s

T = TypeVar("T")

SEVERAL: Final = "batch"
"""Name of a batch's program."""

LISTED: Final = 500
"""Violations a program, on average, that are listed to see which programs they are of."""

FAR: Final = 1 << 40
"""Bytes beyond which no honest small program is laid."""


NOTHING: Final = Arena(name="nothing")
"""An arena in which there is nothing, of a program that has fewer than others of its batch."""


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Batch:
    """Programs joined; program k has the ops `op_starts[k]:op_starts[k + 1]`, and so on."""

    program: Program
    op_starts: Int64s
    buffer_starts: Int64s
    value_starts: Int64s
    arenas: int
    """Arenas of each program; those of program k are `k * arenas` and the following."""
    own: tuple[tuple[int, int], ...] = ()
    """Arenas and streams that each program has itself, where not all have the same."""
    plain: bool = False
    """Whether the plain checks alone say which programs are sound, and no filter selects before."""

    def __len__(self) -> int:
        return len(self.op_starts) - 1

    @property
    def owner(self) -> Int64s:
        """The program of each buffer."""
        return np.repeat(np.arange(len(self)), np.diff(self.buffer_starts))

    def __getitem__(self, index: int) -> Program:
        """Return one program as it was before, but for persistent names and `meta`. O(its size)."""
        whole = self.program
        ops, buffers, values = (
            slice(int(s[index]), int(s[index + 1])) for s in (self.op_starts, self.buffer_starts, self.value_starts)
        )
        dims = slice(int(whole.values.dim_starts[values.start]), int(whole.values.dim_starts[values.stop]))
        rows = {
            name: slice(int(starts[ops.start]), int(starts[ops.stop]))
            for name, starts in (
                ("operands", whole.ops.operand_starts),
                ("results", whole.ops.result_starts),
                ("in_place", whole.ops.in_place_starts),
                ("after", whole.ops.after_starts),
            )
        }
        kinds, kind = np.unique(whole.ops.kind[ops], return_inverse=True)
        arenas, streams = self.own[index] if self.own else (self.arenas, len(whole.streams))
        return trusted(
            Program,
            name=f"{whole.name}[{index}]",
            arenas=whole.arenas[index * self.arenas : index * self.arenas + arenas],
            streams=whole.streams[:streams],
            version=whole.version,
            path="",
            meta={},
            buffers=trusted(
                Buffers,
                names=whole.buffers.names[buffers],
                nbytes=whole.buffers.nbytes[buffers],
                alignment=whole.buffers.alignment[buffers],
                arena=whole.buffers.arena[buffers] - np.int32(index * self.arenas),
                role=whole.buffers.role[buffers],
                read_only=whole.buffers.read_only[buffers],
                nbytes_range={
                    buffer - buffers.start: ends
                    for buffer, ends in whole.buffers.nbytes_range.items()
                    if buffers.start <= buffer < buffers.stop
                },
                meta={},
            ),
            values=trusted(
                Values,
                names=whole.values.names[values],
                buffer=whole.values.buffer[values] - np.int32(buffers.start),
                dtype=whole.values.dtype[values],
                offset=whole.values.offset[values],
                dim_starts=whole.values.dim_starts[values.start : values.stop + 1] - dims.start,
                shape=whole.values.shape[dims],
                strides=whole.values.strides[dims],
                bit_offset=whole.values.bit_offset[values],
                meta={},
            ),
            ops=trusted(
                Ops,
                names=whole.ops.names[ops],
                kinds=tuple(whole.ops.kinds[code] for code in kinds.tolist()),
                kind=kind.astype(np.int32),
                operand_starts=whole.ops.operand_starts[ops.start : ops.stop + 1] - rows["operands"].start,
                operands=whole.ops.operands[rows["operands"]] - np.int32(values.start),
                result_starts=whole.ops.result_starts[ops.start : ops.stop + 1] - rows["results"].start,
                results=whole.ops.results[rows["results"]] - np.int32(values.start),
                in_place_starts=whole.ops.in_place_starts[ops.start : ops.stop + 1] - rows["in_place"].start,
                in_place=whole.ops.in_place[rows["in_place"]],
                in_place_strength=whole.ops.in_place_strength[rows["in_place"]],
                in_place_known=whole.ops.in_place_known[ops],
                stream=whole.ops.stream[ops],
                after_starts=whole.ops.after_starts[ops.start : ops.stop + 1] - rows["after"].start,
                after=whole.ops.after[rows["after"]] - np.int32(ops.start),
                meta={},
            ),
        )

    def blamed(self, report: Defects) -> list[int]:
        """Return, in order, the programs in which a report on this batch lists a violation."""
        return sorted({self._home(violation) for violation in report.violations})

    def unsound(self, laid: Plan) -> list[int]:
        """Return, in order, the programs with a violation under a plan that `flat` laid: one check.

        Where it lists not all it counts, a second check lists them; where they are more than
        `LISTED` a program, all programs are returned.
        """
        report = defects(Document.of(laid), plain=self.plain)
        if report.truncated or report.count > LISTED * len(self):
            return list(range(len(self)))
        if report.count > len(report.violations):
            report = defects(Document.of(laid), limit=report.count, plain=self.plain)
        return self.blamed(report)

    def _home(self, violation: Any) -> int:
        for row, starts in ((violation.buffer, self.buffer_starts), (violation.op, self.op_starts)):
            if row is not None:
                return int(np.searchsorted(starts, row, side="right")) - 1
        raise ModelError("", f"a violation names neither op nor buffer: {violation}")


def alone(program: Program) -> Batch:
    """Return the batch of one program, which is that program."""
    ends = (len(program.ops), len(program.buffers), len(program.values))
    op, buffer, value = (np.array([0, end], dtype=np.int64) for end in ends)
    return Batch(program=program, op_starts=op, buffer_starts=buffer, value_starts=value, arenas=len(program.arenas))


def join(programs: Sequence[Program]) -> Batch:
    """Return the batch of programs whose streams are the first ones of the program that has most.

    Raise ModelError where they are not or there is none. Of arenas each gets as many as the program
    has that has most.

    Persistent buffers get the number of their program before their name, so that no two are one. Of
    `meta` only that of ops is there, where an engine finds the parameters of kernels.
    """
    if not programs:
        raise ModelError("programs", "there is none to join")
    first = programs[0]
    if len(programs) == 1:
        return alone(first)
    arenas, streams = max(len(p.arenas) for p in programs), max((p.streams for p in programs), key=len)
    for index, program in enumerate(programs):
        if program.streams != streams[: len(program.streams)]:
            raise ModelError(f"programs[{index}]", "has other streams than another one; they cannot be joined")
    own = tuple((len(p.arenas), len(p.streams)) for p in programs)
    op, buffer, value = (starts(len(getattr(p, table)) for p in programs) for table in ("ops", "buffers", "values"))
    kinds: dict[str, int] = {}
    for program in programs:
        for kind in program.ops.kinds:
            kinds.setdefault(kind, len(kinds))
    kinds_of = [np.array([kinds[kind] for kind in p.ops.kinds], dtype=np.int32) for p in programs]
    joined = Program(
        name=SEVERAL,
        arenas=tuple(chain.from_iterable((*p.arenas, *(NOTHING,) * (arenas - len(p.arenas))) for p in programs)),
        streams=streams,
        version=first.version,
        buffers=Buffers(
            names=tuple(chain.from_iterable(_buffer_names(k, p) for k, p in enumerate(programs))),
            arena=_flat([p.buffers.arena + np.int32(k * arenas) for k, p in enumerate(programs)]),
            **_columns([p.buffers for p in programs], "nbytes alignment role read_only"),
            nbytes_range={
                int(buffer[k]) + row: ends
                for k, p in enumerate(programs)
                for row, ends in p.buffers.nbytes_range.items()
            },
        ),
        values=Values(
            names=tuple(chain.from_iterable(p.values.names for p in programs)),
            buffer=_flat([p.values.buffer + np.int32(buffer[k]) for k, p in enumerate(programs)]),
            **_columns([p.values for p in programs], "dtype offset dim_starts shape strides bit_offset"),
        ),
        ops=Ops(
            names=tuple(chain.from_iterable(p.ops.names for p in programs)),
            kinds=tuple(kinds),
            kind=_flat([kinds_of[k][p.ops.kind] if len(kinds_of[k]) else p.ops.kind for k, p in enumerate(programs)]),
            operands=_flat([p.ops.operands + np.int32(value[k]) for k, p in enumerate(programs)]),
            results=_flat([p.ops.results + np.int32(value[k]) for k, p in enumerate(programs)]),
            in_place=_flat([p.ops.in_place.reshape(-1, 2) for p in programs]),
            after=_flat([p.ops.after + np.int32(op[k]) for k, p in enumerate(programs)]),
            **_columns([p.ops for p in programs], "in_place_strength in_place_known stream"),
            **_columns([p.ops for p in programs], "operand_starts result_starts in_place_starts after_starts"),
            meta={int(op[k]) + step: meta for k, p in enumerate(programs) for step, meta in p.ops.meta.items()},
        ),
    )
    return Batch(
        program=joined,
        op_starts=op,
        buffer_starts=buffer,
        value_starts=value,
        arenas=arenas,
        own=own if len(set(own)) > 1 else (),
    )


def flat(batch: Batch, plan: Plan) -> tuple[Plan, list[int]]:
    """Return a plan of a batch with all programs in the same few arenas, side by side, and the
    programs this says nothing of.

    A judge of a plan takes time for each arena. So the arenas of program k are laid behind those of
    program k - 1, at a multiple of all alignments; capacities are left out, for a plan beyond one
    is no plan to judge (`ExceededError`). Programs with a slot below 0 or beyond 2^40 bytes, and
    those without ops of which a believed life has no slot (their problem is what they are judged
    by), get memory of their own here, where they meet nobody, and have to be judged alone.
    O(columns).
    """
    whole, buffers = batch.program, batch.program.buffers
    owner, placed = batch.owner, plan.arena >= 0
    size = np.maximum(plan.nbytes, buffers.nbytes)
    strange = placed & ((plan.offset < 0) | (plan.offset > FAR) | (size > FAR))
    strange |= placed & (plan.arena // batch.arenas != owner)
    if plan.problem is not None:
        idle = (np.diff(batch.op_starts) == 0)[owner] & (plan.problem.start < plan.problem.stop)
        strange |= idle & ~placed & (plan.arena != OWN) & ~plan.problem.own & ~buffers.persistent
    unit = (
        int(np.lcm.reduce(np.unique(buffers.alignment), initial=1))
        if buffers.alignment.max(initial=1) <= FAR
        else FAR + 1
    )
    if unit > FAR:
        strange[:], unit = True, 1
    odd = np.zeros(len(batch), dtype=np.bool_)
    odd[owner[strange]] = True
    inside = placed & ~odd[owner]
    high = np.zeros(len(batch), dtype=np.int64)
    np.maximum.at(high, owner[inside], (plan.offset + size)[inside])
    base = np.concatenate([[0], np.cumsum(-(-high // unit) * unit)])[:-1]
    few = changed(buffers, arena=buffers.arena % np.int32(batch.arenas))
    program = changed(whole, arenas=_unbounded(whole.arenas[: batch.arenas]), buffers=few)
    problem = None
    if plan.problem is not None:
        fixed = {buffer: offset + int(base[owner[buffer]]) for buffer, offset in plan.problem.fixed.items()}
        problem = changed(plan.problem, program=program, fixed=fixed)
    laid = Plan(
        program=program,
        problem=problem,
        source=plan.source,
        arena=np.where(odd[owner], OWN, np.where(placed, plan.arena % batch.arenas, plan.arena)).astype(np.int32),
        offset=np.where(inside, plan.offset + base[owner], 0),
        nbytes=np.where(odd[owner], 0, plan.nbytes),
        events=plan.events,
    )
    return laid, np.flatnonzero(odd).tolist()


def join_plans(batch: Batch, plans: Sequence[Plan]) -> Plan:
    """Return the plan of a batch that puts every buffer where the plan of its program does, with
    the beliefs where all have one.
    """
    shift = [np.int32(k * batch.arenas) for k in range(len(plans))]
    events = [
        plan.events + np.array([batch.op_starts[k], 0, batch.buffer_starts[k]], dtype=np.int64)
        for k, plan in enumerate(plans)
    ]
    believed = [plan.problem for plan in plans]
    return Plan(
        program=batch.program,
        problem=None
        if any(b is None for b in believed)
        else join_problems(batch, [b for b in believed if b is not None]),
        source=plans[0].source if plans else "",
        arena=_flat(
            [np.where(p.arena >= 0, p.arena + shift[k], p.arena).astype(np.int32) for k, p in enumerate(plans)]
        ),
        offset=_flat([p.offset for p in plans]),
        nbytes=_flat([p.nbytes for p in plans]),
        events=_flat(events),
    )


def join_problems(batch: Batch, problems: Sequence[Problem]) -> Problem:
    """Return planners' beliefs about the programs of a batch as one; all state the same lists."""
    at = batch.buffer_starts.tolist()
    steps = batch.op_starts.tolist()
    program = batch.program
    to_the_end = _flat([p.stop == len(p.program.ops) for p in problems]) & program.buffers.persistent
    return Problem(
        program=program,
        start=_flat([p.start + steps[k] for k, p in enumerate(problems)]),
        stop=np.where(to_the_end, len(program.ops), _flat([p.stop + steps[k] for k, p in enumerate(problems)])),
        nbytes=_flat([p.nbytes for p in problems]),
        pinned=_flat([p.pinned for p in problems]),
        own=_flat([p.own for p in problems]),
        fixed={buffer + at[k]: offset for k, p in enumerate(problems) for buffer, offset in p.fixed.items()},
        order=_flat([p.order + np.int32(at[k]) for k, p in enumerate(problems)]),
        may_share=_flat([p.may_share + np.int32(at[k]) for k, p in enumerate(problems)]),
        gaps={
            buffer + at[k]: tuple((low + steps[k], high + steps[k]) for low, high in _own_gaps(p, buffer))
            for k, p in enumerate(problems)
            for buffer in p.gaps
        },
        stated=problems[0].stated,
    )


def _own_gaps(problem: Problem, buffer: int) -> tuple[tuple[int, int], ...]:
    """Return the gaps of a buffer. Of one that the batch keeps to its end they are cut at the end
    of the program: the steps behind are those of other programs, in which it lives.
    """
    gaps, end = problem.gaps[buffer], len(problem.program.ops)
    if not problem.program.buffers.persistent[buffer]:
        return gaps
    return tuple((low, min(high, end)) for low, high in gaps if low < end)


def starts(counts: Iterable[int] | Int64s) -> Int64s:
    """Return where each of several rows of these lengths begins, and where the last one ends."""
    lengths = counts if isinstance(counts, np.ndarray) else list(counts)
    found = np.zeros(len(lengths) + 1, dtype=np.int64)
    np.cumsum(lengths, out=found[1:])
    return found


def trusted(table: type[T], /, **columns: Any) -> T:
    """Return a table without checking it: for what is well-formed by the way it was made, where
    checking costs more than making.
    """
    made = object.__new__(table)
    for column in columns.values():
        if isinstance(column, np.ndarray):
            column.flags.writeable = False
    vars(made).update(columns)
    return made


def changed(table: T, /, **columns: Any) -> T:
    """Return a table with other columns, unchecked as `trusted`."""
    fields: Mapping[str, Any] = getattr(table, "__dataclass_fields__")  # noqa: B009 - of any table
    return trusted(type(table), **{**{name: getattr(table, name) for name in fields}, **columns})


def _unbounded(arenas: Sequence[Arena]) -> tuple[Arena, ...]:
    return tuple(replace(arena, capacity=None) for arena in arenas)


def _buffer_names(index: int, program: Program) -> Sequence[str]:
    names = program.buffers.names
    if not program.buffers.persistent.any():
        return names
    return [
        f"{index}.{name}" if keep else name
        for name, keep in zip(names, program.buffers.persistent.tolist(), strict=True)
    ]


def _joined_starts(parts: Sequence[Int64s]) -> Int64s:
    at = starts(part[-1] for part in parts)
    return np.concatenate([[0], *(part[1:] + at[k] for k, part in enumerate(parts))]).astype(np.int64)


def _columns(tables: Sequence[Any], names: str) -> dict[str, Any]:
    """Return the columns of that name of several tables, one behind the other."""
    parts = {name: [getattr(table, name) for table in tables] for name in names.split()}
    return {name: (_joined_starts if name.endswith("_starts") else _flat)(column) for name, column in parts.items()}


def _flat(parts: Sequence[Any]) -> Any:
    return np.concatenate(parts)
