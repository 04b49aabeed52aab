"""The judge, the verdict and the cure with one line changed at a time: does a test of that part fail?

    python benchmarks/judge_mutants.py --part verdict [--count 100] [--seed 1] [--first 0] [--out FILE]

A mutant changes one comparison, operator, constant, `not`, `and`/`or`, `any`/`all` or `min`/`max` of one module of a part (`PARTS`), never an
annotation or a text. Each runs in a process of its own, in which the changed source stands in place of the module, under the tests of its part until
the first that fails. It is *killed* by a failing test, *endless* beyond `SECONDS` of processor time, else it *survived*: the tests are then to be
bettered, or `EXPLAINED` says why nothing can tell it from the source. The sample is drawn by seed from all sites, without replacement. The JSON is
written after every mutant; run again, it goes on where it stopped. Exit status 1 where a survivor is not explained.
"""

import argparse
import ast
import contextlib
import copy
import importlib
import importlib.abc
import importlib.util
import io
import json
import os
import random
import resource
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

ROOT = Path(__file__).resolve().parents[1]
SECONDS: Final = 120
TESTS: Final = (
    "tests/unit/verdict",
    "tests/unit/cure",
    "tests/laws/test_causes.py",
    "tests/laws/test_company.py",
)
PARTS: Final[dict[str, tuple[str, tuple[str, ...]]]] = {
    "verdict": ("allocsim/verdict", TESTS),
    "cure": ("allocsim/cure", (TESTS[1], TESTS[0], *TESTS[2:])),
    "checks": (
        "allocsim/checks",
        ("tests/unit/checks", "tests/sensitivity/test_planted_faults.py", "tests/laws/test_checks.py"),
    ),
}
"""Part -> its folder, and the tests that must tell it from another, the quickest first."""

PRELOADED: Final = ("numpy", "msgspec", "networkx", "numba", "pytest")
"""Loaded once, before processes part."""

COMPARISONS: Final = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
OPERATORS: Final = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Add,
    ast.FloorDiv: ast.Mult,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
    ast.And: ast.Or,
    ast.Or: ast.And,
}
NAMES: Final = {"any": "all", "all": "any", "min": "max", "max": "min"}

EXPLAINED: Final[dict[tuple[str, str], str]] = {}
"""(Module, source line) of survivors -> why no test can tell them from the source."""


@dataclass(frozen=True, order=True)
class Mutant:
    """One change: the `place`-th of its module, as `sites` counts them."""

    path: str
    line: int
    place: int

    @property
    def module(self) -> str:
        """The module's name."""
        return ".".join(Path(self.path).with_suffix("").parts).removesuffix(".__init__")


def sites(tree: ast.AST) -> Iterator[tuple[ast.AST, Any]]:
    """Yield every node that can be changed, with what changes it in place."""
    skipped = {id(part) for node in ast.walk(tree) for part in _unread(node)}
    for node in _walk(tree, skipped):
        if isinstance(node, ast.Compare) and type(node.ops[0]) in COMPARISONS:
            yield node, lambda n=node: n.ops.__setitem__(0, COMPARISONS[type(n.ops[0])]())
        elif isinstance(node, ast.BinOp | ast.BoolOp | ast.AugAssign) and type(node.op) in OPERATORS:
            yield node, lambda n=node: setattr(n, "op", OPERATORS[type(n.op)]())
        elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            yield (
                node,
                lambda n=node: (setattr(n, "op", ast.Not()), setattr(n, "operand", ast.UnaryOp(ast.Not(), n.operand))),
            )
        elif isinstance(node, ast.Constant) and isinstance(node.value, bool):
            yield node, lambda n=node: setattr(n, "value", not n.value)
        elif isinstance(node, ast.Constant) and isinstance(node.value, int):
            yield node, lambda n=node: setattr(n, "value", n.value + 1)
        elif isinstance(node, ast.Name) and node.id in NAMES and isinstance(node.ctx, ast.Load):
            yield node, lambda n=node: setattr(n, "id", NAMES[n.id])


def _unread(node: ast.AST) -> Iterator[ast.AST]:
    for name in ("annotation", "returns", "decorator_list"):
        part = getattr(node, name, None)
        yield from part if isinstance(part, list) else [part] if part is not None else []


def _walk(node: ast.AST, skipped: set[int]) -> Iterator[ast.AST]:
    if id(node) in skipped:
        return
    yield node
    for child in ast.iter_child_nodes(node):
        yield from _walk(child, skipped)


