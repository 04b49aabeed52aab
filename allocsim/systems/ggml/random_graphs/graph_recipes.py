"""A ggml graph as plain data, in the order in which it is built.

A recipe can be stored, replayed, shrunk, and built in any library.

Contract: a `GraphRecipe` is a list of steps. Each step makes one tensor: it is a leaf (`tensor`) or
a builder call whose arguments are numbers or `%k`, the tensor of step k. `expand` lists the steps
passed to `ggml_build_forward_expand`, in order. `outputs` lists the steps flagged OUTPUT by
`ggml_set_output` before planning. Leafs are written before every compute; `fill` says how their
elements are drawn from the recipe's seed and their step. The graph runs on `threads` threads.

    recipe = GraphRecipe(steps=(leaf("f32", 8), step("scale", "%0", 2.0)), expand=(1,), outputs=(1,))
    built = build(workspace, recipe)
    ran(workspace, built, place(workspace, built))

What this module does not see: whether the calls are legal. An illegal call makes ggml abort, so
build in a child process. Elements are normally distributed, unless a leaf has a `fill` or the type
i32 (row numbers below `rows`).
"""

import ctypes
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, field
from math import prod
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from allocsim.errors import EngineError, UnknownNameError
from allocsim.systems.ggml.access.declarations import BUILDERS
from allocsim.systems.ggml.access.library import Library
from allocsim.systems.ggml.access.structs import records
from allocsim.systems.ggml.access.workspace import MODIFIERS, Context, LibraryWorkspace
from allocsim.systems.ggml.capture.drawn_elements import encoded
from allocsim.systems.ggml.capture.graph_rows import Rows, walk
from allocsim.systems.ggml.k_audit.library_cases import FILLS

TENSOR: Final = "tensor"
MOST_THREADS: Final = 512
"""`GGML_MAX_N_THREADS`."""

MAY_BE_EMPTY: Final = {
    "soft_max_ext": 1,
    "rope_ext": 2,
    "rope_ext_back": 2,
    "rope_multi": 2,
    "rope_multi_back": 2,
    "flash_attn_ext": 3,
}
"""Builder -> position of the tensor argument that may be None: a mask, or the factors of the
frequencies.
"""

SHAPE_ALONE: Final = {"repeat": 1, "repeat_back": 1, "get_rows_back": 2}
"""Builder -> position of the tensor argument that gives only a shape and is no source in ggml."""

SECTIONS: Final = 4
"""`GGML_MROPE_SECTIONS`: the length of the only kind of integer array that builders take."""

