"""The runs of a session as one order of ops: who waits for whom where runs overlap in time, and
host reads that come late.

Every op of a run is a *node*; nodes stand in order of run, then op, but for late reads: the
`host.read` ops of a run with `read_after: k` stand behind run k. The first op of a run on each
stream waits for the last ops of the runs that the run names, and for the late reads behind them. A
late read waits for what stands before it on its stream in its run, for what its run waits for, and
for all of run k. Streams here are chains of ops of which each waits for the one before: an op goes
on with the stream of one that it waits for, whatever run that is of, or begins a new one.

What this module does not see: which bytes are touched (`h_pairs`).
"""

from collections import defaultdict
from dataclasses import dataclass
from itertools import accumulate
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

TIPS: Final = 8
"""Nodes that whoever waits for a run waits for, at most."""

GATHERS: Final = -1
"""In place of an op: a node that is none, and waits for what stands behind its run."""


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
    buffer_starts: list[int]
    """Of each run, the number of its first buffer."""
    parts: list[RacingPart]
    order: Order

    @classmethod
    def of(cls, case: TrialDocument) -> "Session":
        """Return the order of a session's ops. O(nodes + runs named)."""
        trials, identities = case.trials, Identities(case.trials)
        late: dict[int, list[Node]] = defaultdict(list)
        for trial in trials:
            if trial.read_after is not None:
                reads = np.flatnonzero(trial.program.ops.is_kind(HOST_READ)).tolist()
                late[trial.read_after] += [(trial.index, step) for step in reads]
        built = _Built(trials)
        for trial in trials:
            built.add(trial)
            built.read_late(late[trial.index], trial)
            built.gather(trial)
        order = Order(
            stream=np.array(built.stream, dtype=np.int64),
            streams=built.streams,
            previous=np.array(built.previous, dtype=np.int64),
            after_starts=np.cumsum([0, *map(len, built.waits)], dtype=np.int64),
            after=np.array([other for each in built.waits for other in each], dtype=np.int64),
        )
        parts = []
        for position, trial in enumerate(trials):
            space, base = identities.places(position)
            node = built.place[position]
            parts.append(part_of(trial, node=node, space=space, base=base // trial.unit))
        starts = [0, *accumulate(len(trial.program.buffers) for trial in trials)]
        return cls(
            trials=trials, identities=identities, nodes=built.nodes, buffer_starts=starts, parts=parts, order=order
        )

    def meeting(self, found: Races, row: int) -> RacingPair:
        """Return a pair of nodes and of buffers as two runs know them."""
        sides = []
        for node, number in ((found.op[row], found.buffer[row]), (found.other[row], found.other_buffer[row])):
            run, step = self.nodes[int(node)]
            sides.append((run, step, int(number) - self.buffer_starts[run]))
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


class _Built:
    """The nodes of a session, laid run by run, and what each waits for."""

    def __init__(self, trials: list[Trial]) -> None:
        self.trials = trials
        self.nodes: list[Node] = []
        self.place = [np.full(len(trial.program.ops), -1, dtype=np.int64) for trial in trials]
        """Of each run, the node of each op."""
        self.previous: list[int] = []
        self.waits: list[list[int]] = []
        self.stream: list[int] = []
        self.streams = 0
        self._last_of: list[int] = []
        """Of each stream, its last node."""
        self._open: dict[int, None] = {}
        """The runs that none waits for yet, in order."""
        self._start: list[list[int]] = []
        """Of each run, the nodes that its first op on each stream waits for."""
        self._last: list[dict[int, int]] = []
        """Of each run, the last node on each stream of its program."""
        self._tips: list[list[int]] = []
        """Of each run, the nodes that whoever waits for it waits for."""
        self._held: dict[Node, int] = {}
        """Of each late read, the node before it on its stream in its run, -1 if there is none."""

    def add(self, trial: Trial) -> None:
        """Lay the ops of a run, less its late reads."""
        run, ops = trial.index, trial.program.ops
        named = tuple(self._open) if trial.after is None else trial.after
        start = sorted({tip for earlier in named for tip in self._tips[earlier]})
        for earlier in named:
            self._open.pop(earlier, None)
        self._open[run] = None
        last: dict[int, int] = {}
        is_late = ops.is_kind(HOST_READ) & (trial.read_after is not None)
        for step, (stream, late) in enumerate(zip(ops.stream.tolist(), is_late.tolist(), strict=True)):
            held = last.get(stream, -1)
            if late:
                self._held[run, step] = held
                continue
            last[stream] = self._lay((run, step), held, [*self._within(trial, step), *([] if held >= 0 else start)])
        self._start.append(start)
        self._last.append(last)
        self._tips.append([*last.values()] or start)

    def read_late(self, reads: list[Node], behind: Trial) -> None:
        """Lay the late reads that come behind a run."""
        laid = []
        for run, step in reads:
            held = self._held[run, step]
            waits = [*self._within(self.trials[run], step), *self._start[run], *([held] if held >= 0 else [])]
            waits += self._last[behind.index].values()
            laid.append(self._lay((run, step), -1, waits))
        if laid:
            self._tips[behind.index] = [*self._tips[behind.index], *laid]

    def gather(self, trial: Trial) -> None:
        """Lay a node that waits for all that whoever waits for a run waits for, where that is much:
        else runs that wait for it would each name all of it again.
        """
        if len(self._tips[trial.index]) > TIPS:
            self._tips[trial.index] = [self._lay((trial.index, GATHERS), -1, self._tips[trial.index])]

    def _within(self, trial: Trial, step: int) -> list[int]:
        """Return the nodes of its run that an op waits for by name, less late reads."""
        ops, run = trial.program.ops, trial.index
        named = ops.after[ops.after_starts[step] : ops.after_starts[step + 1]].tolist()
        return [int(self.place[run][other]) for other in named if (run, other) not in self._held]

    def _lay(self, node: Node, held: int, waits: list[int]) -> int:
        """Append a node, on the stream of one that it waits for and that is the last there, if
        there is such a one: the fewer streams, the fewer passes over the list (`h_clocks`).
        """
        number = len(self.nodes)
        waits = sorted(set(waits))
        before = next((other for other in (held, *reversed(waits)) if other >= 0 and self._is_last(other)), None)
        stream = self.streams if before is None else self.stream[before]
        if before is None:
            self.streams += 1
            self._last_of.append(number)
        self._last_of[stream] = number
        self.nodes.append(node)
        if node[1] != GATHERS:
            self.place[node[0]][node[1]] = number
        self.stream.append(stream)
        self.previous.append(held)
        self.waits.append(waits)
        return number

    def _is_last(self, node: int) -> bool:
        return self._last_of[self.stream[node]] == node


def part_of(
    trial: Trial, *, node: Int64s | None = None, space: Int64s | None = None, base: Int64s | None = None
) -> RacingPart:
    """Return what one run alone brings: ops in their order, buffers where its plan puts them."""
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
