"""All planted faults, in the order of the report."""

from typing import Final

from power import calls, host, kernels, library, lifetimes, memory, order, sharing
from power.fault import Fault

FAULTS: Final[tuple[Fault, ...]] = tuple(
    sorted(
        (
            fault
            for module in (library, lifetimes, sharing, kernels, host, order, memory, calls)
            for fault in module.FAULTS
        ),
        key=lambda fault: fault.verdict.split()[0].lower(),
    )
)
