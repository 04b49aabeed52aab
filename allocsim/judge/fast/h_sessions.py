"""The runs of a session as one order of ops: who waits for whom where runs overlap in time, and
host reads that come late.

Every op of a run is a *node*; nodes stand in order of run, then op, but for late reads: the
`host.read` ops of a run with `read_after: k` stand behind run k. Each pair of a run and a stream is
a stream here. The first op of a run on each stream waits for the last ops of the runs that the run
waits for, and for the late reads behind them. A late read is on a stream of its own: it waits for
what stands before it on its stream in its run, for what its run waits for, and for all of run k.

What this module does not see: which bytes are touched (`h_pairs`).
"""

from collections import defaultdict
from dataclasses import dataclass
from typing import Final

import numpy as np

from allocsim.judge.fast.accesses import Accesses, Extents, in_step
from allocsim.judge.fast.h_clocks import Order
from allocsim.judge.fast.h_pairs import Races, RacingPart
from allocsim.judge.fast.s_in_place import addresses
from allocsim.judge.fast.s_script import Identities
from allocsim.judge.fast.trial import Trial, TrialDocument
from allocsim.model import HOST_READ, Plan
from allocsim.model.layout import Int64s

_NONE: Final = np.empty(0, dtype=np.int64)

NO_RACES: Final = Races(op=_NONE, other=_NONE, buffer=_NONE, other_buffer=_NONE)

