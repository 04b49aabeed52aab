"""A generator of random ggml graphs that are legal by construction.

The fuzzer and the fidelity laws use the generator.

Contract: `generate(seed)` returns a recipe; the same seed gives the same recipe in every process.
Graphs have views and views of views, in-place chains, accumulators, copies into views, in-place
results, several readers, odd sizes, broadcast operands, unread results, static and parameter leafs,
gathers by index, backward kernels, and outputs on roots and on views. Graphs also have cases of the
kernel audit and forms of all ops (`allocsim.systems.ggml.k_audit`) that are small and that every
supported version can build. The cases cover every op of the in-place list with its optional
sources, f32, f16, bf16 and quantised types, and up to four dimensions. They also cover RMS_NORM
times weights as one kernel, and products, rows and copies of weights of other types than f32. One
in three graphs runs on two threads. Each seed has a turn (`turns`): its graph has one op, or one
pair of op and source that a planner may use in place. Consecutive seeds cover all turns if there
are as many seeds as turns. `none_views` adds op-NONE views (`ggml_view_tensor`) of intermediates;
ggml is known to count such views wrongly. `sound=False` adds uploads that no plan protects.

A tensor made from other tensors outside of a case is f32 with at most two dimensions. What this
module does not see: plans and numbers.
"""

import random
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from itertools import accumulate
from math import prod
from typing import Any, ClassVar, Final

from allocsim.systems.ggml.access.declarations import OPTIONAL
from allocsim.systems.ggml.k_audit.library_cases import (
    BESIDE,
    CASES,
    FUSED_OP,
    Calls,
    LibraryCase,
    Operand,
    fused_cases,
)
from allocsim.systems.ggml.k_audit.op_forms import form_cases
from allocsim.systems.ggml.random_graphs.graph_recipes import GraphRecipe, RecipeStep, leaf, reached, step

LENGTHS: Final = (1, 3, 4, 5, 7, 8, 9, 16, 33)
"""Lengths of rows. Most are no multiple of a vector register, and the bytes of most rows are no
multiple of the alignment."""

ROW_COUNTS: Final = (1, 1, 2, 3, 5)

LEAFS: Final = (("input", False), ("", False), ("", True), ("param", True), ("input param", False))
"""The kinds of leaf: (flags of the leaf, whether the leaf has memory of its own)."""

SMALL: Final = 1e-4


@dataclass(frozen=True, slots=True)
class Made:
    """The facts about a tensor that the generator keeps."""

    index: int
    ne: tuple[int, int]
    contiguous: bool
    owner: int
    """The step that made the root of the tensor's memory."""
    writable: bool
    """Whether in-place ops may write the tensor: it is contiguous and no parameter."""
    numbers: bool = True
    """Whether general ops may read the tensor: it is f32 with at most two dimensions."""


