"""Mutants of the planners, made by cosmic-ray: every place where it would change `allocsim/allocators` or `allocsim/liveness`, and the
source it would leave.

A *site* is a place in a file with a kind of change (replace a comparison, a number, ...); a site has one or several mutants. `sample` draws sites
without replacement and one mutant of each, so that an operator with eleven replacements does not crowd out the others. Changes of annotations are
no mutants: nothing reads them.
"""

import ast
import random
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

REPLACING = ("core/ReplaceBinaryOperator", "core/ReplaceComparisonOperator")

ROOT = Path(__file__).resolve().parents[1]


def sources() -> list[Path]:
    """Return the files that are mutated, by their path in the project."""
    return [path.relative_to(ROOT) for path in sorted((ROOT / "allocsim" / "allocators").glob("*.py"))] + [
        path.relative_to(ROOT) for path in sorted((ROOT / "allocsim").glob("liveness*.py"))
    ]


@dataclass(frozen=True, order=True)
class Mutant:
    """One change of one file."""

    path: str
    line: int
    column: int
    operator: str
    occurrence: int

    @property
    def module(self) -> str:
        """The module's name."""
        return ".".join(Path(self.path).with_suffix("").parts).removesuffix(".__init__")

    @property
    def site(self) -> tuple[str, int, int, str]:
        """The place and the kind of change."""
        return self.path, self.line, self.column, self.operator.split("_")[0]

    @property
    def source(self) -> str:
        """The mutated text of the file; the text as it is where the operator has nothing to change there."""
        from cosmic_ray.mutating import mutate_code  # noqa: PLC0415 - an extra
        from cosmic_ray.plugins import get_operator  # noqa: PLC0415 - as above

        text = (ROOT / self.path).read_text(encoding="utf-8")
        return str(mutate_code(text, get_operator(self.operator)(), self.occurrence) or text)

    def change(self) -> tuple[str, str]:
        """Return the lines it changes, before and after."""
        before, after = (ROOT / self.path).read_text(encoding="utf-8").splitlines(), self.source.splitlines()
        rows = [number for number, pair in enumerate(zip(before, after, strict=False)) if pair[0] != pair[1]]
        first = rows[0] if rows else min(len(before), len(after)) - 1
        if len(before) == len(after):
            return before[first].strip(), after[first].strip()
        return before[first].strip(), "(removed)"


def mutants(path: Path) -> Iterator[Mutant]:
    """Yield every mutant of one file that differs from it in more than its annotations."""
    from cosmic_ray.ast import Visitor, get_ast  # noqa: PLC0415 - an extra
    from cosmic_ray.plugins import get_operator, operator_names  # noqa: PLC0415 - as above

    class Sites(Visitor):  # type: ignore[misc]
        def __init__(self, operator: Any) -> None:
            self.operator, self.found = operator, []

        def visit(self, node: Any) -> Any:
            self.found += [start for start, _ in self.operator.mutation_positions(node)]
            return node

    text = (ROOT / path).read_text(encoding="utf-8")
    tree, skipped = get_ast(text), annotations(text)
    alike: dict[str, list[str]] = {}  # operators that replace the same thing by various others
    for name in sorted(operator_names()):
        alike.setdefault(name.rpartition("_")[0] if name.startswith(REPLACING) else name, []).append(name)
    for names in alike.values():
        operator = get_operator(names[0])
        if operator.arguments():
            continue
        visitor = Sites(operator())
        visitor.walk(tree)
        for occurrence, (line, column) in enumerate(visitor.found):
            if not any(low <= (line, column) < high for low, high in skipped):
                for name in names:
                    yield Mutant(str(path), line, column, name, occurrence)


def annotations(text: str) -> list[tuple[tuple[int, int], tuple[int, int]]]:
    """Return where a source has annotations, as half-open ranges of (line, column)."""
    found = []
    for node in ast.walk(ast.parse(text)):
        for name in ("annotation", "returns"):
            part = getattr(node, name, None)
            if part is not None:
                found.append(((part.lineno, part.col_offset), (part.end_lineno, part.end_col_offset)))
    return found


@cache
def population() -> dict[tuple[str, int, int, str], tuple[Mutant, ...]]:
    """Return all sites with their mutants."""
    sites: dict[tuple[str, int, int, str], list[Mutant]] = {}
    for path in sources():
        for mutant in mutants(path):
            sites.setdefault(mutant.site, []).append(mutant)
    return {site: tuple(sites[site]) for site in sorted(sites)}


def sample(count: int, seed: int, *, without: Iterable[str] = ()) -> list[Mutant]:
    """Draw `count` sites and a mutant of each; `without` leaves out files by name."""
    rng = random.Random(seed)
    left_out = set(without)
    sites = [site for site in population() if Path(site[0]).name not in left_out]
    return [_drawn(rng, population()[site]) for site in rng.sample(sites, min(count, len(sites)))]


def _drawn(rng: random.Random, variants: tuple[Mutant, ...]) -> Mutant:
    """Draw one mutant of a site; some operators leave out a place that their kin have, and then count otherwise."""
    for mutant in rng.sample(variants, len(variants)):
        before, after = (
            text.splitlines() for text in ((ROOT / mutant.path).read_text(encoding="utf-8"), mutant.source)
        )
        changed = next(
            (number for number, pair in enumerate(zip(before, after, strict=False), 1) if pair[0] != pair[1]), None
        )
        if changed is not None and abs(changed - mutant.line) <= 2:  # what is removed leaves its line to the next
            return mutant
    raise AssertionError(f"no operator changes {variants[0].site}")
