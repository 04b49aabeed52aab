"""Planners of other packages: `package.module:function`, or an installed entry point.

A stranger's function is recognised by its signature:

* a first parameter that is annotated `Problem` or called `problem`: a placement; it is given the
  exact belief (`allocsim.allocators.exact`), or the problem at hand, and returns a Plan or offsets;
* otherwise it takes a program, and `constraints` too if it has a second parameter that must be
  given or one of that name. What it returns tells the rest: a Problem makes it a belief, which the
  placement of `ggml` completes; a Plan or offsets make it a planner of its own whose belief is not
  known.

Offsets are whole bytes, by position (a list, a tuple, an integer array) or by buffer (a mapping),
each in the buffer's own arena; "own" and None mean what they mean in a document, and None for a
buffer that is to be kept apart means "own". What a stranger does wrong comes back as one
`PlannerError` with its name (`allocsim.allocators.planner`).
"""

import importlib
import inspect
import sys
import traceback
from collections.abc import Callable
from dataclasses import dataclass, replace
from importlib import metadata
from pathlib import Path
from typing import Any, ClassVar, Final

from allocsim.allocators import exact, ggml
from allocsim.allocators.constraints import Constraints
from allocsim.allocators.planner import Allocator, Planner, a_plan, a_problem, call, in_a_line
from allocsim.errors import AllocsimError, PlannerError, UnknownNameError
from allocsim.model import Plan, Problem, Program

