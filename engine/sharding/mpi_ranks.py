"""Real ranks: each a process of its own, which meets the others by MPI.

    mpiexec -n 4 python my_training.py

    with ending_together(), MpiRank(step, plan, parameters) as rank:
        for batch in mine:
            loss = rank.run(batch)["loss.mean"]

Every rank runs the program in the order of its list, by the engine's runtime; collectives meet in
communicators made for the groups of the step. Sums are made here, in the order of the ranks, of
parts that are exchanged whole (`Alltoall`): the bits are those of the simulation, and each rank
sends what a ring would, n (N - 1) / N bytes for a reduce_scatter.

The stages of a pipeline are ranks, too, each with its own program and plan. What a stage sends is
copied and goes on its way while the stage goes on (`Isend`), till the end of the step at the
latest: of two stages that send to each other, each would else wait for the other to receive, where
a library lets senders of large messages wait.

A rank that raises writes one line that names it and ends all (`ending_together`). Needs `mpi4py`
and an MPI library (the extra `ranks`).

What this module does not see: streams. MPI calls block, so communication does not overlap.
"""

import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final, Self, TypeVar

import numpy as np

from allocsim.errors import AllocsimError, EngineError, NotInstalledError
from allocsim.model import Plan
from engine.kernels.binding import Array
from engine.kernels.collective import Params, communicating, receive, summed
from engine.runtime import Runtime
from engine.sharding.pipeline_stages import Pipeline, RankedStep

Said = TypeVar("Said")

LAUNCHED: Final = ("PMI_RANK", "PMIX_RANK", "OMPI_COMM_WORLD_RANK")
"""What an `mpiexec` tells each process that it starts."""


def launched() -> bool:
    """Whether this process is a rank that an `mpiexec` started."""
    return any(name in os.environ for name in LAUNCHED)


def mpi() -> Any:
    """Return `mpi4py.MPI`; raises NotInstalledError where it or its library is missing."""
    try:
        from mpi4py import MPI  # noqa: PLC0415 - starts MPI
    except (ImportError, RuntimeError) as error:
        raise NotInstalledError(f"real ranks need mpi4py and an MPI library ({error}): the extra 'ranks'") from None
    return MPI


def _world(ranks: int) -> Any:
    """Return the communicator of all; EngineError unless there are as many processes as ranks."""
    world = mpi().COMM_WORLD
    if world.size != ranks:
        raise EngineError(f"{world.size} processes run a step for {ranks} ranks")
    return world


def rank_here() -> int:
    """Return which rank this process is."""
    return int(mpi().COMM_WORLD.rank)


def by_rank(mine: Said) -> list[Said]:
    """Return what each rank says, in their order; every rank asks."""
    found: list[Said] = mpi().COMM_WORLD.allgather(mine)
    return found


def agree(ranks: int, said: str) -> None:
    """Raise EngineError unless this process is one of so many, and all say the same."""
    world = _world(ranks)
    other = next((rank for rank, one in enumerate(by_rank(said)) if one != said), None)
    if other is not None:
        raise EngineError(
            f"rank {world.rank} and rank {other} begin with different settings, data or checkpoints; all read the "
            "same files"
        )


@contextmanager
def ending_together() -> Iterator[None]:
    """End every rank, by one line that names this one, where something is raised here.

    The exit status is 2 for what allocsim refuses, else 1.
    """
    world = mpi().COMM_WORLD
    try:
        yield
    except BaseException as error:
        if isinstance(error, SystemExit) and not error.code:
            raise  # it ends well
        said = str(error).partition("\n")[0]
        sys.stderr.write(f"allocsim: rank {world.rank} of {world.size} ended: {type(error).__name__}: {said}\n")
        sys.stderr.flush()
        if world.size > 1:
            status = 2 if isinstance(error, AllocsimError) else 1
            world.Abort(status)
            os._exit(status)  # it may return before this process is ended
        raise