class Generator:
    """Builds one recipe step by step, with random draws from the seed."""

    def __init__(self, seed: int, nodes: int, *, none_views: bool, sound: bool) -> None:
        self.rng = random.Random(seed)  # noqa: S311 - reproducible, not secret
        self.seed, self.nodes, self.none_views, self.sound = seed, nodes, none_views, sound
        self.steps: list[RecipeStep] = []
        self.calls = 0
        """The number of steps so far that are no leafs."""
        self.made: list[Made] = []
        self.readers: dict[int, int] = {}
        self.watched: set[int] = set()
        """Steps to flag OUTPUT, so that their numbers are compared. A result with that flag may
        still be placed over its source.
        """

    def add(
        self,
        made: RecipeStep,
        ne: tuple[int, int],
        *,
        contiguous: bool = True,
        root: int | None = None,
        writable: bool = True,
    ) -> Made:
        """Append a step; `root` is the step that owns the tensor's memory, by default itself."""
        index = len(self.steps)
        self.steps.append(made)
        self.calls += made.make != "tensor"
        for source in made.reads:
            self.readers[source] = self.readers.get(source, 0) + 1
        numbers = made.make != "tensor" or made.arguments[0] == "f32"
        tensor = Made(index, ne, contiguous, index if root is None else root, writable and contiguous, numbers)
        self.made.append(tensor)
        return tensor

    def leaf(self, ne: tuple[int, int]) -> Made:
        """Append an f32 leaf, which is sometimes static or a parameter."""
        flag, static = self.rng.choices(
            LEAFS if self.sound else (*LEAFS, ("param", False)), (6, 2, 2, 1, 1, 2)[: 5 + (not self.sound)]
        )[0]
        dims = ne if ne[1] > 1 else ne[:1]
        return self.add(leaf("f32", *dims, flag=flag, static=static), ne, writable="param" not in flag)

    def pick(self, want: Callable[[Made], bool] = lambda _: True) -> Made | None:
        """Return a random tensor that satisfies `want`, or None. Recent tensors are more likely."""
        fits = [made for made in self.made if made.numbers and want(made)]
        if not fits:
            return None
        return self.rng.choice(fits[-6:] if self.rng.random() < 0.7 else fits)

    def dense(self) -> Made:
        """Return a random contiguous tensor, or a new leaf if no tensor is contiguous."""
        found = self.pick(lambda made: made.contiguous)
        return found if found is not None else self.leaf(self.shape())

    def like(self, other: Made) -> Made:
        """Return a contiguous tensor of the same shape: a random old tensor, or else a new leaf."""
        found = self.pick(lambda made: made.contiguous and made.ne == other.ne)
        return found if found is not None and self.rng.random() < 0.9 else self.leaf(other.ne)

    def shape(self) -> tuple[int, int]:
        """Draw the two dimensions of a tensor."""
        return self.rng.choice(LENGTHS), self.rng.choice(ROW_COUNTS)

    def recipe(self) -> GraphRecipe:
        """Add steps up to the requested number of builder calls, and return the recipe."""
        for _ in range(self.rng.randint(1, 3)):
            self.leaf(self.shape())
        kinds, weights = _makers(none_views=self.none_views)
        first: int | None = self.rng.randrange(self.nodes)
        while self.calls < self.nodes:
            if first is not None and self.calls >= first:
                _turn(self)
                first = None
            self.rng.choices(kinds, cum_weights=weights)[0](self)
        if first is not None:  # the loop ended before the turn: the last step made several calls
            _turn(self)
        tops = [
            made.index
            for made in self.made
            if not self.readers.get(made.index) and self.steps[made.index].make != "tensor"
        ]
        extra = [
            made.index for made in self.made if self.steps[made.index].make != "tensor" and self.rng.random() < 0.1
        ]
        dropped = [index for index in tops[:-1] if self.rng.random() < 0.05]
        seen_late = [
            made.sources[0] for made in self.steps if made.make == "view_tensor"
        ]  # ggml visits a `view_tensor` source before the view only if the source is expanded
        expand = tuple(index for index in dict.fromkeys([*seen_late, *extra, *tops]) if index not in dropped)
        recipe = GraphRecipe(steps=tuple(self.steps), expand=expand, seed=self.seed, name=f"fuzz {self.seed}")
        inside = [index for index in reachable(recipe) if self.steps[index].make != "tensor"]
        chosen = {index for index in inside if self.rng.random() < 0.15 or index in self.watched}
        threads = 2 if self.rng.random() < 1 / 3 else 1
        return replace(recipe, outputs=tuple(sorted({*chosen, expand[-1]})), threads=threads)


def reachable(recipe: GraphRecipe) -> list[int]:
    """Return the steps of the graph in ascending order: expanded steps and all that they read."""
    return reached(recipe, lambda made: made.reads)


def _ref(made: Made) -> str:
    return f"%{made.index}"


def _elementwise(g: Generator) -> None:
    a = g.dense()
    name, *arguments = g.rng.choice(
        (("scale", 0.5), ("sqr",), ("silu",), ("neg",), ("relu",), ("scale_bias", 0.5, 1.0), ("clamp", -1.0, 1.0))
    )
    if name == "clamp" and not a.writable:  # clamp returns a view of its operand and overwrites the operand
        name, arguments = "relu", []
    g.add(step(name, _ref(a), *arguments), a.ne, root=a.owner if name == "clamp" else None)


def _binary(g: Generator) -> None:
    a = g.dense()
    b = g.like(a)
    if g.rng.random() < 0.25:
        b = g.pick(lambda made: made.contiguous and made.ne == (a.ne[0], 1)) or g.leaf((a.ne[0], 1))
    names = ("add", "mul", "sub", "div") if b.ne != a.ne else ("add", "mul", "sub", "div", "swiglu_split")
    g.add(step(g.rng.choice(names), _ref(a), _ref(b)), a.ne)


def _rowwise(g: Generator) -> None:
    a = g.dense()
    name, *arguments = g.rng.choice((("rms_norm", SMALL), ("soft_max",), ("norm", SMALL)))
    g.add(step(name, _ref(a), *arguments), a.ne)


