"""Seven faults that make current ggml compute wrong numbers although no kernel is at fault.

Each fault can be run on the real library.

Contract: `FAULTS[name]` has a summary, the class and the party that the verdict must name, and a
task for a child process. The task returns a `FaultObservation`
(`allocsim.systems.ggml.faults.observation`). The observation has the wrong number, the number of
the same computation without the fault, and the rows of the graphs that ran, with real addresses.
From the rows of an observation the judge can find the fault again without ggml.

The tasks are in `allocsim.systems.ggml.faults.small_graphs` and
`allocsim.systems.ggml.faults.training_faults`.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from allocsim.systems.ggml.access.library import Library
from allocsim.systems.ggml.faults.observation import FaultObservation, evidence, repaired
from allocsim.systems.ggml.faults.small_graphs import late_output, none_view, output_on_view, stale_plan
from allocsim.systems.ggml.faults.training_faults import forward_then_backward, opt_accumulates, shared_gradient


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One fault of ggml, as listed in `FAULTS`."""

    summary: str
    party: str
    """The party at fault that the verdict must name: plan or caller."""
    root_cause: str
    """The class that the verdict must name, C01 to C15."""
    task: Callable[[Library], FaultObservation]
    """The function that runs the fault, for a child process."""


FAULTS: Final[dict[str, Fault]] = {
    "stale-plan": Fault(
        summary="a plan is reused for any graph of equal node count and sizes, even if it is rewired", party="plan", root_cause="C08", task=stale_plan
    ),
    "late-output": Fault(
        summary="ggml_set_output after the plan is made is silently ignored", party="caller", root_cause="C05", task=late_output
    ),
    "none-view": Fault(
        summary="a view of op NONE decrements its root's view count but never incremented it", party="plan", root_cause="C02", task=none_view
    ),
    "output-on-view": Fault(
        summary="OUTPUT on a view alone does not protect its root", party="plan", root_cause="C05", task=output_on_view
    ),
    "shared-gradient": Fault(
        summary="the gradient of a bias is the upstream gradient's tensor, which the next op overwrites in place", party="caller", root_cause="C05",
        task=shared_gradient,
    ),
    "opt-accumulators": Fault(
        summary="ggml-opt with dynamic graphs and period 1 never zeroes its accumulators", party="caller", root_cause="C14",
        task=opt_accumulates,
    ),
    "forward-then-backward": Fault(
        summary="a backward graph is planned over forward tensors that were planned without it", party="plan", root_cause="C08",
        task=forward_then_backward,
    ),
}  # fmt: skip
"""The name of each fault -> the fault."""

__all__ = ["FAULTS", "Fault", "FaultObservation", "evidence", "repaired"]