class MpiGroup:
    """The ranks of a communicator."""

    def __init__(self, communicator: Any) -> None:
        self._comm = communicator
        self._leaving: list[tuple[Any, Array]] = []
        """Messages that may not have been taken yet, with what they bring."""
        self.rank: int = communicator.rank
        self.size: int = communicator.size

    def run(self, kind: str, params: Params, x: Array, out: Array) -> None:
        """Exchange what the kind needs, and make the result as `receive` says."""
        if kind == "send_receive":
            by = params["by"]
            to, source = (self.rank + by) % self.size, (self.rank - by) % self.size
            self._comm.Sendrecv(_bytes(x), to, recvbuf=_bytes(out), source=source)
        elif kind == "broadcast":
            if self.rank == params["root"]:
                np.copyto(out, x)
            self._comm.Bcast(_bytes(out), params["root"])
        elif kind == "send":
            self._leaving = [one for one in self._leaving if not one[0].Test()]
            brought = np.array(x)
            self._leaving.append((self._comm.Isend(_bytes(brought), params["peer"]), brought))
        elif kind == "recv":
            self._comm.Recv(_bytes(out), params["peer"])
        elif kind == "all_to_all":
            self._comm.Alltoall(_bytes(x), _bytes(out))
        elif kind == "reduce_scatter":
            summed(list(self._exchanged(x)), out.reshape(-1))
        elif kind == "all_reduce":
            self._all_reduce(x, out)
        else:
            receive(kind, params, self.rank, self._from_all(x), out)

    def settle(self) -> None:
        """Wait until everything that was sent is taken."""
        while self._leaving:
            self._leaving.pop()[0].Wait()

    def _from_all(self, x: Array) -> list[Array]:
        given = np.empty((self.size, *x.shape), x.dtype)
        self._comm.Allgather(_bytes(x), _bytes(given))
        return list(given)

    def _exchanged(self, x: Array) -> Array:
        """Return, for each rank, its x's part of this one."""
        given = np.empty((self.size, x.size // self.size), x.dtype)
        self._comm.Alltoall(_bytes(x), _bytes(given))
        return given

    def _all_reduce(self, x: Array, out: Array) -> None:
        """Sum the part of each rank there, then gather the sums."""
        length = -(-x.size // self.size)
        padded = np.zeros(length * self.size, x.dtype)
        padded[: x.size] = x.reshape(-1)
        mine = np.empty(length, x.dtype)
        summed(list(self._exchanged(padded)), mine)
        self._comm.Allgather(_bytes(mine), _bytes(padded))
        out.reshape(-1)[:] = padded[: x.size]


def _bytes(array: Array) -> Array:
    found: Array = array.reshape(-1).view(np.uint8)
    return found


class MpiRank:
    """This process as one rank of a step."""

    def __init__(
        self,
        step: RankedStep,
        plans: Plan | Sequence[Plan],
        parameters: Mapping[str, Array],
        *,
        executor: str = "calls",
        threads: int | None = 1,
    ) -> None:
        """Bind the step of this rank, with its part of the whole parameters, by so many BLAS
        threads; `plans` are of all ranks, or one for each.

        Raises EngineError unless there are as many processes as ranks.
        """
        world = _world(len(step.of_ranks))
        self.step, self.rank, self.steps = step, int(world.rank), 0
        self._lowered = step.of_ranks[self.rank]
        self._leafs = {leaf.name: leaf for leaf in self._lowered.graph.leafs}
        self._groups = {name: self._group(name, world) for name in step.groups}
        hyper = {name: array for name, array in step.hyper(1).items() if name in self._leafs}
        held = {**step.held(self.rank, parameters), **hyper}
        plan = plans if isinstance(plans, Plan) else plans[self.rank]
        with communicating(self._groups.__getitem__):
            self.runtime = Runtime(self._lowered, plan, parameters=held, executor=executor, threads=threads)
        self._hyper = {name: self._array(name) for name in hyper}

    def run(self, rows: Any, hyper: Mapping[str, float] | None = None) -> dict[str, Array]:
        """Make one step on this rank's rows, or on those of each microbatch of a pipeline; return
        what the host reads.
        """
        self.steps += 1
        now = self.step.hyper(self.steps, hyper)
        for name, target in self._hyper.items():
            target[...] = now[name]
        found = self.runtime.run(self.step.of_host(self.rank, rows))
        for group in self._groups.values():
            group.settle()
        return found

    def adopt(self, states: Mapping[str, Array], steps: int) -> None:
        """Go on from whole moments behind so many steps."""
        self.steps = steps
        for name, array in self.step.held(self.rank, states).items():
            self._array(name)[...] = array

    def weights(self) -> dict[str, Array]:
        """Return whole weights and moments as they are now; every rank asks."""
        if isinstance(self.step, Pipeline):
            return self.step.joined(by_rank(self.parts()))
        found: dict[str, Array] = {}
        for name, mine in sorted(self.parts().items()):
            held = by_rank(mine) if name in self.step.shapes else [mine]  # what is no part is whole here
            found |= self.step.joined([{name: array} for array in held])
        return found

    def parts(self) -> dict[str, Array]:
        """Return what this rank holds of weights and moments."""
        kept = (name for name, leaf in self._leafs.items() if leaf.role.name in ("PARAMETER", "STATE"))
        return {name: self._array(name).copy() for name in kept}

    def _group(self, name: str, world: Any) -> MpiGroup:
        part = next(n for n, ranks in enumerate(self.step.groups[name]) if world.rank in ranks)
        return MpiGroup(world.Split(part, world.rank))

    def _array(self, name: str) -> Array:
        return self.runtime.array(self._lowered.value_of[self._leafs[name]])

    def close(self) -> None:
        """Give everything back."""
        self.runtime.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
