"""Where the judge can be changed in one place, and the change made in a process that runs.

A *site* is one comparison, operator, number, truth value, `not`, `any`/`all` or `min`/`max` within a function, never an annotation, a default or a text. Its
mutant has the opposite or the neighbour: `<` for `<=`, `+` for `-`, 1 for 0. `change` gives the functions that are loaded the code of the changed source, so
that nothing is imported again; it does not see what was worked out from the source before (tables of a module, what a cache keeps).
"""

import ast
import copy
import gc
import types
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).resolve().parents[1]
PARTS: Final[dict[str, tuple[str, ...]]] = {
    "verdict": ("allocsim/verdict/*.py",),
    "cure": ("allocsim/cure/*.py",),
    "diagnostics": ("allocsim/diagnostics/*.py",),
    "plain": ("allocsim/judge/plain/*.py",),
    "checks": ("allocsim/judge/fast/*.py",),
    "screens": ("allocsim/judge/fast/screens/*.py",),
    "sanitizer": ("allocsim/p_sanitizer/*.py",),
    "properties": tuple(
        f"allocsim/fuzzing/{name}.py"
        for name in ("properties", "broken_property", "examination", "history", "fuzz_case", "told_constraints")
    ),
    "gate": ("allocsim/files/*.py",),
    "replay": ("allocsim/opaque/*.py",),
}
"""Part -> its modules."""

COMPARISONS: Final = {
    before: after
    for pair in ((ast.Lt, ast.LtE), (ast.Gt, ast.GtE), (ast.Eq, ast.NotEq), (ast.Is, ast.IsNot), (ast.In, ast.NotIn))
    for before, after in (pair, pair[::-1])
}
OPERATORS: Final = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Add, ast.FloorDiv: ast.Mult,
    ast.BitAnd: ast.BitOr, ast.BitOr: ast.BitAnd, ast.And: ast.Or, ast.Or: ast.And,
}  # fmt: skip
NAMES: Final = {"any": "all", "all": "any", "min": "max", "max": "min"}


@dataclass(frozen=True, order=True)
class Mutant:
    """One change: the `place`-th of its module, as `sites` counts them; what is changed lies on the lines `line` to `last`."""

    path: str
    line: int
    last: int
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
            yield node, lambda n=node: setattr(n, "operand", ast.UnaryOp(ast.Not(), n.operand))
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
        yield from (*getattr(node, "bases", ()), *getattr(node, "keywords", ()))
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


def modules(part: str) -> list[str]:
    """Return the paths of a part's modules."""
    return sorted(str(path.relative_to(ROOT)) for glob in PARTS[part] for path in ROOT.glob(glob))


def mutants(path: str) -> list[Mutant]:
    """Return every mutant of a module."""
    tree = ast.parse((ROOT / path).read_text(encoding="utf-8"))
    return [Mutant(path, node.lineno, node.end_lineno, place) for place, (node, _) in enumerate(sites(tree))]


def mutated(mutant: Mutant) -> tuple[ast.Module, str]:
    """Return the changed module, and the changed part of it in words."""
    tree = ast.parse((ROOT / mutant.path).read_text(encoding="utf-8"))
    node, alter = list(sites(tree))[mutant.place]
    was = ast.unparse(copy.deepcopy(node))
    alter()
    ast.fix_missing_locations(tree)
    return tree, f"{was} -> {ast.unparse(node)}"


def functions(files: Iterable[str]) -> dict[str, list[types.FunctionType]]:
    """Return the functions that are loaded, by the file they are from."""
    found: dict[str, list[types.FunctionType]] = {file: [] for file in files}
    for thing in gc.get_objects():
        if isinstance(thing, types.FunctionType) and thing.__code__.co_filename in found:
            found[thing.__code__.co_filename].append(thing)
    return found


def change(mutant: Mutant, loaded: list[types.FunctionType]) -> int:
    """Give those functions of the module that are loaded the code of the changed source; return how many got it."""
    path = str(ROOT / mutant.path)
    before = codes(compile(ast.parse((ROOT / mutant.path).read_text(encoding="utf-8")), path, "exec"))
    after = codes(compile(mutated(mutant)[0], path, "exec"))
    new = {key: code for key, code in after.items() if code != before[key]}
    found = [
        (function, new.get((function.__code__.co_qualname, function.__code__.co_firstlineno))) for function in loaded
    ]
    for function, code in found:
        if code is not None:
            function.__code__ = code
    return sum(code is not None for _, code in found)


def codes(code: types.CodeType) -> dict[tuple[str, int], types.CodeType]:
    """Return the code of every function in a module's, by name and line."""
    found: dict[tuple[str, int], types.CodeType] = {}
    for part in code.co_consts:
        if isinstance(part, types.CodeType):
            found |= {(part.co_qualname, part.co_firstlineno): part, **codes(part)}
    return found