MODES: Final = ("default", "pinned", "apart")
"""How `place` places a graph: planned as built, planned with every node flagged OUTPUT, or each
tensor in memory of its own without a plan."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecipeStep:
    """A step of a recipe, which makes one tensor."""

    make: str
    """`tensor` for a leaf, else the name of a builder without `ggml_`."""
    arguments: tuple[Any, ...]
    """For a leaf: dtype and `ne`. For a builder: its arguments after the context, with tensors as
    `%k`."""
    flag: str = ""
    """Any of `input`, `param` and `loss`, separated by spaces; `GraphRecipe` has the outputs."""
    static: bool = False
    """Whether the step is a leaf in memory of its own, allocated before planning."""
    rows: int = 0
    """The upper bound (exclusive) of the drawn elements of an i32 leaf."""
    fill: str = ""
    """How the elements of a leaf are drawn, a key of
    `allocsim.systems.ggml.k_audit.library_cases.FILLS`.

    Empty: normally distributed, or row numbers below `rows` for i32.
    """

    @property
    def sources(self) -> list[int]:
        """The steps whose tensors are arguments of this step."""
        return [int(a[1:]) for a in self.arguments if isinstance(a, str) and a.startswith("%")]

    @property
    def reads(self) -> list[int]:
        """The steps in `sources` that the node reads; a tensor that only gives a shape
        (`SHAPE_ALONE`) is left out.
        """
        shape = self.arguments[SHAPE_ALONE[self.make]] if self.make in SHAPE_ALONE else None
        return [source for source in self.sources if f"%{source}" != shape]


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphRecipe:
    """A graph as a list of steps that can be built in any ggml library."""

    steps: tuple[RecipeStep, ...]
    expand: tuple[int, ...]
    outputs: tuple[int, ...] = ()
    seed: int = 0
    name: str = ""
    threads: int = 1

    def encode(self) -> dict[str, Any]:
        """Return the recipe as JSON data."""
        return asdict(self)

    @classmethod
    def decode(cls, data: dict[str, Any]) -> "GraphRecipe":
        """Return the recipe that `encode` gave; raise EngineError if the data are no recipe.

        A builder must be declared to make a tensor. Its tensor arguments must name earlier steps,
        or be None if the builder allows that. So no number in a file is ever used as an address.
        """
        try:
            steps = tuple(
                RecipeStep(
                    **{**step, "arguments": tuple(tuple(a) if isinstance(a, list) else a for a in step["arguments"])}
                )
                for step in data["steps"]
            )
            rest = {key: tuple(data[key]) for key in ("expand", "outputs")}
            threads = int(data.get("threads", 1))
            _check(steps, **rest, threads=threads)
            return cls(steps=steps, **rest, seed=int(data["seed"]), name=str(data["name"]), threads=threads)
        except (KeyError, TypeError, ValueError) as error:
            raise EngineError(f"not a recipe: {error}") from None


def reached(recipe: GraphRecipe, sources: Callable[[RecipeStep], Iterable[int]]) -> list[int]:
    """Return, in ascending order, the expanded steps and all steps that they need directly or
    indirectly; `sources` returns the steps that one step needs directly.
    """
    seen: set[int] = set()
    todo = list(recipe.expand)
    while todo:
        index = todo.pop()
        if index not in seen:
            seen.add(index)
            todo.extend(sources(recipe.steps[index]))
    return sorted(seen)


def _check(steps: Sequence[RecipeStep], expand: Sequence[Any], outputs: Sequence[Any], threads: int) -> None:
    """Raise ValueError unless every step has valid arguments, `expand` and `outputs` list existing
    steps, and `threads` is 1 to `MOST_THREADS`.
    """
    for index, made in enumerate(steps):
        if made.make == TENSOR:
            dtype, *ne = made.arguments
            if (
                not isinstance(dtype, str)
                or not 1 <= len(ne) <= 4
                or not all(_fits("i64", n, index) and n >= 0 for n in ne)
            ):
                raise ValueError(
                    f"step {index} makes a tensor of {made.arguments}; a dtype and one to four lengths are needed"
                )
            if made.fill and made.fill not in FILLS:
                raise ValueError(f"step {index} is filled by {made.fill!r}; the fills are {', '.join(FILLS)}")
            continue
        kinds = BUILDERS.get(made.make) or MODIFIERS.get(made.make)
        if kinds is None:
            raise ValueError(f"step {index} calls {made.make!r}, which is no builder")
        empty = MAY_BE_EMPTY.get(made.make)
        given = ["%0" if place == empty and a is None else a for place, a in enumerate(made.arguments)]
        if len(kinds) != len(given) or not all(map(_fits, kinds, given, [index] * len(kinds))):
            raise ValueError(f"step {index} calls {made.make} with {made.arguments}; it takes ({', '.join(kinds)})")
    for step_ in (*expand, *outputs):
        if not isinstance(step_, int) or not 0 <= step_ < len(steps):
            raise ValueError(f"{step_!r} is no step; the recipe has {len(steps)} steps")
    if not 1 <= threads <= MOST_THREADS:
        raise ValueError(f"{threads} threads; 1 to {MOST_THREADS} are supported")


def _fits(kind: str, argument: Any, before: int) -> bool:
    """Return whether an argument has the declared `kind`.

    A tensor must be a step before step `before`.
    """
    if kind == "tensor":
        number = argument[1:] if isinstance(argument, str) and argument.startswith("%") else ""
        return number.isascii() and number.isdecimal() and len(number) < 10 and int(number) < before
    if kind == "ints":
        return isinstance(argument, tuple) and len(argument) == SECTIONS and all(_fits("int", n, 0) for n in argument)
    if kind == "float":
        return isinstance(argument, (int, float)) and not isinstance(argument, bool)
    if kind == "bool":
        return isinstance(argument, (bool, int))
    whole = isinstance(argument, int) and not isinstance(argument, bool)
    return whole and -(2**31) <= argument < 2**31 if kind == "int" else whole and -(2**63) <= argument < 2**63


def leaf(dtype: str, *ne: int, flag: str = "input", static: bool = False, rows: int = 0, fill: str = "") -> RecipeStep:
    """Return a step that makes a leaf of this type and these dimensions."""
    return RecipeStep(make=TENSOR, arguments=(dtype, *ne), flag=flag, static=static, rows=rows, fill=fill)


def step(make: str, *arguments: Any) -> RecipeStep:
    """Return a step that calls a builder; tensor arguments are `%k`, the result of step k."""
    return RecipeStep(make=make, arguments=arguments)


@dataclass(slots=True, kw_only=True)
class Built:
    """A recipe built in a workspace: its tensors, graph and context."""

    recipe: GraphRecipe
    tensors: list[int]
    graph: int
    context: Context
    drawn: dict[int, bytes] = field(default_factory=dict)
    """Step of a leaf -> its elements as bytes."""


def build(ws: LibraryWorkspace, recipe: GraphRecipe) -> Built:
    """Build the graph of a recipe without a plan; static leafs get their memory here."""
    size = graph_size(recipe)
    ctx = ws.context(tensors=len(recipe.steps) + 64, graph_size=size)
    static = ws.context(tensors=len(recipe.steps) + 1)
    tensors: list[int] = []
    for index, made in enumerate(recipe.steps):
        home = static if made.static else ctx
        if made.make == TENSOR:
            dtype, *ne = made.arguments
            tensors.append(home.tensor(dtype, *ne, name=f"t{index}", flag=made.flag))
        else:
            arguments = [tensors[int(a[1:])] if isinstance(a, str) else a for a in made.arguments]
            tensors.append(home.op(made.make, *arguments, name=f"t{index}", flag=made.flag))
    if any(made.static for made in recipe.steps):
        ws.apart(static)
    ws.pin(tensors[index] for index in recipe.outputs)
    graph = ctx.graph(*(tensors[index] for index in recipe.expand), size=size)
    return Built(recipe=recipe, tensors=tensors, graph=graph, context=ctx)


def place(ws: LibraryWorkspace, built: Built, *, mode: str = "default", planner: str = "gallocr") -> int:
    """Plan the graph by `mode` and `planner`; return the scheduler, or 0 if none planned it."""
    if mode not in MODES:
        raise UnknownNameError("mode", mode, MODES)
    if mode == "apart":
        if not all(made.static or view for made, view in zip(built.recipe.steps, _views(built), strict=True)):
            ws.apart(built.context)
        return 0
    if mode == "pinned":
        ws.pin(ws.nodes(built.graph))
    if planner == "sched":
        scheduler = ws.scheduler(graph_size=graph_size(built.recipe))
        ws.schedule(scheduler, built.graph)
        return scheduler
    ws.allocate(ws.planner(), built.graph)
    return 0


def _views(built: Built) -> list[int]:
    """Return, for each tensor, the address of the tensor that it views; 0 if it is no view."""
    found: list[int] = records(built.tensors)["view_src"].tolist()
    return found


def graph_size(recipe: GraphRecipe) -> int:
    """Return a graph size with room for a recipe's nodes and leafs and for a scheduler's copies."""
    return 4 * len(recipe.steps) + 64


def fill(ws: LibraryWorkspace, built: Built) -> None:
    """Write the elements of every leaf that has memory, which must be memory of the CPU.

    The elements depend on the recipe's seed and the step, not on the plan.
    """
    where = ws.library.ggml_get_data
    for index, made in enumerate(built.recipe.steps):
        address = where(built.tensors[index]) if made.make == TENSOR else 0
        if address:
            drawn = built.drawn.get(index) or _drawn(ws, built, index)
            ctypes.memmove(address, drawn, len(drawn))


def _drawn(ws: LibraryWorkspace, built: Built, index: int) -> bytes:
    made, tensor = built.recipe.steps[index], built.tensors[index]
    drawn = encoded(ws.library, elements(made, built.recipe.seed, index), made.arguments[0]).tobytes()
    nbytes = ws.library.ggml_nbytes(tensor)
    if len(drawn) != nbytes:
        raise EngineError(f"tensor {ws.name(tensor)!r} holds {nbytes} bytes; {len(drawn)} were drawn")
    built.drawn[index] = drawn
    return drawn


def ran(ws: LibraryWorkspace, built: Built, scheduler: int) -> dict[int, bytes]:
    """Write the leafs of a planned graph and run the graph, by `scheduler` unless that is 0. Return
    step -> bytes for each output.
    """
    fill(ws, built)
    if scheduler:
        ws.compute_scheduled(scheduler, built.graph)
    else:
        ws.compute(built.graph)
    return {index: _bytes(ws, built.tensors[index]) for index in built.recipe.outputs}


def ran_apart(ws: LibraryWorkspace, built: Built) -> tuple[dict[int, bytes], bytes]:
    """Run a graph without memory reuse. Return the bytes of its outputs by step, and the saved
    structs of its tensors before planning; afterwards the graph has no plan again.
    """
    unplanned = built.context.saved()
    apart = ran(ws, built, place(ws, built, mode="apart"))
    built.context.restore(unplanned)
    return apart, unplanned


def _bytes(ws: LibraryWorkspace, tensor: int) -> bytes:
    """Return the bytes of a tensor's elements, without the bytes between the elements."""
    library = ws.library
    if library.ggml_is_contiguous(tensor):
        return ctypes.string_at(library.ggml_get_data(tensor), library.ggml_nbytes(tensor))
    return ws.get(tensor).tobytes()


