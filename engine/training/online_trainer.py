"""A trainer whose memory is given out by an online allocator while its steps run.

    with OnlineTrainer(model, EagerHost(find("tlsf")), optimizer="sgd") as trainer:
        for batch in batches:
            trainer.step(batch)                   # a graph of its own for each batch
    trainer.document()                            # the session that S, H and R judge

The graph of each batch is built anew, its branches are put on the host's streams, and the host
(`allocsim.online.eager_host`) asks the allocator as it goes through the ops. The device does them
in its order, in the memory that was answered, right or wrong: what an allocator gives out twice
shows in the numbers. Weights, moments and what does not change lie outside.

What this module does not see: what is wrong with an answer, and whose fault it is.
"""

from dataclasses import replace
from typing import Any

import numpy as np

from allocsim.model import Document
from allocsim.online.eager_host import EagerHost, on_device
from engine.graph.lowering import Lowered
from engine.kernels.binding import Array
from engine.models.trainable import Model
from engine.runtime import Runtime
from engine.training.trainer import Trainer


class OnlineTrainer(Trainer):
    """Dynamic graphs over an online allocator."""

    def __init__(self, model: Model, host: EagerHost, **settings: Any) -> None:
        """Take what gives out memory, and arguments of `Trainer` but graphs, planner, executor."""
        super().__init__(model, graphs="dynamic", **settings)
        self.host = host
        self._held: Array = np.empty(0, np.uint8)

    def document(self) -> Document:
        """Return the session of all steps, each with the plan that was made while it ran."""
        return self.host.document()

    def _runtime(self, lowered: Lowered, parameters: dict[str, Array], resident: dict[str, Array]) -> Runtime:
        """Run the host through the step; return what does its ops where memory was given out.

        Raises CapacityError and PlannerError as the host does.
        """
        program = on_device(lowered.program, self.host.streams(lowered.program))
        plan, order = self.host.run(program)
        if not len(self._held):
            self._held = np.zeros(self.host.capacity + 64, np.uint8)  # pages that nobody touches cost nothing
        start = -self._held.ctypes.data % 64
        return Runtime(
            replace(lowered, program=plan.program),
            plan,
            parameters=parameters,
            resident=resident,
            threads=self._threads,
            suspect=True,  # what the allocator gives out is run, right or wrong
            order=order,
            allocate=lambda nbytes: self._held[start : start + nbytes],
        )
