"""The judge, the verdict and the cure with one line changed at a time: does a test of that part fail?

    python benchmarks/judge_mutants.py [--part verdict] [--each 3] [--seed 1] [--minutes 4] [--files naming.py] [--out FILE]

A mutant changes one comparison, operator, constant, `not`, `and`/`or`, `any`/`all` or `min`/`max` within one function of a part (`PARTS`), never an
annotation, a default or a text. The tests of the part are collected once; each mutant runs in a process parted from there, in which the function has the
changed code, until the first test that fails, those that kill most first. It is *killed* by a failing test, *endless* beyond `SECONDS` of processor time, else it *survived*: the
tests are then to be bettered, or `EXPLAINED` says why nothing can tell it from the source. Of each module `--each` sites are drawn by seed, without
replacement; a larger `--each` of the same seed takes up the smaller. The results are written after every mutant, as JSON and, beside it, as a page; run
again, it goes on where it stopped, and with `--thorough` asks all tests of those that survived the quick ones. Exit status 1 where a survivor is not explained.
"""

import argparse
import ast
import contextlib
import copy
import gc
import json
import os
import random
import resource
import sys
import time
import types
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest

ROOT = Path(__file__).resolve().parents[1]
SECONDS: Final = 300
"""Of processor time; several times what all tests of a part take."""
VERDICT: Final = tuple(
    f"tests/unit/verdict/test_{name}.py" for name in ("cases", "naming", "carries", "attribution", "measured", "races")
)
LAWS: Final = ("tests/laws/test_several.py", "tests/laws/test_causes.py", "tests/laws/test_company.py")
PARTS: Final[dict[str, tuple[str, tuple[str, ...], tuple[str, ...]]]] = {
    "verdict": ("allocsim/verdict", VERDICT, ("tests/unit/verdict", *LAWS, "tests/unit/cure")),
    "cure": ("allocsim/cure", ("tests/unit/cure", VERDICT[0]), (*LAWS, "tests/unit/verdict")),
    "checks": (
        "allocsim/checks",
        ("tests/unit/checks", "tests/sensitivity/test_planted_faults.py"),
        ("tests/laws/test_checks.py", VERDICT[0], *LAWS),
    ),
}
"""Part -> its folder, the quick tests that must tell it from another, and the others that do."""

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
"""(Path of the module, source line) of survivors -> why no test can tell them from the source."""


@dataclass(frozen=True, order=True)
class Mutant:
    """One change: the `place`-th of its module, as `sites` counts them."""

    path: str
    line: int
    place: int


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
    """Yield what is not part of what a function does: texts, annotations, and, outside of functions, everything."""
    if isinstance(node, ast.Module | ast.ClassDef):
        yield from (part for part in node.body if not isinstance(part, ast.FunctionDef | ast.ClassDef))
        yield from getattr(node, "bases", ())
    if isinstance(node, ast.FunctionDef):
        yield node.args
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


def change(mutant: Mutant) -> int:
    """Give the functions of the loaded module the code of the changed source; return how many got it."""
    path = str(ROOT / mutant.path)
    before = codes(compile(ast.parse((ROOT / mutant.path).read_text(encoding="utf-8")), path, "exec"))
    after = codes(compile(mutated(mutant)[0], path, "exec"))
    new = {key: code for key, code in after.items() if code != before[key]}
    made = 0
    for function in gc.get_objects():
        if isinstance(function, types.FunctionType) and function.__code__.co_filename == path:
            code = new.get((function.__code__.co_qualname, function.__code__.co_firstlineno))
            if code is not None:
                function.__code__ = code
                made += 1
    return made


def codes(code: types.CodeType) -> dict[tuple[str, int], types.CodeType]:
    """Return the code of every function in a module's, by name and line."""
    found: dict[tuple[str, int], types.CodeType] = {}
    for part in code.co_consts:
        if isinstance(part, types.CodeType):
            found |= {(part.co_qualname, part.co_firstlineno): part, **codes(part)}
    return found


class Trials:
    """A plugin of pytest: where it would run the tests that it has collected, each mutant is tried in a process of its own."""

    def __init__(self, body: Callable[["Trials"], None]) -> None:
        self.body, self.items, self.failed = body, [], ""

    def pytest_runtestloop(self, session: Any) -> bool:
        """Do what is to be done with the tests collected, and run none here."""
        self.items = session.items
        self.body(self)
        return True

    def pytest_runtest_logreport(self, report: Any) -> None:
        """Remember a failure."""
        if report.failed:
            self.failed = self.failed or report.nodeid

    def outcome(self, mutant: Mutant | None) -> tuple[str, str]:
        """Return what became of a mutant (None: of the source as it is), and the first test that failed."""
        reading, writing = os.pipe()
        child = os.fork()
        if not child:
            os.close(reading)
            resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS + 5))
            for stream in (1, 2):
                os.dup2(os.open(os.devnull, os.O_WRONLY), stream)
            said = "not changed"
            with contextlib.suppress(BaseException):
                if mutant is None or change(mutant):
                    self._run()
                    said = self.failed or "survived"
            with os.fdopen(writing, "w") as pipe:
                pipe.write(said)
            os._exit(0)
        os.close(writing)
        with os.fdopen(reading) as pipe:
            said = pipe.read()
        os.waitpid(child, 0)
        if said in {"", "survived", "not changed"}:
            return said or "endless", ""
        return "killed", said[:160]

    def _run(self) -> None:
        for item, following in zip(self.items, [*self.items[1:], None], strict=True):
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
            if self.failed:
                return


