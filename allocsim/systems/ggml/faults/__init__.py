"""Seven faults by which current ggml gives wrong numbers although no kernel is at fault.

Each is shown on the real library.

Contract: `FAULTS[name]` has a description, the class and party that the verdict must find, and a
task for a child process. The task returns a `FaultObservation`: the number found, the number wanted
(from the same computation without the fault), and the rows of the graphs that ran at their real
addresses, so the judge can find the fault again without ggml
(`allocsim.systems.ggml.faults.observation`).

Source: `allocsim.systems.ggml.faults.small_graphs`, `allocsim.systems.ggml.faults.training_faults`.
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
    """One row of `FAULTS`."""

    summary: str
    party: str
    """The party at fault: plan or caller."""
    root_cause: str
    """The class of the catalogue, C01 to C15."""
    task: Callable[[Library], FaultObservation]


FAULTS: Final[dict[str, Fault]] = {
    "stale-plan": Fault(
        summary="a plan is keyed by node count and sizes only; a rewired graph reuses it", party="plan", root_cause="C08", task=stale_plan
    ),
    "late-output": Fault(
        summary="ggml_set_output after the plan is made is silently ignored", party="caller", root_cause="C05", task=late_output
    ),
    "none-view": Fault(
        summary="a view of op NONE is counted off its root without ever being counted on", party="plan", root_cause="C02", task=none_view
    ),
    "output-on-view": Fault(
        summary="OUTPUT on a view alone does not protect its root", party="plan", root_cause="C05", task=output_on_view
    ),
    "shared-gradient": Fault(
        summary="a bias shares the upstream gradient's tensor, which is then taken in place", party="caller", root_cause="C05",
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
"""Name -> fault."""

__all__ = ["FAULTS", "Fault", "FaultObservation", "evidence", "repaired"]
