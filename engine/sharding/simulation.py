"""N ranks in one process: their ops in one legal order, the same bits each time.

    with Simulation(step, plan, parameters) as world:
        losses = [world.run(batches)["loss.mean"] for batches in data]

Each rank has memory of its own, laid out by the plan, and runs its ops by the engine's kernels, one
at a time. A collective is done in its two halves (`allocsim.programs.rank_meetings`): what a rank
brings is copied when the rank gives it, and what it gets is made when it gets it. So an order that
is legal and yet loses bytes shows as wrong numbers: `run(.., seed=7)` draws one of the legal
orders; without a seed ops run as they stand in the list.

Sums are made in the order of the ranks, whatever the order of ops: a run under a right schedule
gives the same bits under every order.

Complexity: one Python call for each op of each rank.

What this module does not see: time, and how a real library moves bytes.
"""

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from typing import Self

import numpy as np

from allocsim.errors import EngineError
from allocsim.model import Plan
from allocsim.programs.rank_meetings import Meeting, RankEvent, meetings
from engine.kernels.binding import Array
from engine.kernels.collective import NOTHING, Params, RankGroup, communicating, receive
from engine.runtime import Runtime
from engine.sharding.pipeline_stages import RankedStep


class _Apart:
    """A group in which a rank knows its place; what it exchanges is carried by the simulation."""

    def __init__(self, rank: int, size: int) -> None:
        self.rank, self.size = rank, size

    def run(self, kind: str, params: Params, x: Array, out: Array) -> None:  # noqa: ARG002 - the protocol's
        """Refuse: ranks of one process meet by `Simulation.run`."""
        raise EngineError(f"{kind} of {len(x)} rows in group {params['group']!r}: the simulation carries it")


class Simulation:
    """The ranks of one step, and the memory of each."""

    def __init__(
        self,
        step: RankedStep,
        plans: Plan | Sequence[Plan],
        parameters: Mapping[str, Array],
        *,
        suspect: bool = False,
        executor: str = "calls",
        threads: int | None = 1,
    ) -> None:
        """Bind every rank.

        Args:
            step: what runs.
            plans: of all ranks, or one for each.
            parameters: whole weights by name.
            suspect: run plans unjudged, sound or not.
            executor: a name of `engine.runtime.EXECUTORS`.
            threads: threads that calls may use, None for as many as numpy's BLAS may: their number
                decides last digits.
        """
        self.step = step
        programs = step.of_ranks
        each = (plans,) * len(programs) if isinstance(plans, Plan) else tuple(plans)
        self.met = meetings([lowered.program for lowered in programs], step.groups)
        self.runtimes: list[Runtime] = []
        self._hyper: list[dict[str, Array]] = []
        hyper = step.hyper(1)
        self._stack = ExitStack()
        for rank, (lowered, plan) in enumerate(zip(programs, each, strict=True)):
            leafs = {leaf.name for leaf in lowered.graph.leafs}
            with communicating(lambda name, rank=rank: _in_group(step, name, rank)):  # type: ignore[misc]
                held = step.held(rank, parameters) | {n: array.copy() for n, array in hyper.items() if n in leafs}
                runtime = Runtime(lowered, plan, parameters=held, threads=threads, suspect=suspect, executor=executor)
            self.runtimes.append(self._stack.enter_context(runtime))
            self._hyper.append({name: _array(runtime, name) for name in hyper if name in leafs})
        self.steps = 0
        """Steps made."""
        self._order = self.met.order()

    def run(
        self,
        batches: Sequence[Mapping[str, Array]],
        *,
        hyper: Mapping[str, float] | None = None,
        seed: int | None = None,
        order: Sequence[RankEvent] | None = None,
    ) -> list[dict[str, Array]]:
        """Make one step on the rows of each rank, or of each microbatch of a pipeline; return what
        the host of each rank reads.

        With `seed` the ops run in a legal order drawn by it, with `order` in that order.
        """
        self.steps += 1
        now = self.step.hyper(self.steps, hyper)
        for row in self._hyper:
            for name, target in row.items():
                target[...] = now[name]
        given = self.step.given(batches)
        if order is None:
            order = self._order if seed is None else self.legal_order(seed)
        messages: dict[tuple[int, int], Array] = {}
        owed: dict[int, int] = {}
        read: list[dict[str, Array]] = [{} for _ in self.runtimes]
        for event in order:
            rank, op, gets = event
            runtime, meeting = self.runtimes[rank], self.met.at.get((rank, op))
            if meeting is None:
                runtime.execute(op, given[rank])
                if runtime.kernels[op] is None and not runtime.results(op):  # what the host reads it reads now
                    read[rank][runtime.lowered.tensors[op].name] = runtime.operands(op)[0].copy()
            elif gets:
                self._get(event, *meeting, messages)
                owed[id(meeting[0])] = owed.get(id(meeting[0]), len(meeting[0].ranks)) - 1
                if not owed[id(meeting[0])]:
                    for giver in zip(meeting[0].ranks, meeting[0].steps, strict=True):
                        del messages[giver]
            else:
                messages[rank, op] = np.array(next(iter(runtime.operands(op)), NOTHING))
        return read

    def adopt(self, states: Mapping[str, Array], steps: int) -> None:
        """Go on from whole moments behind so many steps."""
        self.steps = steps
        for rank, runtime in enumerate(self.runtimes):
            for name, array in self.step.held(rank, states).items():
                _array(runtime, name)[...] = array

    def legal_order(self, seed: int) -> list[RankEvent]:
        """Return a legal order drawn by a seed."""
        generator = np.random.default_rng(seed)
        return self.met.order(lambda ready: int(generator.integers(len(ready))))

    def weights(self) -> dict[str, Array]:
        """Return whole weights and moments as they are now."""
        return self.step.joined(
            {
                leaf.name: _array(runtime, leaf.name).copy()
                for leaf in runtime.lowered.graph.leafs
                if leaf.role.name in ("PARAMETER", "STATE")
            }
            for runtime in self.runtimes
        )

    def _get(self, event: RankEvent, meeting: Meeting, place: int, messages: Mapping[tuple[int, int], Array]) -> None:
        given = [messages.get((rank, step)) for rank, step in zip(meeting.ranks, meeting.steps, strict=True)]
        known = next(array for array in given if array is not None)
        parts = [known if array is None else array for array in given]  # of those not waited for nothing is taken
        runtime = self.runtimes[event.rank]
        (out,) = runtime.results(event.step)
        target = out if out.flags.c_contiguous else np.empty_like(out, order="C")
        made = runtime.lowered.tensors[event.step]
        receive(str(made.kind), made.params, place, parts, target)
        if target is not out:
            np.copyto(out, target)

    def close(self) -> None:
        """Give everything back."""
        self._stack.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _in_group(step: RankedStep, name: str, rank: int) -> RankGroup:
    for ranks in step.groups[name]:
        if rank in ranks:
            return _Apart(ranks.index(rank), len(ranks))
    raise EngineError(f"rank {rank} is in no part of group {name!r}")


def _array(runtime: Runtime, name: str) -> Array:
    leaf = next(leaf for leaf in runtime.lowered.graph.leafs if leaf.name == name)
    return runtime.array(runtime.lowered.value_of[leaf])