def drawn(folder: str, each: int, seed: int, files: tuple[str, ...]) -> list[Mutant]:
    """Return as many mutants of each module as asked for, module by module in turn."""
    modules: dict[str, list[Mutant]] = {}
    for mutant in mutants(folder):
        if not files or Path(mutant.path).name in files:
            modules.setdefault(mutant.path, []).append(mutant)
    shuffled = [random.Random(f"{seed} {path}").sample(found, len(found)) for path, found in sorted(modules.items())]  # noqa: S311
    return [found[turn] for turn in range(each) for found in shuffled if turn < len(found)]


def page(record: dict[str, Any]) -> str:
    """Return the results as a page: how many of each part, and each survivor with its reason."""
    lines = [
        "# The judge with one line changed at a time",
        "",
        "Written by `benchmarks/judge_mutants.py`; how it is done is said in its header. `sites` is how",
        "many lines could be changed in that way, a seeded sample of which was tried, module by module.",
        "",
        "| part | sites | tried | killed | endless | survived | of these explained |",
        "|---|---|---|---|---|---|---|",
    ]
    for part, sites_ in record["sites"].items():
        rows = [row for row in record["rows"] if row["part"] == part]
        left = [row for row in rows if row["outcome"] == "survived"]
        counts = Counter(row["outcome"] for row in rows)
        explained = sum(bool(row["why"]) for row in left)
        lines.append(
            f"| {part} | {sites_:,} | {len(rows)} | {counts['killed']} | {counts['endless']} | {len(left)} | {explained} |"
        )
    lines += ["", "## Survivors", "", "| module | line | change | of which tests | why |", "|---|---|---|---|---|"]
    for row in record["rows"]:
        if row["outcome"] == "survived":
            cells = [row["path"], row["source"], row["change"], row["tests"], row["why"] or "not explained"]
            lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return "\n".join(lines) + "\n"


def write(rows: list[dict[str, Any]], out: Path) -> None:
    """Write the rows, with their counts, as JSON and as a page beside it."""
    for row in rows:
        row["why"] = EXPLAINED.get((row["path"], row["source"]), "")
    record = {
        "sites": {part: len(mutants(where)) for part, (where, *_) in PARTS.items()},
        "counts": Counter(f"{row['part']} {row['outcome']}" for row in rows),
        "rows": rows,
    }
    out.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    out.with_suffix(".md").write_text(page(record), encoding="utf-8")


def main() -> int:
    """Try a sample of a part's mutants, write what became of each; return the exit status."""
    parser = argparse.ArgumentParser(description="The judge with one line changed at a time.")
    parser.add_argument("--part", choices=sorted(PARTS), default="verdict")
    parser.add_argument("--each", type=int, default=3, help="mutants of each module")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--minutes", type=float, default=0, help="start no mutant after so many; 0: no limit")
    parser.add_argument(
        "--thorough", action="store_true", help="try again those that survive the quick tests, with all"
    )
    parser.add_argument("--files", nargs="*", default=(), help="only these modules, by file name")
    parser.add_argument("--out", type=Path, default=ROOT / "benchmarks" / "results" / "judge_mutants.json")
    options = parser.parse_args()
    os.chdir(ROOT)
    sys.path[:0] = [str(ROOT)]
    folder, tests, more = PARTS[options.part]
    tests = (*tests, *more) if options.thorough else tests
    how = "all" if options.thorough else "quick"
    wanted = drawn(folder, options.each, options.seed, tuple(options.files))
    rows: list[dict[str, Any]] = json.loads(options.out.read_text())["rows"] if options.out.exists() else []
    open_ = {"survived"} if options.thorough else set()
    known = {
        (row["path"], row["place"], row["source"])
        for row in rows
        if row["why"] or row["outcome"] not in open_ or row["tests"] == how
    }
    began = time.monotonic()

    def body(trials: Trials) -> None:
        for number, mutant in enumerate(wanted, 1):
            source = (ROOT / mutant.path).read_text(encoding="utf-8").splitlines()[mutant.line - 1].strip()
            if (mutant.path, mutant.place, source) in known:
                continue
            if options.minutes and time.monotonic() - began > 60 * options.minutes:
                break
            what, test = trials.outcome(mutant)
            row = {
                "part": options.part, "path": mutant.path, "line": mutant.line, "place": mutant.place, "source": source,
                "change": mutated(mutant)[1][:200], "outcome": what, "tests": how, "test": test, "why": "",
            }  # fmt: skip
            rows[:] = [r for r in rows if (r["path"], r["place"], r["source"]) != (mutant.path, mutant.place, source)]
            rows.append(row)
            print(f"{number}/{len(wanted)} {what:8} {mutant.path}:{mutant.line} {row['change'][:90]}", flush=True)
            write(rows, options.out)

    trials = Trials(body)
    status = pytest.main(["-q", "-s", "-p", "no:cacheprovider", "--no-header", *tests], plugins=[trials])
    if status not in {pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED} or not trials.items:
        sys.exit("the tests cannot be collected")
    write(rows, options.out)
    left = [row for row in rows if row["outcome"] == "survived" and not row["why"]]
    print(Counter(f"{row['part']} {row['outcome']}" for row in rows), f"{len(left)} not explained")
    return int(bool(left))


if __name__ == "__main__":
    sys.exit(main())