POOL: Final = 1 << 16
"""Number of places in the pools at which the elements of a leaf can begin. A pool exists because
seeding a generator for each leaf takes longer than running the graph.
"""


NORMALS: Final = np.random.default_rng(0).standard_normal(2 * POOL, dtype=np.float32)
WHOLE: Final = np.random.default_rng(1).integers(0, 1 << 30, 2 * POOL, dtype=np.int32)
"""Pools of normal numbers and of integers, drawn once for all forks when the module is imported."""


class _Pooled:
    """A stand-in for a numpy generator that returns numbers of the pool from `start` on."""

    def __init__(self, start: int) -> None:
        self.start = start

    def standard_normal(self, shape: Sequence[int], *, dtype: Any) -> NDArray[Any]:
        """Return numbers of the pool; for more than `POOL` numbers, seed a generator by `start`."""
        count = prod(shape)
        if count > POOL:
            return np.random.default_rng(self.start).standard_normal(shape, dtype=dtype)
        return NORMALS[self.start : self.start + count].reshape(shape)


def elements(made: RecipeStep, seed: int, index: int) -> NDArray[Any]:
    """Return the elements of a leaf, float32 or int32, in numpy's order of dimensions."""
    dtype, *ne = made.arguments
    shape = tuple(ne[::-1])
    start = hash((seed, index)) % POOL
    if made.fill or dtype != "i32":
        return FILLS[made.fill or "normal"](shape, _Pooled(start))  # type: ignore[arg-type]
    below, count = max(made.rows, 1), prod(shape)
    if count > POOL:
        return np.random.default_rng((seed, index)).integers(0, below, shape, dtype=np.int32)
    return WHOLE[start : start + count].reshape(shape) % np.int32(below)


def plan_rows(library: Library, recipe: GraphRecipe, *, mode: str = "default", planner: str = "gallocr") -> Rows:
    """Task: build and plan a recipe, and return the rows of its graph."""
    with LibraryWorkspace(library) as ws:
        built = build(ws, recipe)
        place(ws, built, mode=mode, planner=planner)
        return walk(library, built.graph, known=True, meta={"name": recipe.name, "mode": mode})