Node = tuple[int, int]
"""Run and op."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RacingPair:
    """Two ops without an order, the later one first, and the buffers through which they meet."""

    trial: Trial
    other_trial: Trial
    op: int
    other_op: int
    buffer: int
    other_buffer: int
    shift: int
    """By how many bytes the other buffer lies behind the one."""
    in_apart: bool
    """Whether the two are one buffer apart."""
    listed: bool
    """Whether the list of ops of one run says who is later."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Session:
    """The runs of a session, and the order of all their ops."""

    trials: list[Trial]
    identities: Identities
    nodes: list[Node]
    parts: list[RacingPart]
    order: Order

    @classmethod
    def of(cls, case: TrialDocument) -> "Session":
        """Return the order of a session's ops. O(nodes + runs x runs x streams)."""
        trials, identities = case.trials, Identities(case.trials)
        late: dict[int, list[Node]] = defaultdict(list)
        for trial in trials:
            if trial.read_after is not None:
                reads = np.flatnonzero(trial.program.ops.is_kind(HOST_READ)).tolist()
                late[trial.read_after] += [(trial.index, step) for step in reads]
        is_late = {node for nodes in late.values() for node in nodes}
        nodes: list[Node] = []
        for trial in trials:
            nodes += [
                (trial.index, step) for step in range(len(trial.program.ops)) if (trial.index, step) not in is_late
            ]
            nodes += late[trial.index]
        place = {node: number for number, node in enumerate(nodes)}
        streams: dict[tuple[int, ...], int] = {}
        stream, previous, waits = [], [], []
        latest: dict[int, dict[int, int]] = defaultdict(dict)
        for run, step in nodes:
            trial, ops = trials[run], trials[run].program.ops
            mine = int(ops.stream[step])
            earlier = [
                (run, other) for other in ops.after[ops.after_starts[step] : ops.after_starts[step + 1]].tolist()
            ]
            after = [place[node] for node in earlier if node not in is_late]
            held = -1 if (run, step) in is_late else latest[run].get(mine, -1)
            before = sorted(trial.before) if held < 0 else []  # a later op of a stream waits through the first
            awaited = [number for other in before for number in latest[other].values()]
            awaited += [place[node] for other in before for node in late[other] if place[node] < place[run, step]]
            if (run, step) in is_late:
                before = [
                    other for other in range(step) if int(ops.stream[other]) == mine and (run, other) not in is_late
                ]
                after += [place[run, before[-1]]] if before else []
                after += [*awaited, *latest[trial.read_after or 0].values()]
                stream.append(streams.setdefault((run, mine, step), len(streams)))
                previous.append(-1)
            else:
                after += awaited
                stream.append(streams.setdefault((run, mine), len(streams)))
                previous.append(held)
                latest[run][mine] = place[run, step]
            waits.append(sorted(set(after)))
        order = Order(
            stream=np.array(stream, dtype=np.int64),
            streams=len(streams),
            previous=np.array(previous, dtype=np.int64),
            after_starts=np.cumsum([0, *map(len, waits)], dtype=np.int64),
            after=np.array([other for each in waits for other in each], dtype=np.int64),
        )
        parts = []
        for position, trial in enumerate(trials):
            space, base = identities.places(position)
            node = np.array([place[trial.index, step] for step in range(len(trial.program.ops))], dtype=np.int64)
            parts.append(part_of(trial, node=node, space=space, base=base // trial.unit))
        return cls(trials=trials, identities=identities, nodes=nodes, parts=parts, order=order)

    def meeting(self, found: Races, row: int) -> RacingPair:
        """Return a pair of nodes and of buffers as two runs know them."""
        sides = []
        for node, number in ((found.op[row], found.buffer[row]), (found.other[row], found.other_buffer[row])):
            run, step = self.nodes[int(node)]
            sides.append((run, step, int(number) - sum(len(trial.program.buffers) for trial in self.trials[:run])))
        (run, op, buffer), (other_run, other_op, other_buffer) = sorted(sides, reverse=True)
        places = self.parts[run].base[buffer], self.parts[other_run].base[other_buffer]
        identity, other = self.identities.of[run][buffer], self.identities.of[other_run][other_buffer]
        return RacingPair(
            trial=self.trials[run],
            other_trial=self.trials[other_run],
            op=op,
            other_op=other_op,
            buffer=buffer,
            other_buffer=other_buffer,
            shift=int(places[1]) - int(places[0]),
            in_apart=bool(identity == other),
            listed=run == other_run and self.trials[run].read_after is None,
        )


def part_of(
    trial: Trial, *, node: Int64s | None = None, space: Int64s | None = None, base: Int64s | None = None
) -> RacingPart:
    """Return what one run brings: on its own, its ops in their order and its buffers where its plan
    puts them.
    """
    accesses = trial.accesses
    if trial.unit > 1:
        accesses = Accesses(
            in_bytes(trial), accesses.contract, trial.skip, every_result=True
        )  # what rests, `written` leaves out
    own_space, own_base = addresses(trial.plan)
    rest = np.array(sorted(at_rest(trial)), dtype=np.int64)
    return RacingPart(
        accesses=accesses,
        node=np.arange(len(trial.program.ops)) if node is None else node,
        space=own_space if space is None else space,
        base=own_base if base is None else base,
        written=~np.isin(accesses.write_row, rest),
    )


def in_bytes(trial: Trial) -> Extents:
    """Return where values lie in bytes: hardware writes whole ones."""
    return trial.accesses.extents.in_whole_bytes


def at_rest(trial: Trial) -> frozenset[int]:
    """Return the rows of `ops.results` that a `same` does not write, for they lie, as planned,
    where its operands do.
    """
    known = trial.accesses.at_rest
    if trial.plan not in known:
        known[trial.plan] = frozenset(_at_rest(trial.accesses, trial.plan) if trial.program.same_ops.any() else ())
    return known[trial.plan]


def _at_rest(accesses: Accesses, plan: Plan) -> set[int]:
    extents, program, ops = accesses.extents, accesses.program, accesses.program.ops
    space, base = addresses(plan, extents.unit)
    found = set()
    for step in np.flatnonzero(program.same_ops).tolist():
        first, row = int(ops.result_starts[step]), ops[step]
        for position, (source, target) in enumerate(zip(row.operands, row.results, strict=True)):
            one, other = int(extents.buffer[source]), int(extents.buffer[target])
            shift = int(base[other]) - int(base[one])
            if space[one] == space[other] and in_step(extents, source, target, shift):
                found.add(first + position)
    return found
