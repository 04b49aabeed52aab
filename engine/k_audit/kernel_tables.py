"""Tables of kernels of one's own, as they stand in a module.

    KERNELS = {
        "exp": np.exp,                                   # a ufunc
        "axpy": axpy,                                    # def axpy(x, y, out), or def axpy(out, x, y)
        "blend": {"call": blend, "in_place": [[0, 0]]},  # a row: what is declared, and whatever cannot be told from the function
    }

A function is called with all arrays, in the order of its parameters. Parameters named `out`, or
beginning with `out_`, are results; where there are none, the last one is. It writes its results and
returns nothing that anybody looks at. numpy's ufuncs, numba's functions and Python's are
understood; for a function in C write a wrapper that passes `x.ctypes.data`.

| key of a row | meaning [default] |
|---|---|
| `call` | the function |
| `in_place` | declared pairs `[operand, result]`; null: not known [none]; a ufunc allows any overlap, as numpy documents |
| `overlap` | `"any"`: every overlap of results and operands is right |
| `signature` | shapes as numpy writes them, `"(n,k),(k,m)->(n,m)"` [all `(n)`, or the ufunc's own] |
| `shapes` | or the shapes themselves, a list of calls, each the shapes of operands, then of results |
| `dtypes` | `["f32", "f64"]`, one of them for all arrays, or `["f32,i32->f32"]` [`f32`, `f64`; for a ufunc the first it takes] |
| `draw` | `draw(shape, dtype, position, rng)` returns the data of one operand |
| `operands` | how many parameters are operands, where the function does not tell |

The tables of the engine (kind -> variant -> `engine.kernels.Kernel`), with a list `CASES` beside
the table, are understood too.

What this module does not see: whether a kernel keeps what it declares.
"""

import importlib
import inspect
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from typing import Any, Final

import numpy as np

from allocsim.errors import AllocsimError, EngineError, UnknownNameError
from engine.k_audit.arranged_memory import Array, Draw
from engine.k_audit.audit_cases import DTYPES, AuditCase, Table, contiguous
from engine.k_audit.standing_cases import LONG, SIZES
from engine.kernels import Kernel

