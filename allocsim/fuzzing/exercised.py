"""What a campaign exercised: features, branches and mutants, so that a clean result has a meaning.

    result = campaign(asked)
    shown = exercised(asked, result.tally)
    print("; ".join(shown.lines()))        # shown.as_json() for machines

Three views of one campaign. *Features*: how many programs had each feature of `features.FEATURES`,
and which pairs of two never met in one program. *Branches*: which branches of the target's own
Python were taken (`tracing`; where the target was traced). *Mutants*: of the planners with a known
bug (`mutants`), which the same source with the same seed finds, by which property; each is asked
for `CASES` programs at most, in this process, since they are ours. A mutant is killed by its first
finding; whether that is small is for reducing.

What this module does not see: how programs are made.
"""

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import islice
from typing import Any, Final

from allocsim.allocators import ALLOCATORS, Allocator
from allocsim.errors import AllocsimError, CapacityError, ExceededError
from allocsim.fuzzing.batch import Batch
from allocsim.fuzzing.broken_property import BrokenProperty
from allocsim.fuzzing.bulk import Cut
from allocsim.fuzzing.examination import AGAIN, Examiner
from allocsim.fuzzing.explorer import CampaignSpec
from allocsim.fuzzing.features import in_pairs, singly, size_in_words
from allocsim.fuzzing.fuzz_case import Answer, Failure, FuzzCase, same_plan
from allocsim.fuzzing.mutants import MUTANTS
from allocsim.fuzzing.properties import asked_of
from allocsim.fuzzing.sources import SOURCES, chunks
from allocsim.fuzzing.tally import Tally
from allocsim.fuzzing.told_constraints import TOLD
from allocsim.fuzzing.tracing import Branches, branches
from allocsim.model import Plan

CASES: Final = 500
"""Programs a mutant is asked to plan before it counts as alive."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Exercised:
    """What a campaign exercised."""

    programs: int
    features: dict[str, int]
    """Programs that had each feature, or were asked with it."""
    pairs: dict[tuple[str, str], int]
    """Programs that had both of two features."""
    sizes: dict[str, int]
    """Ops, buffers, operands, results and bytes of all programs, added up."""
    branches: tuple[Branches, ...]
    """Of the target's own files; none where it was not traced."""
    mutants: dict[str, str | None]
    """The property that found each mutant, None for the living; empty if none was tried."""

    @property
    def pairs_met(self) -> int:
        """How many pairs of features met in some program."""
        return sum(count > 0 for count in self.pairs.values())

    @property
    def killed(self) -> int:
        """How many mutants were found."""
        return sum(found is not None for found in self.mutants.values())

    def as_json(self) -> dict[str, Any]:
        """Return all of it for JSON."""
        return {
            "programs": self.programs,
            "features": self.features,
            "pairs": {
                "there_are": len(self.pairs),
                "met": self.pairs_met,
                "never": [list(p) for p, n in self.pairs.items() if not n],
            },
            "branches": [asdict(row) for row in self.branches],
            "mutants": {"there_are": len(self.mutants), "killed": self.killed, "found_by": self.mutants},
        }

    def lines(self) -> Iterator[str]:
        """Yield what there is to say of it for a person, a histogram of the features first."""
        most = max(self.features.values(), default=0) or 1
        for name, count in sorted(self.features.items(), key=lambda row: -row[1]):
            yield f"{name:22} {count:8}  {'#' * -(-40 * count // most)}"
        yield f"never drawn: {', '.join(name for name, count in self.features.items() if not count) or 'none'}"
        yield size_in_words(self.sizes, self.programs)
        never = [f"{one} + {other}" for (one, other), count in self.pairs.items() if not count]
        told = f"; never {', '.join(never[:6])}{' and others' if len(never) > 6 else ''}" if never else ""
        yield f"pairs of features: {self.pairs_met} of {len(self.pairs)}{told}"
        for row in self.branches:
            where = ", ".join(str(line) for line in sorted({line for line, _ in row.never})[:8])
            yield (
                f"branches of {row.file}: {row.taken} of "
                f"{row.there_are}{f'; never all ways from line {where}' if where else ''}"
            )
        if self.mutants:
            alive = [name for name, found in self.mutants.items() if found is None]
            left = f"; alive: {', '.join(alive)}" if alive else ""
            yield f"mutants killed: {self.killed} of {len(self.mutants)}{left}"


