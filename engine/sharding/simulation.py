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
from engine.kernels.collective import Params, RankGroup, communicating, receive
from engine.runtime import Runtime
from engine.sharding.sharded_step import Sharded


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
        step: Sharded,
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
        ranks = step.sharding.ranks
        each = (plans,) * ranks if isinstance(plans, Plan) else tuple(plans)
        self.met = meetings([step.lowered.program] * ranks, step.groups)
        self.runtimes: list[Runtime] = []
        hyper = step.hyper(1)
        self._stack = ExitStack()
        for rank, plan in enumerate(each):
            with communicating(lambda name, rank=rank: _in_group(step, name, rank)):  # type: ignore[misc]
                held = {**step.held(rank, parameters), **{name: array.copy() for name, array in hyper.items()}}
                runtime = Runtime(
                    step.lowered, plan, parameters=held, threads=threads, suspect=suspect, executor=executor
                )
            self.runtimes.append(self._stack.enter_context(runtime))
        self._hyper = [{name: _array(runtime, name) for name in hyper} for runtime in self.runtimes]
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
        """Make one step on the rows of each rank; return what the host of each rank reads.

        With `seed` the ops run in a legal order drawn by it, with `order` in that order.
        """
        self.steps += 1
        for row, held in zip(self._hyper, [self.step.hyper(self.steps, hyper)] * len(self._hyper), strict=True):
            for name, target in row.items():
                target[...] = held[name]
        given = [{**self.step.seed, **batch} for batch in batches]
        if order is None:
            order = self._order if seed is None else self.legal_order(seed)
        messages: dict[tuple[int, int], Array] = {}
        owed: dict[int, int] = {}
        read: list[dict[str, Array]] = [{} for _ in self.runtimes]
        tensors, kernels = self.step.lowered.tensors, self.runtimes[0].kernels
        for event in order:
            rank, op, gets = event
            runtime, meeting = self.runtimes[rank], self.met.at.get((rank, op))
            if meeting is None:
                runtime.execute(op, given[rank])
                if kernels[op] is None and not runtime.results(op):  # what the host reads it reads now
                    read[rank][tensors[op].name] = runtime.operands(op)[0].copy()
            elif gets:
                self._get(event, *meeting, messages)
                owed[id(meeting[0])] = owed.get(id(meeting[0]), len(meeting[0].ranks)) - 1
                if not owed[id(meeting[0])]:
                    for giver in zip(meeting[0].ranks, meeting[0].steps, strict=True):
                        del messages[giver]
            else:
                messages[rank, op] = np.array(runtime.operands(op)[0])
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
        names = [leaf.name for leaf in self.step.lowered.graph.leafs if leaf.role.name in ("PARAMETER", "STATE")]
        held = [{name: _array(runtime, name).copy() for name in names} for runtime in self.runtimes]
        return self.step.joined(held)

    def _get(self, event: RankEvent, meeting: Meeting, place: int, messages: Mapping[tuple[int, int], Array]) -> None:
        given = [messages.get((rank, step)) for rank, step in zip(meeting.ranks, meeting.steps, strict=True)]
        known = next(array for array in given if array is not None)
        parts = [known if array is None else array for array in given]  # of those not waited for nothing is taken
        (out,) = self.runtimes[event.rank].results(event.step)
        target = out if out.flags.c_contiguous else np.empty_like(out, order="C")
        receive(meeting.kind, self.step.lowered.tensors[event.step].params, place, parts, target)
        if target is not out:
            np.copyto(out, target)

    def close(self) -> None:
        """Give everything back."""
        self._stack.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _in_group(step: Sharded, name: str, rank: int) -> RankGroup:
    for ranks in step.groups[name]:
        if rank in ranks:
            return _Apart(ranks.index(rank), len(ranks))
    raise EngineError(f"rank {rank} is in no part of group {name!r}")


def _array(runtime: Runtime, name: str) -> Array:
    leaf = next(leaf for leaf in runtime.lowered.graph.leafs if leaf.name == name)
    return runtime.array(runtime.lowered.value_of[leaf])


__all__ = ["Simulation"]
