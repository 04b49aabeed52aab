"""More evidence never finds less: what a set of detectors names, every larger set names as well.

K, D (that numbers differ, and where they first do) and P are left out or given; S, L, H and R come with the document and speak always. What is *named* is party,
class and mend of a cause; what is unknown names nothing.
"""

from itertools import combinations
from random import Random

from culprits import PLANTS, culprits

from allocsim.model import HOST_READ, HOST_WRITE, VIEW
from allocsim.verdict.causes import found_in
from allocsim.verdict.dossier import Dossier
from allocsim.verdict.evidence import Evidence
from repro.small.on_engine import measured

PIECES = ("audit", "diverges", "origins", "sanitizer")
ON_ENGINE = ("ends_early", "gap", "bad_pair", "untold", "shifted", "left_out", "overwritten", "undeclared", "unwritten")
"""Faults that the engine can execute where their slots fit."""
MISDEEDS = ("half", "overrun", "underrun", "writes_operand", "one_binding")
"""Of kernels, whatever their operands."""


def named(causes):
    """Return party, class and mend of what causes name."""
    return {(c.party, c.class_, c.change) for c in causes if c.party != "unknown"}


def lost(evidence):
    """Return what some set of detectors names and a larger set does not, and how many pairs of sets were compared."""
    pieces = {name: getattr(evidence, name) for name in PIECES if getattr(evidence, name) is not None}
    report = Dossier(Evidence(document=evidence.document)).report
    answers = {
        chosen: named(
            found_in(Dossier(Evidence(document=evidence.document, **{name: pieces[name] for name in chosen}), report))
        )
        for size in range(len(pieces) + 1)
        for chosen in combinations(sorted(pieces), size)
    }
    nested = [(few, more) for few in answers for more in answers if set(few) < set(more)]
    return [(few, more, answers[few] - answers[more]) for few, more in nested if answers[few] - answers[more]], len(
        nested
    )


def executed(seeds):
    """Yield planted faults of plans and programs, executed on the engine with one kernel that misbehaves: name and evidence."""
    for culprit in culprits(seeds, tuple(name for name in PLANTS if name in ON_ENGINE)):
        document = culprit.evidence.document
        rng = Random(culprit.name)
        kinds = sorted({op.kind for run in document.runs for op in run.program.ops} - {VIEW, HOST_READ, HOST_WRITE})
        misdeeds = {rng.choice(kinds): rng.choice(MISDEEDS)} if rng.random() < 0.8 else {}
        found = measured(document, misdeeds, {})
        if found:
            yield f"{culprit.name} {misdeeds}", Evidence(document=document, **found)