KEYS: Final = frozenset({"call", "in_place", "overlap", "signature", "shapes", "dtypes", "draw", "operands"})
FIRST: Final = ("f32", "f64"), ("i32",), ("u8",), ("bool",)
"""dtypes a ufunc is tried with."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelTables:
    """What there is to audit."""

    kernels: Table
    cases: tuple[AuditCase, ...] | None
    """None: the standing cases of the engine."""
    draws: Mapping[str, Draw] = field(default_factory=dict)


def load(target: str) -> KernelTables:
    """Import `package.module:KERNELS`.

    Raises EngineError or UnknownNameError, in one line, where there is no such table.
    """
    module_name, colon, name = target.partition(":")
    if not colon or not re.fullmatch(r"[\w.]+", module_name):
        raise EngineError(f"{target!r} is no table of kernels; write package.module:KERNELS")
    if str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        raise EngineError(f"{target}: module {error.name!r} does not exist") from None
    except AllocsimError:
        raise
    except (Exception, SystemExit) as error:  # noqa: BLE001 - a stranger's module may raise anything
        raise EngineError(f"{target}: importing {module_name} failed: {type(error).__name__}: {error}") from None
    if not hasattr(module, name):
        raise UnknownNameError(
            f"name in {module_name}", name, [word for word in vars(module) if not word.startswith("_")]
        )
    return tables(getattr(module, name), target, getattr(module, "CASES", None))


def tables(table: Any, target: str, cases: Sequence[AuditCase] | None = None) -> KernelTables:
    """Return a table as kernels and cases; errors as `load`."""
    if not isinstance(table, Mapping) or not table:
        raise EngineError(f"{target}: is no table of kernels: a mapping of name to function, or to a row")
    if all(
        isinstance(row, Mapping) and row and all(isinstance(k, Kernel) for k in row.values()) for row in table.values()
    ):
        return KernelTables(kernels=table, cases=None if cases is None else tuple(cases))
    kernels, made, draws = {}, [], {}
    for name, row in table.items():
        try:
            kernel, calls, drawn = _understood(str(name), row)
        except (EngineError, TypeError, ValueError) as error:
            raise EngineError(f"{target}: {name}: {error}") from None
        kernels[str(name)] = {"": kernel}
        made += calls
        if drawn is not None:
            draws[str(name)] = _drawing(drawn, f"{target}: {name}")
    return KernelTables(kernels=kernels, cases=tuple(made), draws=draws)


def _understood(name: str, row: Any) -> tuple[Kernel, list[AuditCase], Callable[..., Any] | None]:
    """Return a row as a kernel, the calls it is audited at, and what draws its data."""
    row = row if isinstance(row, Mapping) else {"call": row}
    stray = [key for key in row if key not in KEYS]
    if stray:
        raise EngineError(f"key {stray[0]!r} is not known; there are {', '.join(sorted(KEYS))}")
    call = row.get("call")
    if not callable(call):
        raise EngineError(f"call {call!r} is no function")
    order, operands = _order(call, row.get("operands"))
    count = len(order)
    ufunc = isinstance(call, np.ufunc)
    declared = row.get("in_place", ())
    overlap = row.get(
        "overlap", "any" if ufunc and "in_place" not in row else "unknown" if declared is None else "declared"
    )
    if overlap not in {"any", "unknown", "declared"}:
        raise EngineError(f"overlap {overlap!r} is neither any, unknown nor declared")
    pairs = tuple((int(operand), int(result)) for operand, result in declared or ())
    wrong = [pair for pair in pairs if not (0 <= pair[0] < operands and 0 <= pair[1] < count - operands)]
    if wrong:
        raise EngineError(
            f"in_place {list(wrong[0])} names no operand and result; there are {operands} and {count - operands}"
        )

    def bind(_: Any, read: tuple[Array, ...], written: tuple[Array, ...]) -> Any:
        arrays = (*read, *written)
        return call, tuple(arrays[index] for index in order)

    cases = []
    for shapes, dtypes in product(_shapes(row, call, operands, count), _dtypes(row, call, count)):
        arrays = tuple(contiguous(dtype, shape) for dtype, shape in zip(dtypes, shapes, strict=True))
        cases.append(AuditCase(kind=name, operands=arrays[:operands], results=arrays[operands:]))
    return Kernel(bind=bind, in_place=pairs, overlap=overlap), cases, row.get("draw")


def _order(call: Any, told: Any) -> tuple[tuple[int, ...], int]:
    """Return for each parameter the index of its array, operands first, and how many these are."""
    if isinstance(call, np.ufunc):
        return tuple(range(call.nin + call.nout)), call.nin
    try:
        parameters = list(inspect.signature(getattr(call, "py_func", call)).parameters.values())
    except (TypeError, ValueError):
        parameters = []
    names = [
        p.name for p in parameters if p.kind in {p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD} and p.default is p.empty
    ]
    if not names:
        if not isinstance(told, int) or told < 1:
            raise EngineError(
                "its parameters cannot be seen; say how many are operands (the one after them is the result)"
            )
        return tuple(range(told + 1)), told
    results = [n for n, name in enumerate(names) if name == "out" or name.startswith("out_")]
    if not results:
        results = list(range(told, len(names))) if isinstance(told, int) else [len(names) - 1]
    operands = [n for n in range(len(names)) if n not in results]
    if not operands or not results:
        raise EngineError(f"({', '.join(names)}) has no operand, or no result")
    place = {n: index for index, n in enumerate((*operands, *results))}
    return tuple(place[n] for n in range(len(names))), len(operands)


def _shapes(row: Mapping[str, Any], call: Any, operands: int, count: int) -> tuple[tuple[tuple[int, ...], ...], ...]:
    if "shapes" in row:
        calls = tuple(tuple(tuple(int(n) for n in shape) for shape in shapes) for shapes in row["shapes"])
        if not calls or any(len(shapes) != count for shapes in calls):
            raise EngineError(f"shapes wants a list of calls of {count} shapes each")
        return calls
    text = row.get("signature") or getattr(call, "signature", None)
    if text is None:
        text = ",".join(["(n)"] * operands) + "->" + ",".join(["(n)"] * (count - operands))
    cores = [
        tuple(word for word in re.split(r"[,\s]+", core.strip("()").replace("?", "")) if word)
        for core in re.findall(r"\([^)]*\)", text)
    ]
    if len(cores) != count or text.count("->") != 1 or len(re.findall(r"\(", text.partition("->")[0])) != operands:
        raise EngineError(
            f"signature {text!r} is not of {operands} operands and {count - operands} results, like '(n),(n)->(n)'"
        )
    letters = list(dict.fromkeys(letter for core in cores for letter in core if not letter.isdigit()))
    lengths = [dict.fromkeys(letters, n) for n in (*SIZES, *((LONG,) if len(letters) < 2 else ()))]
    if len(letters) > 1:
        lengths = [each for each in lengths if next(iter(each.values())) <= 64]
        lengths.append({letter: 5 + 2 * n for n, letter in enumerate(letters)})
    return tuple(tuple(tuple(int(x) if x.isdigit() else each[x] for x in core) for core in cores) for each in lengths)


def _dtypes(row: Mapping[str, Any], call: Any, count: int) -> tuple[tuple[str, ...], ...]:
    if "dtypes" in row:
        found = []
        for text in [row["dtypes"]] if isinstance(row["dtypes"], str) else row["dtypes"]:
            names = [name for name in re.split(r"\s*(?:,|->)\s*", str(text)) if name]
            names = names * count if len(names) == 1 else names
            unknown = [name for name in names if name not in DTYPES]
            if unknown:
                raise UnknownNameError("dtype", unknown[0], DTYPES)
            if len(names) != count:
                raise EngineError(f"dtypes {text!r} is not of {count} arrays")
            found.append(tuple(names))
        return tuple(found)
    if isinstance(call, np.ufunc):
        for group in FIRST:
            taken = tuple((name,) * count for name in group if _takes(call, name, count))
            if taken:
                return taken
        raise EngineError("the ufunc takes neither f32, f64, i32, u8 nor bool; give its dtypes")
    return tuple((name,) * count for name in FIRST[0])


def _takes(call: Any, name: str, count: int) -> bool:
    try:
        call.resolve_dtypes((DTYPES[name],) * count)
    except TypeError:
        return False
    return True


def _drawing(function: Callable[..., Any], what: str) -> Draw:
    def draws(case: AuditCase, position: int, rng: np.random.Generator, _: str) -> Array:
        spec = case.operands[position]
        try:
            return np.broadcast_to(
                np.asarray(function(spec.shape, spec.dtype, position, rng), DTYPES[spec.dtype]), spec.shape
            )
        except Exception as error:
            raise EngineError(f"{what}: draw failed: {type(error).__name__}: {error}") from error

    return draws