def mutants(folder: str) -> list[Mutant]:
    """Return every mutant of a folder's modules."""
    found = []
    for path in sorted((ROOT / folder).glob("*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        name = str(path.relative_to(ROOT))
        found += [Mutant(name, getattr(node, "lineno", 0), place) for place, (node, _) in enumerate(sites(tree))]
    return found


def mutated(mutant: Mutant) -> tuple[ast.Module, str]:
    """Return the changed module, and the changed part of it in words."""
    tree = ast.parse((ROOT / mutant.path).read_text(encoding="utf-8"))
    node, change = list(sites(tree))[mutant.place]
    was = ast.unparse(copy.deepcopy(node))
    change()
    ast.fix_missing_locations(tree)
    return tree, f"{was} -> {ast.unparse(node)}"


class Changed(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds one module, and gives it the changed source."""

    def __init__(self, mutant: Mutant, tree: ast.Module) -> None:
        self.mutant, self.tree = mutant, tree

    def find_spec(self, name: str, *_: Any) -> Any:
        """Find the module that is changed, and no other."""
        if name != self.mutant.module:
            return None
        file = str(ROOT / self.mutant.path)
        return importlib.util.spec_from_file_location(
            name,
            file,
            loader=self,
            submodule_search_locations=[str(Path(file).parent)] if file.endswith("__init__.py") else None,
        )

    def create_module(self, _: Any) -> Any:
        """Make the module as usual."""
        return None

    def exec_module(self, module: Any) -> None:
        """Run the changed source."""
        exec(compile(self.tree, str(ROOT / self.mutant.path), "exec"), module.__dict__)  # noqa: S102 - our own source, changed


def outcome(mutant: Mutant | None, tests: tuple[str, ...]) -> tuple[str, str]:
    """Return what became of a mutant (None: of the source as it is), and the first test that failed."""
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        os.close(reading)
        resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS + 5))
        said, code = io.StringIO(), 1
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        with contextlib.redirect_stdout(said), contextlib.suppress(BaseException):
            if mutant is not None:  # plain assertions: what rewrites them would load the project's modules itself
                sys.meta_path.insert(0, Changed(mutant, mutated(mutant)[0]))
            import pytest  # noqa: PLC0415 - loads the project's plugin, which must see the changed module

            code = int(pytest.main(["-x", "-q", "--assert=plain", "-p", "no:cacheprovider", "--no-header", *tests]))
        first = next((line for line in said.getvalue().splitlines() if line.startswith(("FAILED", "ERROR"))), "")
        with os.fdopen(writing, "w") as pipe:
            pipe.write(f"{code}\n{first}")
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as pipe:
        code, _, first = pipe.read().partition("\n")
    os.waitpid(child, 0)
    if not code:
        return "endless", ""
    return ("survived" if code == "0" else "killed"), first[:160]


def main() -> int:
    """Try a sample of a part's mutants, write what became of each; return the exit status."""
    parser = argparse.ArgumentParser(description="The judge with one line changed at a time.")
    parser.add_argument("--part", choices=sorted(PARTS), default="verdict")
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--files", nargs="*", default=(), help="only these modules, by file name")
    parser.add_argument("--out", type=Path, default=ROOT / "benchmarks" / "results" / "judge_mutants.json")
    options = parser.parse_args()
    os.chdir(ROOT)
    sys.path[:0] = [str(ROOT)]
    for name in PRELOADED:
        importlib.import_module(name)
    folder, tests = PARTS[options.part]
    population = [m for m in mutants(folder) if not options.files or Path(m.path).name in options.files]
    wanted = random.Random(options.seed).sample(population, min(options.count, len(population)))  # noqa: S311
    rows: list[dict[str, Any]] = json.loads(options.out.read_text())["rows"] if options.out.exists() else []
    known = {(row["path"], row["place"], row["source"]) for row in rows}
    if not any(row["part"] == options.part for row in rows) and outcome(None, tests)[0] != "survived":
        sys.exit("the tests fail on the source as it is")
    for number, mutant in enumerate(wanted, 1):
        source = (ROOT / mutant.path).read_text(encoding="utf-8").splitlines()[mutant.line - 1].strip()
        if (mutant.path, mutant.place, source) in known:
            continue
        what, test = outcome(mutant, tests)
        row = {
            "part": options.part, "path": mutant.path, "line": mutant.line, "place": mutant.place, "source": source,
            "change": mutated(mutant)[1][:200], "outcome": what, "test": test,
            "why": EXPLAINED.get((mutant.module, source), ""),
        }  # fmt: skip
        rows.append(row)
        print(f"{number}/{len(wanted)} {what:8} {mutant.path}:{mutant.line} {row['change'][:90]}", flush=True)
        counts = Counter(f"{row['part']} {row['outcome']}" for row in rows)
        record = {
            "sites": {part: len(mutants(where)) for part, (where, _) in PARTS.items()},
            "counts": counts,
            "rows": rows,
        }
        options.out.write_text(json.dumps(record, indent=1) + "\n")
    left = [row for row in rows if row["outcome"] == "survived" and not row["why"]]
    print(Counter(f"{row['part']} {row['outcome']}" for row in rows), f"{len(left)} not explained")
    return int(bool(left))


if __name__ == "__main__":
    sys.exit(main())