def _backward(g: Generator) -> None:
    a = g.dense()
    b = g.like(a)
    name, *arguments = g.rng.choice((("silu_back",), ("rms_norm_back", SMALL), ("soft_max_ext_back", 0.5, 0.0)))
    g.add(step(name, _ref(a), _ref(b), *arguments), a.ne)


def _in_place(g: Generator) -> None:
    a = g.pick(lambda made: made.writable)
    if a is None:
        return
    name, *arguments = g.rng.choice(
        (("scale_inplace", 0.5), ("sqr_inplace",), ("silu_inplace",), ("add_inplace",), ("mul_inplace",))
    )
    other = []
    if name in ("add_inplace", "mul_inplace"):
        apart = g.pick(
            lambda made: made.contiguous and made.ne == a.ne and made.owner != a.owner
        )  # the op would overwrite an operand that is a shifted view
        other = [_ref(apart or g.leaf(a.ne))]
    g.add(step(name, _ref(a), *other, *arguments), a.ne, root=a.owner)


def _accumulate(g: Generator) -> None:
    a = g.pick(lambda made: made.writable and made.ne[0] * made.ne[1] > 1)
    if a is None:
        return
    n = g.rng.randint(1, a.ne[0])
    rows = g.rng.randint(1, a.ne[1])
    at = g.rng.randint(0, a.ne[0] - n) * 4 + g.rng.randint(0, a.ne[1] - rows) * a.ne[0] * 4
    apart = g.pick(
        lambda made: made.contiguous and made.ne == (n, rows) and made.owner != a.owner
    )  # otherwise the op overwrites its own operand
    b = apart or g.leaf((n, rows))
    stride = a.ne[0] * 4
    name = g.rng.choice(("acc", "acc_inplace", "set", "set_inplace"))
    root = a.owner if name.endswith("inplace") else None
    g.add(step(name, _ref(a), _ref(b), stride, stride * a.ne[1], stride * a.ne[1], at), a.ne, root=root)


def _view(g: Generator) -> None:
    a = g.dense()
    n, rows = g.rng.randint(1, a.ne[0]), g.rng.randint(1, a.ne[1])
    at = g.rng.randint(0, a.ne[0] - n) * 4 + g.rng.randint(0, a.ne[1] - rows) * a.ne[0] * 4
    contiguous = rows == 1 or n == a.ne[0]
    g.add(
        step("view_2d", _ref(a), n, rows, a.ne[0] * 4, at),
        (n, rows),
        contiguous=contiguous,
        root=a.owner,
        writable=g.made[a.owner].writable,
    )


