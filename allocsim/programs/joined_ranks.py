"""Joins the plans of several ranks to one document, in one legal order of all their ops.

    document = joined(plans, {"world": [(0, 1, 2, 3)]})

In the document rank r has the arenas `rankR/ARENA` and the streams `rankR/STREAM`. A collective
becomes two ops: `KIND.give` copies the rank's part into a message (memory of its own), and `KIND`
reads the messages and has an `after` for each. The two sides of a message become such ops, too. Ops
stand in a legal order.

The document has the slots of each plan, but no problems and no planner's events: those are judged
with each plan by itself.

Complexity: O(ops + messages); each pair of ranks that exchange data has a message. What this module
does not see: where ranks meet (`allocsim.programs.rank_meetings`).
"""

from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from allocsim.errors import ModelError
from allocsim.model import OWN, Arena, Document, Plan, Program, Role
from allocsim.programs.builder import ProgramBuilder, pairs_of
from allocsim.programs.rank_meetings import Groups, Meetings, RankEvent, meetings, told

GIVE: Final = ".give"
"""Suffix of the kind of the op that copies a rank's part of a collective."""


def joined(plans: Sequence[Plan], groups: Groups, *, name: str = "ranks") -> Document:
    """Return one document of the plan of each rank, in one legal order.

    Raises ModelError with the first fault if ranks do not meet.
    """
    met = meetings([plan.program for plan in plans], groups)
    if met.faults:
        raise ModelError("", f"{met.faults[0].kind}: {met.faults[0].message}")
    return _Joining(plans, met, name).document()


class _Joining:
    """A program over all ranks while it is made."""

    def __init__(self, plans: Sequence[Plan], met: Meetings, name: str) -> None:
        self.plans, self.met = plans, met
        programs = met.programs
        arenas = [
            Arena(name=f"rank{rank}/{arena.name}", alignment=arena.alignment, capacity=arena.capacity)
            for rank, program in enumerate(programs)
            for arena in program.arenas
        ]
        self.arena = np.cumsum([0, *(len(program.arenas) for program in programs)]).tolist()
        self.stream = np.cumsum([0, *(len(program.streams) for program in programs)]).tolist()
        streams = [f"rank{rank}/{stream}" for rank, program in enumerate(programs) for stream in program.streams]
        self.builder = ProgramBuilder(name, arenas=arenas, streams=streams)
        self.slots: list[tuple[int, int, int]] = []
        self.value_of: list[dict[int, int]] = []
        """For each rank: its own value -> the value in the joined program."""
        self.message: dict[tuple[int, int], list[int]] = {}
        self.op_of: dict[RankEvent, int] = {}
        for rank, program in enumerate(programs):
            self._tables(rank, program)

    def _tables(self, rank: int, program: Program) -> None:
        b, buffers, values, plan = self.builder, program.buffers, program.values, self.plans[rank]
        first = len(self.slots)
        for index, label in enumerate(buffers.names):
            b.buffer(
                f"rank{rank}/{label}",
                int(buffers.nbytes[index]),
                role=Role(int(buffers.role[index])),
                arena=self.arena[rank] + int(buffers.arena[index]),
                alignment=int(buffers.alignment[index]),
                read_only=bool(buffers.read_only[index]),
            )
            arena = int(plan.arena[index])
            here = arena if arena < 0 else self.arena[rank] + arena
            self.slots.append((here, int(plan.offset[index]), int(plan.nbytes[index])))
        self.value_of.append({})
        for index in range(len(values)):
            row = values[index]
            layout: dict[str, Any] = {"strides": row.strides, "offset": row.offset, "bit_offset": row.bit_offset}
            made = b.value(f"rank{rank}/{row.name}", first + row.buffer, row.dtype, row.shape, **layout)
            self.value_of[rank][index] = made

    def document(self) -> Document:
        """Return the document with all events in order."""
        for event in self.met.order():
            self._op(event)
        program = self.builder.build()
        arena, offset, nbytes = np.array(self.slots, dtype=np.int64).reshape(-1, 3).T
        return Document.of(
            Plan(program=program, source="ranks", arena=arena.astype(np.int32), offset=offset, nbytes=nbytes)
        )

    def _op(self, event: RankEvent) -> None:
        rank, step, gets = event
        program = self.met.programs[rank]
        op, meta = program.ops[step], told(program, step)
        label, here = f"rank{rank}/{op.name}", self.value_of[rank]
        stream = self.stream[rank] + op.stream
        after = [self._done(rank, earlier) for earlier in op.after]
        operands, results = ([here[value] for value in side] for side in (op.operands, op.results))
        meeting = self.met.at.get((rank, step))
        if meeting is None:
            pairs = pairs_of(op)
            made = self.builder.op(
                op.kind, operands, results, name=label, in_place=pairs, stream=stream, after=after, meta=dict(meta)
            )
        elif not gets:
            self.message[rank, step] = [self._message(label, program, value) for value in op.operands]
            given = self.message[rank, step]
            made = self.builder.op(f"{op.kind}{GIVE}", operands, given, name=label, stream=stream, after=after)
        else:
            made = self._taken(event, op.kind, label, results, stream)
        self.op_of[event] = made

    def _taken(self, event: RankEvent, kind: str, label: str, results: list[int], stream: int) -> int:
        meeting, place = self.met.at[event.rank, event.step]
        givers = [(meeting.ranks[source], meeting.steps[source]) for source in meeting.sources(place)]
        read = [value for giver in givers for value in self.message[giver]]
        after = [self.op_of[RankEvent(*giver, False)] for giver in givers if giver[0] != event.rank]
        return self.builder.op(kind, read, results, name=label, stream=stream, after=sorted(after))

    def _done(self, rank: int, step: int) -> int:
        return self.op_of[RankEvent(rank, step, (rank, step) in self.met.at)]

    def _message(self, label: str, program: Program, value: int) -> int:
        row = program.values[value]
        buffer = self.builder.buffer(f"{label}/message", int(program.values.nbytes[value]))
        self.slots.append((OWN, 0, 0))
        return self.builder.value(f"{label}/message", buffer, row.dtype, row.shape)


__all__ = ["joined"]
