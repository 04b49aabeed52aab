"""Build the happens-before order of all ops of a session in which runs overlap in time or host
reads are delayed.

Every op of a run is a *node*. Nodes are in order of run, then op. Delayed reads are an exception:
the `host.read` ops of a run with `read_after: k` follow run k. The first op of a run on each stream
waits for the last ops of the runs that the run names in `after` (all earlier runs by default), and
for the delayed reads that follow these runs. A delayed read waits for the previous op on its stream
in its run, for the runs that its run waits for, and for all ops of run k. A stream here is a chain
of nodes in which each node waits for the previous one. A node continues the stream of a node that
it waits for, of any run, or begins a new stream.

This module does not examine the bytes that ops access (`h_pairs`).
"""

from collections import defaultdict
from dataclasses import dataclass
from itertools import accumulate
from typing import Final

import numpy as np

from allocsim.judge.fast.accesses import Accesses, Extents, handed_on, in_step
from allocsim.judge.fast.h_clocks import Order
from allocsim.judge.fast.h_pairs import Races, RacingPart
from allocsim.judge.fast.s_in_place import addresses
from allocsim.judge.fast.s_script import Identities
from allocsim.judge.fast.trial import Trial, TrialDocument
from allocsim.model import HOST_READ, Plan
from allocsim.model.layout import Int64s

Node = tuple[int, int]
"""The run and the op of a node."""

TIPS: Final = 8
"""The largest number of nodes that a waiting run names for each run that it waits for."""

GATHERS: Final = -1
"""The op number of a node that is not an op, but waits for the last nodes of its run."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RacingPair:
    """Two racing ops, the later op first, and the buffers in which they share bytes."""

    trial: Trial
    other_trial: Trial
    op: int
    other_op: int
    buffer: int
    other_buffer: int
    shift: int
    """The number of bytes from the start of `buffer` to the start of `other_buffer`."""
    in_apart: bool
    """Whether both are the same buffer, so that the ops may share bytes in memory apart, too."""
    listed: bool
    """Whether both ops are of one run without delayed reads, so that list order applies."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Session:
    """The runs of a session, with the happens-before order of all their ops."""

    trials: list[Trial]
    identities: Identities
    nodes: list[Node]
    buffer_starts: list[int]
    """For each run, the number of its first buffer among the buffers of all runs."""
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
        """Return a row of `found` with ops and buffers given as indices into their own programs."""
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
    """The nodes of a session, added run by run, with the nodes that each node waits for."""

    def __init__(self, trials: list[Trial]) -> None:
        self.trials = trials
        self.nodes: list[Node] = []
        self.place = [np.full(len(trial.program.ops), -1, dtype=np.int64) for trial in trials]
        """For each run, the node of each op; -1 if not added yet."""
        self.previous: list[int] = []
        self.waits: list[list[int]] = []
        self.stream: list[int] = []
        self.streams = 0
        self._last_of: list[int] = []
        """For each stream, its last node so far."""
        self._open: dict[int, None] = {}
        """The runs for which no later run waits yet, in order."""
        self._start: list[list[int]] = []
        """For each run, the nodes that its first op on each stream waits for."""
        self._last: list[dict[int, int]] = []
        """For each run, the last node on each stream of its program."""
        self._tips: list[list[int]] = []
        """For each run, the nodes that a later run must wait for if it waits for this run."""
        self._held: dict[Node, int] = {}
        """For each delayed read, the previous node on its stream in its run; -1 if none exists."""

    def add(self, trial: Trial) -> None:
        """Add the nodes of a run's ops, without its delayed reads."""
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
        """Add the nodes of the delayed reads that follow run `behind`."""
        laid = []
        for run, step in reads:
            held = self._held[run, step]
            waits = [*self._within(self.trials[run], step), *self._start[run], *([held] if held >= 0 else [])]
            waits += self._last[behind.index].values()
            laid.append(self._lay((run, step), -1, waits))
        if laid:
            self._tips[behind.index] = [*self._tips[behind.index], *laid]

    def gather(self, trial: Trial) -> None:
        """Add one node that waits for all tips of a run, if the run has more than `TIPS` tips.
        Without this node, each run that waits for this run would name all the tips again.
        """
        if len(self._tips[trial.index]) > TIPS:
            self._tips[trial.index] = [self._lay((trial.index, GATHERS), -1, self._tips[trial.index])]

    def _within(self, trial: Trial, step: int) -> list[int]:
        """Return the nodes of the same run that an op names in `after`, without delayed reads."""
        ops, run = trial.program.ops, trial.index
        named = ops.after[ops.after_starts[step] : ops.after_starts[step + 1]].tolist()
        return [int(self.place[run][other]) for other in named if (run, other) not in self._held]

    def _lay(self, node: Node, held: int, waits: list[int]) -> int:
        """Append a node. The node continues the stream of a node that it waits for, if that node is
        the last on its stream. Fewer streams need fewer passes over the list (`h_clocks`).
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
    """Return the part of one run; defaults are list order and the addresses of the run's plan."""
    accesses = trial.accesses
    if trial.unit > 1:
        accesses = Accesses(
            in_bytes(trial), accesses.contract, trial.skip, every_result=True
        )  # `written` below excludes the results at rest
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
    """Return the extents of values in whole bytes, because hardware writes whole bytes."""
    return trial.accesses.extents.in_whole_bytes


def at_rest(trial: Trial) -> frozenset[int]:
    """Return the rows of `ops.results` that a `same` does not write, because the plan places these
    results at the addresses of the operands.
    """
    known = trial.accesses.at_rest
    if trial.plan not in known:
        known[trial.plan] = frozenset(_at_rest(trial.accesses, trial.plan) if trial.program.same_ops.any() else ())
    return known[trial.plan]


def _at_rest(accesses: Accesses, plan: Plan) -> set[int]:
    extents, (space, base) = accesses.extents, addresses(plan, accesses.extents.unit)
    found = set()
    for row, source, target in zip(*(column.tolist() for column in handed_on(accesses.program)), strict=True):
        one, other = int(extents.buffer[source]), int(extents.buffer[target])
        if space[one] == space[other] and in_step(extents, source, target, int(base[other]) - int(base[one])):
            found.add(row)
    return found