def _reshape(g: Generator) -> None:
    a = g.dense()
    total = a.ne[0] * a.ne[1]
    n = g.rng.choice([n for n in (1, a.ne[0], a.ne[1], total) if total % n == 0])
    g.add(step("reshape_2d", _ref(a), n, total // n), (n, total // n), root=a.owner, writable=a.writable)


def _transpose(g: Generator) -> None:
    a = g.dense()
    g.add(step("transpose", _ref(a)), (a.ne[1], a.ne[0]), contiguous=False, root=a.owner, writable=False)


def _cont(g: Generator) -> None:
    a = g.pick()
    if a is not None:
        g.add(step(g.rng.choice(("cont", "dup")), _ref(a)), a.ne, contiguous=True)


def _copy(g: Generator) -> None:
    b = g.pick(lambda made: g.made[made.owner].writable and made.owner != made.index) or g.pick(
        lambda made: made.writable
    )
    if b is None:
        return
    a = g.pick(lambda made: made.ne == b.ne and made.owner != b.owner) or g.leaf(b.ne)
    g.add(step("cpy", _ref(a), _ref(b)), b.ne, contiguous=b.contiguous, root=b.owner, writable=g.made[b.owner].writable)


def _product(g: Generator) -> None:
    a = g.dense()
    b = g.pick(lambda made: made.contiguous and made.ne[0] == a.ne[0]) or g.leaf((a.ne[0], g.rng.choice(ROW_COUNTS)))
    g.add(step("mul_mat", _ref(a), _ref(b)), (a.ne[1], b.ne[1]))


def _outer(g: Generator) -> None:
    a = g.dense()
    b = g.pick(lambda made: made.contiguous and made.ne[1] == a.ne[1]) or g.leaf((g.rng.choice(LENGTHS), a.ne[1]))
    g.add(step("out_prod", _ref(a), _ref(b)), (a.ne[0], b.ne[0]))


def _sum(g: Generator) -> None:
    a = g.dense()
    name = g.rng.choice(("sum_rows", "sum", "mean"))
    g.add(step(name, _ref(a)), (1, 1) if name == "sum" else (1, a.ne[1]))


def _concat(g: Generator) -> None:
    a = g.dense()
    b = g.pick(lambda made: made.contiguous and made.ne[0] == a.ne[0])
    if b is not None and a.ne[1] + b.ne[1] <= 8:
        g.add(step("concat", _ref(a), _ref(b), 1), (a.ne[0], a.ne[1] + b.ne[1]))


def _repeat(g: Generator) -> None:
    a = g.pick(lambda made: made.contiguous and made.ne[1] == 1)
    if a is not None:
        target = g.leaf((a.ne[0], 3))
        g.add(step("repeat", _ref(a), _ref(target)), target.ne)


def _gather(g: Generator) -> None:
    a = g.dense()
    count = g.rng.choice((1, 2, 4))
    rows = g.add(leaf("i32", count, rows=a.ne[1]), (count, 1), contiguous=False, writable=False)
    g.add(step("get_rows", _ref(a), _ref(rows)), (a.ne[0], count))


def _none_view(g: Generator) -> None:
    a = g.pick(lambda made: g.steps[made.index].make != "tensor" and made.contiguous)
    if a is not None:
        g.add(step("view_tensor", _ref(a)), a.ne, root=a.owner, writable=False)


MOST_ELEMENTS: Final = 1 << 11
"""Graphs contain a case only if all its operands together have at most this many elements."""

REFUSED: Final = frozenset(
    {(op, types) for op in ("ADD", "SUB", "MUL", "DIV") for types in ("f32,f16", "f32,bf16")} | {("UNARY", "bf16")}
)
"""(op, types) that kernels of some versions refuse; for UNARY with bf16, only some functions."""

EVERYWHERE: Final = frozenset(
    {"ggml_soft_max_add_sinks", "ggml_rope_multi", "ggml_rope_multi_back", "ggml_add_cast", "ggml_cumsum", "ggml_argmax"}
    | {f"ggml_{name}" for name in (
        "count_equal", "group_norm", "l2_norm", "geglu", "reglu", "swiglu", "swiglu_swapped", "geglu_erf", "geglu_quick",
        "reglu_split", "geglu_split", "swiglu_oai", "mul_mat_id", "diag", "im2col", "im2col_3d", "conv_transpose_1d",
        "conv_transpose_2d_p0", "conv_2d_direct", "conv_2d_dw_direct", "conv_3d_direct", "pool_1d", "pool_2d", "pool_2d_back",
        "upscale", "interpolate", "pad", "pad_ext", "pad_ext_circular", "pad_reflect_1d", "roll", "arange", "timestep_embedding",
        "argsort", "top_k", "argsort_top_k", "leaky_relu", "tri", "flash_attn_ext", "ssm_conv", "ssm_scan", "win_part",
        "win_unpart", "get_rel_pos", "add_rel_pos", "rwkv_wkv6", "gated_linear_attn", "rwkv_wkv7", "solve_tri",
        "cross_entropy_loss_back",
    )}
)  # fmt: skip
"""Functions that are declared optional although every version that was examined has them."""


class _EveryVersion:
    """A stand-in for a library while cases are listed: it has what all supported versions have."""

    all_types: ClassVar = {"f32": 0, "f16": 1}
    """Types that forms pass as arguments -> their numbers in the GGUF format."""

    @staticmethod
    def has(name: str) -> bool:
        """Return whether every supported version exports the function."""
        return name not in OPTIONAL or name in EVERYWHERE

    def type_number(self, name: str) -> int:
        """Return the number of a type in the GGUF format."""
        return self.all_types[name]


@cache
def table_cases() -> dict[str, tuple[tuple[LibraryCase, ...], ...]]:
    """Return op -> the groups of cases from which graphs are made, one for each variant and types.

    The fused kernel counts as an op here (`FUSED_OP`), and so does each builder of the forms.
    """
    found: dict[str, dict[tuple[str, str], list[LibraryCase]]] = {}
    library: Any = _EveryVersion()
    listed = [(op, case, MOST_ELEMENTS) for op, make in {**CASES, **BESIDE}.items() for case in make(library, op)]
    forms = [(case.variant, case, MOST_OF_FORMS) for case in form_cases(library)]
    for op, case, most in (*listed, *forms):
        small = sum(prod(operand.ne) for operand in case.operands) <= most
        if small and isinstance(case.build, Calls) and op not in UNBUILT and (op, case.types) not in REFUSED:
            found.setdefault(op, {}).setdefault((case.variant, case.types), []).append(case)
    fused = tuple(fused_cases(MOST_ELEMENTS))
    return {**{op: tuple(map(tuple, groups.values())) for op, groups in found.items()}, FUSED_OP: (fused,)}


MOST_OF_FORMS: Final = 1 << 14
"""Graphs contain a form only if all its operands together have at most this many elements."""

UNBUILT: Final = frozenset({"FILL", "opt_step_adamw", "opt_step_sgd", "acc", "set"})
"""Ops that `table_cases` leaves out. Only some versions build their cases, random graphs make them
in another way, or the host must keep the bytes that they write."""


@cache
def pair_cases() -> dict[tuple[str, int], tuple[LibraryCase, ...]]:
    """Return (op of the in-place list, source slot) -> the cases in which that source has the type
    and dimensions of the first source.
    """
    found: dict[tuple[str, int], list[LibraryCase]] = {}
    for op, groups in table_cases().items():
        for case in (case for group in groups for case in group if op in CASES):
            for slot, operand in enumerate(case.operands):
                if _layout(operand) == _layout(case.operands[0]):
                    found.setdefault((op, slot), []).append(case)
    return {pair: tuple(cases) for pair, cases in found.items()}


def _layout(operand: Operand) -> tuple[str, tuple[int, ...]]:
    return operand.dtype, (*operand.ne, 1, 1, 1)[:4]


PAIR_WEIGHTS: Final = (4, 4, 12)
"""How many turns an in-place pair (op, source slot) gets for each turn that an op gets: for slot 0,
slot 1, and each later slot. A race needs several graphs to show, and a kernel that is unsafe over a
third source mostly races."""


@cache
def turns() -> tuple[tuple[str, int | None], ...]:
    """Return the turns of consecutive seeds: each in-place pair (op, source slot), and each op with
    None. Consecutive seeds cover all turns if there are as many seeds as turns.
    """
    pairs = [
        (op, slot) for op, slot in sorted(pair_cases()) for _ in range(PAIR_WEIGHTS[min(slot, len(PAIR_WEIGHTS) - 1)])
    ]
    ops = [(op, None) for op in sorted(table_cases())]
    step = len(pairs) // max(len(ops), 1) + 1
    mixed = [one for at, op in enumerate(ops) for one in (op, *pairs[at * step : (at + 1) * step])]
    return (*mixed, *pairs[len(ops) * step :])


WRITES: Final = {"cpy": 1, "set_rows": 0, "soft_max_add_sinks": 0, "clamp": 0}
"""Builder whose result is a view of an argument -> the position of that argument."""


def _case(g: Generator) -> None:
    """Add a random case of the audit's table. An operand is a fitting tensor of the graph, a new
    leaf (some have memory of their own), or a copy of a leaf. Sometimes a later op reads the first
    operand again, as a residual connection does.
    """
    op = g.rng.choice(sorted(table_cases()))
    case = g.rng.choice(g.rng.choice(table_cases()[op]))
    _called(g, case, [_operand(g, operand).index for operand in case.operands])


def _turn(g: Generator) -> None:
    """Add the case of this seed's turn. If the turn is a pair (op, source slot), a `dup` makes the
    operand in that slot. All other operands are leafs with memory of their own, so the planner can
    reuse only the memory of the `dup`'s result. No other op reads that result, except a later op
    that `_called` sometimes adds as a reader of operand 0.
    """
    op, slot = turns()[g.seed % len(turns())]
    if slot is None:
        case = g.rng.choice(g.rng.choice(table_cases()[op]))
        _called(g, case, [_operand(g, operand).index for operand in case.operands])
        return
    case = g.rng.choice(pair_cases()[op, slot])
    tensors = []
    for place, operand in enumerate(case.operands):
        wide = operand.ne[0], prod(operand.ne[1:])
        flag, static = ("input", False) if place == slot else ("", True)
        made = g.add(
            leaf(operand.dtype, *operand.ne, flag=flag, static=static, fill=operand.fill), wide, writable=False
        )
        if place == slot:
            made = _hidden(g, g.add(step("dup", _ref(_hidden(g, made, False))), wide, writable=False), False)
        tensors.append(_hidden(g, made, False).index)
    _called(g, case, tensors)


def _called(g: Generator, case: LibraryCase, tensors: list[int]) -> None:
    """Add the builder calls of a case with the given steps as its operands."""
    calls = case.build
    assert isinstance(calls, Calls)
    ne = case.makes or (case.operands[0].ne if case.operands else (1,))
    for name, *arguments in calls.calls:
        places = [int(a[1:]) if isinstance(a, str) else None for a in arguments]
        named = [a if place is None else f"%{tensors[place]}" for a, place in zip(arguments, places, strict=True)]
        over = places[WRITES[name]] if name in WRITES else None
        root = None if over is None else g.made[tensors[over]].owner
        tensors.append(g.add(step(name, *named), (ne[0], prod(ne[1:])), root=root, writable=False).index)
    if g.rng.random() < 0.7:
        g.watched.add(tensors[-1])
    plain = (
        case.makes is not None
        and len(ne) <= 2
        and len(calls.calls) == 1
        and (case.makes or case.operands[0].dtype == "f32")
    )
    for index in () if plain and case.op != "CPY" else tensors[len(case.operands) :]:
        g.made[index] = replace(g.made[index], numbers=False)
    if case.operands and case.operands[0].dtype == "f32" and not case.operands[0].written and g.rng.random() < 0.3:
        again = g.add(step("scale", f"%{tensors[0]}", 0.5), g.made[tensors[0]].ne, writable=False)
        g.made[again.index] = replace(again, numbers=False)


def _operand(g: Generator, operand: Operand) -> Made:
    found = None
    if operand.dtype == "f32" and len(operand.ne) <= 2 and operand.fill == "normal" and not operand.written:
        ne = (operand.ne[0], operand.ne[1] if len(operand.ne) > 1 else 1)
        found = g.pick(lambda made: made.contiguous and made.ne == ne)
    if found is not None and g.rng.random() < 0.5:
        return found
    flag, static = g.rng.choices((("input", False), ("", False), ("", True)), (3, 1, 2))[0]
    wide = (operand.ne[0], prod(operand.ne[1:]))
    plain = operand.dtype == "f32" and len(operand.ne) <= 2
    made = _hidden(
        g,
        g.add(leaf(operand.dtype, *operand.ne, flag=flag, static=static, fill=operand.fill), wide, writable=False),
        plain,
    )
    if operand.dtype == "f32" and not operand.written and g.rng.random() < 0.3:
        return _hidden(g, g.add(step("dup", _ref(made)), wide, writable=False), plain)
    return made


def _hidden(g: Generator, made: Made, plain: bool) -> Made:  # noqa: FBT001 - a fact of the tensor
    """Return the tensor; general ops may not read it unless it is `plain` (f32, two dimensions)."""
    if not plain:
        g.made[made.index] = replace(made, numbers=False)
    return made


MAKERS: Final[tuple[tuple[Callable[[Generator], Any], int], ...]] = (
    (_elementwise, 14), (_binary, 16), (_rowwise, 6), (_backward, 6), (_in_place, 7), (_accumulate, 6), (_view, 8), (_reshape, 5),
    (_transpose, 3), (_cont, 5), (_copy, 6), (_product, 5), (_outer, 4), (_sum, 3), (_concat, 3), (_repeat, 2), (_gather, 3),
    (_none_view, 3), (lambda g: g.leaf(g.shape()), 2), (_case, 30),
)  # fmt: skip
"""Functions that add a step, with the weights of their random choice."""


@cache
def _makers(*, none_views: bool) -> tuple[tuple[Callable[[Generator], Any], ...], tuple[int, ...]]:
    """Return the functions that add a step, and the cumulative sums of their weights."""
    kinds, weights = zip(
        *((kind, weight) for kind, weight in MAKERS if kind is not _none_view or none_views), strict=True
    )
    return kinds, tuple(accumulate(weights))


def generate(seed: int, *, nodes: int | None = None, none_views: bool = False, sound: bool = True) -> GraphRecipe:
    """Return the recipe of a seed, with `nodes` builder calls (default: 2 to 40, drawn).

    With `sound`, ggml's rules keep uploaded bytes until their last reader. Without `sound`, some
    parameters are in the compute buffer without the INPUT flag. ggml places such a parameter at the
    step of the next op, over bytes that are free by then, so its upload can be overwritten.
    """
    rng = random.Random(f"size {seed}")  # noqa: S311
    return Generator(
        seed, nodes if nodes is not None else rng.randint(2, 40), none_views=none_views, sound=sound
    ).recipe()
