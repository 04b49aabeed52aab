"""allocsim finds out why a memory plan gives wrong numbers: plan, kernel or caller.

    import allocsim

    builder = allocsim.ProgramBuilder("step")                # or allocsim.read("plan.json"), or any networkx.DiGraph
    ...
    report = allocsim.verify_program(program, plan)          # allocsim.Report: every violation, with its witnesses

Names are imported when they are first used, so `import allocsim` costs nothing. `_MODULES` below is the whole public surface;
what stands in no row of it may change without notice.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from allocsim.checks import check
    from allocsim.checks.violations import KINDS, Report, Stats, Violation
    from allocsim.document import dumps, loads, read, schema, write
    from allocsim.errors import (
        AllocsimError,
        CapacityError,
        DocumentError,
        EngineError,
        ModelError,
        OutputError,
        PlannerError,
        UnknownNameError,
    )
    from allocsim.liveness.explanation import explain
    from allocsim.model import Arena, Buffers, Document, Event, Op, Ops, Plan, Problem, Program, Role, Run, Value, Values
    from allocsim.outcomes.assertions import UncleanError, assert_clean
    from allocsim.outcomes.description import describe
    from allocsim.outcomes.verification import verify, verify_lifetimes, verify_program, verify_session
    from allocsim.p_sanitizer import Sanitized, sanitized
    from allocsim.programs.allocator_trace import trace
    from allocsim.programs.builder import ProgramBuilder, plan_of
    from allocsim.programs.fingerprints import fingerprint
    from allocsim.programs.networkx_graph import as_program, from_networkx, to_networkx
    from allocsim.programs.recorder import Recorder
    from allocsim.reduction import reduce

__version__: Final = "0.1.0"

_MODULES: Final[dict[str, tuple[str, ...]]] = {
    "allocsim.outcomes.assertions": ("UncleanError", "assert_clean"),
    "allocsim.programs.allocator_trace": ("trace",),
    "allocsim.programs.builder": ("ProgramBuilder", "plan_of"),
    "allocsim.checks": ("check",),
    "allocsim.checks.violations": ("KINDS", "Report", "Stats", "Violation"),
    "allocsim.outcomes.description": ("describe",),
    "allocsim.document": ("dumps", "loads", "read", "schema", "write"),
    "allocsim.errors": (
        "AllocsimError", "CapacityError", "DocumentError", "EngineError", "ModelError", "OutputError", "PlannerError",
        "UnknownNameError",
    ),
    "allocsim.liveness.explanation": ("explain",),
    "allocsim.programs.fingerprints": ("fingerprint",),
    "allocsim.programs.networkx_graph": ("as_program", "from_networkx", "to_networkx"),
    "allocsim.model": (
        "Arena", "Buffers", "Document", "Event", "Op", "Ops", "Plan", "Problem", "Program", "Role", "Run", "Value", "Values",
    ),
    "allocsim.reduction": ("reduce",),
    "allocsim.programs.recorder": ("Recorder",),
    "allocsim.p_sanitizer": ("Sanitized", "sanitized"),
    "allocsim.outcomes.verification": ("verify", "verify_lifetimes", "verify_program", "verify_session"),
}  # fmt: skip
"""Where each public name lives."""

_HOMES: Final = {name: module for module, names in _MODULES.items() for name in names}

__all__ = [
    "KINDS",
    "AllocsimError",
    "Arena",
    "Buffers",
    "CapacityError",
    "Document",
    "DocumentError",
    "EngineError",
    "Event",
    "ModelError",
    "Op",
    "Ops",
    "OutputError",
    "Plan",
    "PlannerError",
    "Problem",
    "Program",
    "ProgramBuilder",
    "Recorder",
    "Report",
    "Role",
    "Run",
    "Sanitized",
    "Stats",
    "UncleanError",
    "UnknownNameError",
    "Value",
    "Values",
    "Violation",
    "as_program",
    "assert_clean",
    "check",
    "describe",
    "dumps",
    "explain",
    "fingerprint",
    "from_networkx",
    "loads",
    "plan_of",
    "read",
    "reduce",
    "sanitized",
    "schema",
    "to_networkx",
    "trace",
    "verify",
    "verify_lifetimes",
    "verify_program",
    "verify_session",
    "write",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'allocsim' has no attribute {name!r}")
    found = getattr(import_module(_HOMES[name]), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