def exercised(
    asked: CampaignSpec, tally: Tally, *, mutants: Sequence[str] | None = None, cases: int = CASES
) -> Exercised:
    """Return what a campaign exercised.

    `mutants`, by default all, are tried for it, at most `cases` programs each.

    Raises PlannerError where the target was traced and `coverage` is not there to say how many
    branches it has.
    """
    return Exercised(
        programs=tally.programs,
        features={**singly(tally.features), **{name: tally.told[name] for name in TOLD}},
        sizes=dict(tally.sizes),
        pairs=in_pairs(tally.features),
        branches=tuple(branches(tally.arcs)),
        mutants={
            name: None if (found := killed_by(asked, name, cases=cases)) is None else found.breaks
            for name in (MUTANTS if mutants is None else mutants)
        },
    )


def killed_by(asked: CampaignSpec, name: str, *, cases: int = CASES) -> BrokenProperty | None:
    """Return the first finding of a mutant among the programs of a campaign's source and seed.

    The answer is None where it stays alive.
    """
    row = MUTANTS[name]
    return first_finding(asked, row.allocator(), guarantees=ALLOCATORS[row.into].guarantees, cases=cases)


def first_finding(
    asked: CampaignSpec, allocator: Allocator, *, guarantees: Sequence[str] | None = None, cases: int = CASES
) -> BrokenProperty | None:
    """Return the first finding of a planner of ours among `cases` programs at most, asked in this
    process.

    It is held to what these guarantees promise, by default those of the campaign, or its own; a
    mutant to those of the planner it is planted into. As in a campaign, one that states none is
    held to all that need no promise, and to nothing that it is not given: pins, or beliefs.
    """
    asker: Any = Within(allocator)  # all that an examiner asks of an `Asker`
    stated = next(
        (one for one in (guarantees, asked.guarantees, allocator.guarantees or None) if one is not None), None
    )
    given = {name: bool(getattr(allocator, name, True)) for name in ("told", "places")}
    examiner = Examiner(asker, properties=asked_of(stated, without=asked.without, **given))
    asking = _Until(examiner, cases)
    for chunk in chunks(asked.source, seed=asked.seed, options=asked.options, total=cases):
        try:
            SOURCES[asked.source].explore(chunk, asking)
            asking.stop_at(examiner.judge_held())
        except _Found as found:
            return found.finding
        except _Enough:
            break
    return next(iter(examiner.judge_held()), None)


class Within:
    """A planner of ours under questions, in this process: what `target.Asker` is for strangers."""

    def __init__(self, allocator: Allocator) -> None:
        self.allocator = allocator
        self.guarantees = allocator.guarantees

    def ask(self, cases: Sequence[FuzzCase], *, again: bool = False, until: float | None = None) -> list[Answer]:  # noqa: ARG002 - the seam's signature
        """Return the answer to each case."""
        return [self._one(case, again=again) for case in cases]

    def _one(self, case: FuzzCase, *, again: bool) -> Answer:
        try:
            plan = self._plan(case)
            same = not again or same_plan(plan, self._plan(case))
            return Answer(plan=plan, again=same)
        except ExceededError as error:
            return Answer(failure=Failure(kind="exceeds", words=str(error)))
        except CapacityError as error:
            return Answer(refused=str(error))
        except AllocsimError as error:
            if isinstance(error.__cause__, CapacityError):
                return Answer(refused=str(error))
            return Answer(
                failure=Failure(kind="raises", words=str(error), where=type(error.__cause__ or error).__name__)
            )

    def _plan(self, case: FuzzCase) -> Plan:
        if case.believed is not None:
            return self.allocator.place(case.believed)
        return self.allocator.plan(case.program, case.constraints)


class _Found(BaseException):
    """The first finding, on its way out of a source, which is not to catch it: no error."""

    def __init__(self, finding: BrokenProperty) -> None:
        self.finding = finding
        super().__init__(finding.message)


class _Enough(BaseException):
    """As many programs as were asked for; on its way out of a source, as `_Found` is."""


@dataclass(frozen=True, slots=True)
class _Until:
    """What a source does with its cases until the first finding, or until there were `cases`
    (`sources.Asking`).
    """

    examiner: Examiner
    cases: int

    def case(self, case: FuzzCase) -> Answer:
        """Examine a case."""
        self.left()
        answer, findings = self.examiner.hold(case)
        self.stop_at(findings)
        return answer

    def batch(self, batch: Batch) -> None:
        """Examine the programs of a batch, of the last one as many as are left."""
        self.stop_at(self.examiner.examine(Cut(batch)[: self.left()], every=AGAIN))

    def left(self) -> int:
        """Return how many programs are left to examine; raise where none is."""
        left = self.cases - self.examiner.tally.programs
        if left <= 0:
            raise _Enough
        return left

    def stop_at(self, findings: Sequence[BrokenProperty]) -> None:
        """Raise the first finding, if there is one."""
        for finding in islice(findings, 1):
            raise _Found(finding)