GROUP: Final = "allocsim.allocators"
"""The entry point group in which packages offer planners."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stranger:
    """A function from a program to a problem or to a plan.

    Which of the two shows when it is called.
    """

    name: str
    function: Callable[..., Any]
    told: str
    """How it takes `constraints`: by `position`, by `keyword`, or not (empty)."""
    guarantees: tuple[str, ...] = ()
    """What it promises: the function's attribute `guarantees`, names of `GUARANTEES` or of
    properties; of one without it nothing is known.
    """
    places: ClassVar[bool] = False
    """A belief is not placed as it is given: of one it is asked only its constraints."""

    def plan(self, program: Program, constraints: Constraints | None = None) -> Plan:
        """Return its plan, or the plan that `ggml` makes of its belief.

        `problem` is set only where it is known.

        Raises PlannerError for what is no answer and CapacityError for a plan beyond an arena's
        capacity.
        """
        told = constraints if constraints is not None else Constraints.of(program)
        arguments = (told,) if self.told == "position" else ()
        keywords = {"constraints": told} if self.told == "keyword" else {}
        answer = call(self.name, self.function, program, *arguments, **keywords)
        if isinstance(answer, Problem):
            problem = a_problem(self.name, program, answer)
            plan = a_plan(self.name, program, call(self.name, ggml.place, problem), problem=problem)
            return replace(plan, source=self.name)
        return a_plan(self.name, program, answer, own=told.own)

    def place(self, problem: Problem) -> Plan:
        """Plan the problem's program under the problem's constraints.

        The rest of the problem is not asked for.
        """
        return self.plan(problem.program, Constraints.from_problem(problem))


def meant(name: str) -> tuple[str, ...]:
    """Return the `package.module:function` that a name which is none is likely to stand for, or ().

    A path (`planners/mine.py`, `mine.py:plan`) names a module in a person's mind, and the name of a
    module in the current folder (`mine`, `mine.plan`) lacks its function, or the colon before it.
    """
    path, _, function = name.partition(":")
    module, _, last = path.rpartition(".")
    if last == "py":
        return (f"{Path(path).stem}:{function or 'FUNCTION'}",)
    if function or not all(part.isidentifier() for part in path.split(".")):
        return ()
    offers = {path: f"{path}:FUNCTION", module: f"{module}:{last}"}
    return tuple(offer for part, offer in offers.items() if part and Path(*part.split(".")).with_suffix(".py").exists())


def find_stranger(name: str, *, here: bool = True) -> Planner:
    """Return the planner called `package.module:function`.

    The current directory is searched as well, first, unless `here` is False.

    Raises UnknownNameError where module or function do not exist, PlannerError where importing
    fails or it is no function.
    """
    function = named_object(name, here=here)
    if isinstance(function, Allocator):
        return function
    if not callable(function):
        raise PlannerError(f"allocator {name!r} is a {type(function).__name__}, not a function")
    return of_function(name, function)


def named_object(
    name: str, *, what: str = "allocator", raised: type[AllocsimError] = PlannerError, here: bool = True
) -> Any:
    """Return what is called `package.module:attribute`, which only a person may name, never data.

    The current directory is searched as well, first, unless `here` is False.

    Raises UnknownNameError where module or attribute do not exist, `raised`, with `what` it is,
    where importing fails.
    """
    module_name, _, path = name.partition(":")
    found = _import(what, name, raised, here=here)
    for part in path.split("."):
        if not hasattr(found, part):
            raise UnknownNameError(f"function of {module_name}", path, _functions(found))
        found = getattr(found, part)
    return found


def entry_points() -> dict[str, list[str]]:
    """Return the installed entry points: name -> the `package.module:function` of each package that
    offers it.
    """
    found: dict[str, list[str]] = {}
    for point in metadata.entry_points(group=GROUP):
        offers = found.setdefault(point.name, [])
        if point.value not in offers:  # one package may be found in two places of the path
            offers.append(point.value)
    return found


def find_entry_point(name: str) -> Planner:
    """Return the planner installed under `name`, which exists.

    Raises PlannerError where two packages offer it or it is no planner.
    """
    offers = entry_points()[name]
    if len(offers) > 1:
        raise PlannerError(
            f"allocator {name!r} is offered twice, as {' and '.join(sorted(offers))}; use one of these names"
        )
    planner = find_stranger(offers[0], here=False)  # what is installed is meant, not what lies in the current folder
    if isinstance(planner, Allocator):
        return planner if planner.name == name else replace(planner, name=name, source=planner.source or offers[0])
    assert isinstance(planner, Stranger)
    return replace(planner, name=name)


def of_function(name: str, function: Callable[..., Any]) -> Planner:
    """Return the planner a function is, by its signature (module header).

    Raises PlannerError if it takes no argument.
    """
    try:
        parameters = [p for p in inspect.signature(function).parameters.values() if p.kind is not p.VAR_KEYWORD]
    except (TypeError, ValueError):
        raise PlannerError(f"allocator {name!r} has no signature to tell what it takes") from None
    if not parameters or parameters[0].kind is inspect.Parameter.KEYWORD_ONLY:
        raise PlannerError(f"allocator {name!r} takes no argument; a problem or a program is needed")
    stated = tuple(getattr(function, "guarantees", ()))
    first = parameters[0]
    annotation = first.annotation if isinstance(first.annotation, str) else getattr(first.annotation, "__name__", "")
    if first.name == "problem" or annotation.strip("'\"").rpartition(".")[2] == "Problem":
        return Allocator(name=name, belief=exact.believe, placement=function, source=name, guarantees=stated)
    return Stranger(name=name, function=function, told=_takes_constraints(parameters[1:]), guarantees=stated)


def _takes_constraints(rest: list[inspect.Parameter]) -> str:
    if any(p.name == "constraints" and p.kind in {p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY} for p in rest):
        return "keyword"
    second = rest[0] if rest else None
    if second is None or second.kind not in {second.POSITIONAL_ONLY, second.POSITIONAL_OR_KEYWORD}:
        return ""
    return "position" if second.default is inspect.Parameter.empty else ""


def _import(what: str, name: str, raised: type[AllocsimError], *, here: bool) -> Any:
    named, module_name = f"{what} {name!r}", name.partition(":")[0]
    if not all(part.isidentifier() for part in module_name.split(".")):
        raise UnknownNameError("module", module_name, meant(name))
    folder = str(Path.cwd())
    added = here and folder not in sys.path
    if added:
        sys.path.insert(0, folder)
    try:
        return importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        missing = error.name or ""
        if module_name == missing or module_name.startswith(f"{missing}."):
            raise UnknownNameError("module", module_name, meant(name)) from None
        raise raised(f"{named} cannot be imported: {error}") from error
    except (Exception, SystemExit) as error:
        raise raised(f"{named} cannot be imported: {in_a_line(error)}{_place(error, module_name)}") from error
    finally:
        if added:
            sys.path.remove(folder)


def _place(error: BaseException, module_name: str) -> str:
    """Return the line of the module at which an error came out of it, in words.

    Empty where the error came from elsewhere.
    """
    lines = [
        line for frame, line in traceback.walk_tb(error.__traceback__) if frame.f_globals.get("__name__") == module_name
    ]
    return f" (line {lines[-1]} of {module_name})" if lines else ""


def _functions(module: Any) -> list[str]:
    return [key for key, member in vars(module).items() if callable(member) and not key.startswith("_")]
