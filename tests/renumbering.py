"""The same evidence under other names and other numbers: what a verdict may not depend on.

Buffers and values are renumbered, every name is replaced, and the labels in paths of calls as well; bytes, steps and streams stay. Buffers that a
plan pairs by index with those of another program are renumbered alike.
"""

from dataclasses import replace

import numpy as np

from allocsim.model import Document, Plan, Problem, Program, Role, Run
from allocsim.programs.builder import ProgramBuilder
from allocsim.verdict.evidence import Evidence, Origin


class Shuffled:
    """A program with its buffers and values renumbered and every name replaced; persistent names stay equal where they were."""

    def __init__(self, program: Program, rng: np.random.Generator, known: dict[str, str]) -> None:
        self.old = program
        self.buffer_of = rng.permutation(len(program.buffers)).astype(np.int64)  # old -> new
        self.value_of = rng.permutation(len(program.values)).astype(np.int64)
        self.new = self._build(known)

    def _build(self, known):
        old = self.old
        builder = ProgramBuilder("q", arenas=old.arenas, streams=[f"s{n}" for n, _ in enumerate(old.streams)])
        for buffer in np.argsort(self.buffer_of).tolist():
            name = old.buffers.names[buffer]
            persistent = old.buffers.persistent[buffer]
            builder.buffer(
                known.setdefault(name, f"w{len(known)}") if persistent else f"m{buffer}",
                int(old.buffers.nbytes[buffer]),
                role=Role(int(old.buffers.role[buffer])),
                arena=int(old.buffers.arena[buffer]),
                alignment=int(old.buffers.alignment[buffer]),
                read_only=bool(old.buffers.read_only[buffer]),
            )
        for index in np.argsort(self.value_of).tolist():
            value = old.values[index]
            home = int(self.buffer_of[value.buffer])
            builder.value(f"t{index}", home, value.dtype, value.shape, strides=value.strides, offset=value.offset)
        for op in old.ops:
            operands, results = (tuple(self.value_of[list(values)].tolist()) for values in (op.operands, op.results))
            path = old.ops.meta.get(op.step, {}).get("call")
            meta = {"call": [f"c{part!r}" for part in path]} if path else None
            builder.op(
                op.kind, operands, results, name="op", in_place=op.in_place, stream=op.stream, after=op.after, meta=meta
            )
        return builder.build()

    def column(self, old):
        new = np.empty_like(old)
        new[self.buffer_of] = old
        return new

    def problem(self, old: Problem) -> Problem:
        to = self.buffer_of
        return Problem(
            program=self.new,
            **{name: self.column(getattr(old, name)) for name in ("start", "stop", "nbytes", "pinned", "own")},
            fixed={int(to[b]): offset for b, offset in old.fixed.items()},
            order=to[old.order].astype(np.int32),
            may_share=to[old.may_share].astype(np.int32).reshape(-1, 2),
            gaps={int(to[b]): gaps for b, gaps in old.gaps.items()},
            stated=old.stated,
        )

    def plan(self, old: Plan, problems) -> Plan:
        events = old.events.copy()
        events[:, 2] = self.buffer_of[events[:, 2]]
        return Plan(
            program=self.new,
            problem=problems[id(old.problem)] if old.problem is not None else None,
            events=events,
            **{name: self.column(getattr(old, name)) for name in ("arena", "offset", "nbytes")},
        )


def shuffled(evidence: Evidence, seed: int) -> Evidence:
    """Return the same evidence with everything renamed and renumbered."""
    rng, known, old = np.random.default_rng(seed), {}, evidence.document
    first = {}
    for (
        program
    ) in old.programs:  # a plan that runs on two programs pairs their buffers by index: both are renumbered alike
        maker = Shuffled(program, np.random.default_rng(seed), known)
        first[id(program)] = maker
    problems = {id(p): first[id(p.program)].problem(p) for p in old.problems}
    plans = {id(p): first[id(p.program)].plan(p, problems) for p in old.plans}
    session = old.session and tuple(
        Run(plan=plans[id(r.plan)], program=first[id(r.program)].new, skip=r.skip) for r in old.session
    )
    made = Document(
        programs=tuple(first[id(p)].new for p in old.programs),
        problems=tuple(problems.values()),
        plans=tuple(plans.values()),
        session=session,
    )
    del rng
    return Evidence(
        document=made,
        audit=evidence.audit,
        origins=evidence.origins
        and tuple(
            Origin(**{**_fields(o), "value": int(first[id(old.runs[o.run].program)].value_of[o.value])})
            for o in evidence.origins
        ),
        sanitizer=evidence.sanitizer
        and tuple(renumbered(i, first[id(old.runs[i.run].program)]) for i in evidence.sanitizer),
        diverges=evidence.diverges,
        cure=evidence.cure,
    )


def renumbered(incident, maker):
    """Return an incident with its values and its buffer as a shuffled program has them."""
    new = {"value": maker.value_of, "held_value": maker.value_of, "buffer": maker.buffer_of}
    known = {name: int(to[getattr(incident, name)]) for name, to in new.items() if getattr(incident, name) is not None}
    return replace(incident, **known)


def _fields(struct):
    return {name: getattr(struct, name) for name in struct.__struct_fields__}
