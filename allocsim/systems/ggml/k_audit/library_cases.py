"""The cases of the kernel audit: operands, types and shapes for each op of ggml's in-place list.

Contract: `CASES[op]` yields cases. A case is a kernel call: its operands by dtype and `ne` (fastest
dimension first), how their elements are drawn, and a builder. Shapes cover rows of 1, 7, 33 and 576
elements (2, 8, 34 and 576 where a kernel needs pairs), one row and several rows, and broadcast
second operands. Types are floats and, if a kernel supports them, quantised types. Optional sources
are present in some cases and absent in others. The fuzzer builds its graphs from the same cases. An
op of the in-place list without a row here is reported as `unaudited`. `UNMEASURED` lists the ops
that cannot be measured, with reasons.

What this module does not see: aliases; `allocsim.systems.ggml.k_audit.library_audit` places results
over operands.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from allocsim.systems.ggml.access.library import Library
from allocsim.systems.ggml.access.workspace import Context

ROWS: Final = (1, 7, 33, 576)
"""Lengths of rows in elements: one, fewer than a vector register holds, one more than a multiple of
the register, and many."""

EVEN_ROWS: Final = (2, 8, 34, 576)
"""Lengths of rows for kernels that work on pairs of elements."""

Build = Callable[[Context, Sequence[int]], int]


@dataclass(frozen=True, slots=True)
class Calls:
    """Calls of builders as plain data: each call is a builder's name and its arguments.

    A tensor is written `%k`. `%0` is the first operand; the numbers after the operands are the
    results of the calls in order. The last call makes the result of the case.
    """

    operands: int
    calls: tuple[tuple[Any, ...], ...]

    def __call__(self, ctx: Context, operands: Sequence[int]) -> int:
        """Call the builders in order; return the last tensor."""
        tensors = list(operands)
        for name, *arguments in self.calls:
            tensors.append(ctx.op(name, *(tensors[int(a[1:])] if isinstance(a, str) else a for a in arguments)))
        return tensors[-1]


@dataclass(frozen=True, slots=True)
class Operand:
    """One operand: ggml type, dimensions, and how its elements are drawn (`FILLS`)."""

    dtype: str
    ne: tuple[int, ...]
    fill: str = "normal"
    written: bool = False
    """Whether the op writes into the operand, so that no other op may use the tensor."""
    flag: str = ""
    """The flag that ggml requires of the operand: `param`, or empty for none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LibraryCase:
    """One kernel call."""

    op: str
    variant: str
    """The form of the op: the builder's name, or what is special about the call."""
    operands: tuple[Operand, ...]
    build: Build
    makes: tuple[int, ...] | None = ()
    """Dimensions of an f32 result; empty: the result is like the first operand; None: not known."""

    def tensors(self, ctx: Context) -> list[int]:
        """Make a ggml tensor without memory for each operand."""
        return [ctx.tensor(operand.dtype, *operand.ne, flag=operand.flag) for operand in self.operands]

    @property
    def types(self) -> str:
        """The operand types, joined by commas: `f16,f32`."""
        return ",".join(operand.dtype for operand in self.operands)


def draw(operand: Operand, rng: np.random.Generator) -> NDArray[Any]:
    """Return drawn elements of an operand, float32 or int32, in numpy's order of dimensions."""
    return FILLS[operand.fill](operand.ne[::-1], rng)


def _normal(shape: tuple[int, ...], rng: np.random.Generator) -> NDArray[Any]:
    return rng.standard_normal(shape, dtype=np.float32)


def _probabilities(shape: tuple[int, ...], rng: np.random.Generator) -> NDArray[Any]:
    drawn = np.exp(_normal(shape, rng))
    return np.asarray(drawn / drawn.sum(axis=-1, keepdims=True), dtype=np.float32)


FILLS: Final[dict[str, Callable[[tuple[int, ...], np.random.Generator], NDArray[Any]]]] = {
    "normal": _normal,
    "positive": lambda shape, rng: np.abs(_normal(shape, rng)) + np.float32(0.5),
    "probabilities": _probabilities,
    "positions": lambda shape, _: np.arange(3, 3 + shape[-1], dtype=np.int32),
    "reversed": lambda shape, _: np.broadcast_to(np.arange(shape[-1], dtype=np.int32)[::-1], shape),
}
"""Name -> function that draws elements; `reversed` gives row numbers from last to first."""


def cases(library: Library, op: str) -> list[LibraryCase]:
    """Return the cases of one op that this library can build; empty if the table has none."""
    return list(CASES[op](library, op)) if op in CASES else []


def call_of(
    op: str,
    builder: str,
    *operands: Operand,
    arguments: Sequence[Any] = (),
    variant: str = "",
    makes: tuple[int, ...] | None = (),
) -> LibraryCase:
    """Return the case of one builder call, which takes the operands and then `arguments`."""
    call = builder, *(f"%{n}" for n in range(len(operands))), *arguments
    build = Calls(len(operands), (call,))
    return LibraryCase(op=op, variant=variant or builder, operands=operands, build=build, makes=makes)


def _shapes(rows: Sequence[int] = ROWS) -> Iterator[tuple[int, ...]]:
    for n in rows:
        yield from ((n,), (n, 5), (n, 3, 2, 2))


def _one_operand(
    library: Library,
    op: str,
    *,
    builders: Sequence[tuple[Any, ...]],
    types: Sequence[str] = ("f32",),
    fill: str = "normal",
) -> Iterator[LibraryCase]:
    """Yield cases of element-wise and row-wise kernels with one operand.

    Each entry of `builders` is a builder's name and its arguments after the operand.
    """
    for name, *arguments in builders:
        if library.has(f"ggml_{name}"):
            for dtype, ne in product(types, _shapes()):
                yield call_of(op, name, Operand(dtype, ne, fill), arguments=arguments)


TYPES_OF_TWO: Final = ("f32 f32", "f16 f16", "bf16 bf16", "f16 f32", "bf16 f32", "f32 f16", "f32 bf16")


def _two_operands(_: Library, op: str, *, builder: str) -> Iterator[LibraryCase]:
    """Yield cases of element-wise kernels with two operands.

    The shapes are equal, or the second operand is broadcast over rows, over elements, or over both.
    """
    for types, ne in product(TYPES_OF_TWO, _shapes()):
        first, second = types.split()
        for other in sorted({ne, ne[:1], (1, *ne[1:]), (1,)}):
            yield call_of(op, builder, Operand(first, ne), Operand(second, other, "positive"))
    for first, ne in product(QUANTISED, BLOCKS) if builder == "add" else ():
        yield call_of(op, builder, Operand(first, ne), Operand("f32", ne), variant="add, quantised")


def _pairs(
    _: Library, op: str, *, builder: str, arguments: tuple[Any, ...] = (), second: str = "normal"
) -> Iterator[LibraryCase]:
    """Yield cases of backward kernels, which take a gradient and a tensor of the same shape."""
    for dtype, ne in product(("f32", "f16") if op == "SILU_BACK" else ("f32",), _shapes()):
        yield call_of(op, builder, Operand(dtype, ne), Operand(dtype, ne, second), arguments=arguments)


def _add_id(_: Library, op: str) -> Iterator[LibraryCase]:
    for n, (experts, tokens) in product(ROWS, ((1, 1), (2, 1), (4, 1), (4, 3))):
        chosen = Operand("i32", (experts, tokens), "reversed")
        yield call_of(op, "add_id", Operand("f32", (n, experts, tokens)), Operand("f32", (n, experts)), chosen)


def _add1(_: Library, op: str) -> Iterator[LibraryCase]:
    for types, ne in product(("f32 f32", "f16 f16", "f16 f32", "bf16 bf16", "bf16 f32"), _shapes()):
        first, second = types.split()
        yield call_of(op, "add1", Operand(first, ne), Operand(second, (1,)))
    for first, ne in product(QUANTISED, BLOCKS):
        yield call_of(op, "add1", Operand(first, ne), Operand("f32", (1,)), variant="add1, quantised")


def _soft_max(library: Library, op: str) -> Iterator[LibraryCase]:
    for n, (rows, heads) in product(ROWS, ((1, 1), (5, 1), (5, 3))):
        scores = Operand("f32", (n, rows, heads))
        yield call_of(op, "soft_max", scores)
        for dtype, (variant, bias) in product(("f32", "f16"), (("mask", 0.0), ("mask, ALiBi", 8.0))):
            masked = scores, Operand(dtype, (n, rows))
            yield call_of(op, "soft_max_ext", *masked, arguments=(0.5, bias), variant=variant)
        if library.has("ggml_soft_max_add_sinks"):
            sinks, mask = Operand("f32", (heads,)), Operand("f32", (n, rows))
            yield LibraryCase(op=op, variant="sinks", operands=(scores, sinks), build=SINKS)
            yield LibraryCase(op=op, variant="mask and sinks", operands=(scores, mask, sinks), build=MASK_AND_SINKS)


SINKS: Final = Calls(2, (("soft_max_ext", "%0", None, 0.5, 0.0), ("soft_max_add_sinks", "%2", "%1")))
MASK_AND_SINKS: Final = Calls(3, (("soft_max_ext", "%0", "%1", 0.5, 0.0), ("soft_max_add_sinks", "%3", "%2")))


def _rope(library: Library, op: str) -> Iterator[LibraryCase]:
    """Yield cases of rotary embedding, which rotates pairs of elements of a row.

    The pairs are neighbours or come from two halves, and cover the whole row or a part. There are
    cases with and without factors, with YaRN's corrections, and with several sections. ggml
    requires of factors only rows of at least half the rotated elements, so factors can have the
    layout of the result.
    """
    back = "" if op == "ROPE" else "_back"
    for dtype in ("f32", "f16"):
        for n in EVEN_ROWS:
            for heads, tokens in ((1, 1), (3, 1), (3, 5), (16, 16)):
                x, at = Operand(dtype, (n, heads, tokens)), Operand("i32", (tokens,), "positions")
                factors = [Operand("f32", ne, "positive") for ne in {(n,), (n, heads, tokens)}]
                for mode, turned in ((0, n), (2, n), (0, max(n // 4 * 2, 2)), (2, max(n // 4 * 2, 2))):
                    yarn = [(", YaRN", (64, 10_000.0, 0.25, 1.0))] if turned == n else []
                    for words, tail in [("", (0, 10_000.0, 1.0, 0.0)), *yarn]:
                        end = (turned, mode, *tail, 1.0, 32.0, 1.0)
                        plain = Calls(2, ((f"rope_ext{back}", "%0", "%1", None, *end),))
                        yield LibraryCase(op=op, variant=f"positions{words}", operands=(x, at), build=plain)
                        for factor in factors:
                            call = Calls(3, ((f"rope_ext{back}", "%0", "%1", "%2", *end),))
                            yield LibraryCase(op=op, variant=f"factors{words}", operands=(x, at, factor), build=call)
                if n % 8 == 0 and library.has(f"ggml_rope_multi{back}"):
                    yield from _sections(op, f"rope_multi{back}", x, factors)


def _sections(op: str, builder: str, x: Operand, factors: Sequence[Operand]) -> Iterator[LibraryCase]:
    n, _, tokens = x.ne
    at = Operand("i32", (4 * tokens,), "positions")
    for mode, turned in ((MROPE, n), (VISION, n // 2)):
        tail = (turned, (n // 8,) * 4, mode, 0, 10_000.0, 1.0, 0.0, 1.0, 0.0, 0.0)
        plain = Calls(2, ((builder, "%0", "%1", None, *tail),))
        yield LibraryCase(op=op, variant="sections", operands=(x, at), build=plain)
        for factor in factors:
            call = Calls(3, ((builder, "%0", "%1", "%2", *tail),))
            yield LibraryCase(op=op, variant="sections and factors", operands=(x, at, factor), build=call)


MROPE: Final = 8
VISION: Final = 24
"""`GGML_ROPE_TYPE_MROPE` and `GGML_ROPE_TYPE_VISION`."""

QUANTISED: Final = ("q4_0", "q8_0", "q4_K", "q6_K")
"""Quantised types for ADD and ADD1, the ops of the in-place list with quantised results.

The types cover blocks of 32 and of 256 elements, with few and with many bits.
"""

BLOCKS: Final = ((256,), (512, 5), (256, 3, 2, 2))
"""Dimensions of quantised operands; every row consists of whole blocks."""

WEIGHTS: Final = ("f16", "bf16", *QUANTISED)
"""Types of weights and caches; the ops that read or write such tensors convert the elements."""


def _read_whole(_: Library, op: str, *, builder: str, second: Operand, makes: tuple[int, ...]) -> Iterator[LibraryCase]:
    """Return cases of ops that read weights of each type and write an f32 result."""
    return (call_of(op, builder, Operand(dtype, (256, 3)), second, makes=makes) for dtype in WEIGHTS)


def _copied(_: Library, op: str) -> Iterator[LibraryCase]:
    for dtype in WEIGHTS:
        plain, other = Operand("f32", (256, 2)), Operand(dtype, (256, 2))
        for source, target in ((plain, other), (other, plain)):
            yield call_of(op, "cpy", source, replace(target, written=True))


def _scattered(_: Library, op: str) -> Iterator[LibraryCase]:
    rows = Operand("f32", (256, 2)), Operand("i64", (2,), "reversed")
    return (call_of(op, "set_rows", Operand(dtype, (256, 3), written=True), *rows) for dtype in ("f32", *WEIGHTS))


BESIDE: Final[dict[str, Callable[[Library, str], Iterator[LibraryCase]]]] = {
    "MUL_MAT": partial(_read_whole, builder="mul_mat", second=Operand("f32", (256, 2)), makes=(3, 2)),
    "GET_ROWS": partial(_read_whole, builder="get_rows", second=Operand("i32", (2,), "reversed"), makes=(256, 2)),
    "CPY": _copied,
    "SET_ROWS": _scattered,
}
"""Op that is not on the in-place list -> its cases.

Random graphs use these cases; the audit of in-place pairs does not measure them.
"""

FUSED_OP: Final = "RMS_NORM x MUL"
"""Name of the one fused kernel, which ggml runs if no other op reads the norm."""

FUSED: Final = Calls(2, (("rms_norm", "%0", 1e-4), ("mul", "%2", "%1")))


def fused_cases(most: int | None = None) -> Iterator[LibraryCase]:
    """Yield cases of RMS_NORM of the first operand times the second operand.

    The second operand is broadcast over rows in some cases. `most` limits the elements of both
    operands together; None is no limit.
    """
    for ne in _shapes():
        for weights in sorted({ne, ne[:1]}):
            operands = Operand("f32", ne), Operand("f32", weights)
            if most is None or sum(np.prod(operand.ne) for operand in operands) <= most:
                yield LibraryCase(op=FUSED_OP, variant="fused", operands=operands, build=FUSED)


UNMEASURED: Final[dict[str, str]] = {
    "MUL_MAT, GET_ROWS, CPY, SET_ROWS": "they are not on the in-place list, so no planner places their result over a source; random graphs have them, with f16, bf16 and quantised weights",
    "ADD and ADD1, types q5_0, iq*, tq* and others": "one kernel computes all quantised types, so two types of each block size are measured",
    "custom ops": "the program that builds the graph supplies their functions",
}
"""Ops and types that the table does not cover -> the reason."""


FLOATS: Final = ("f32", "f16", "bf16")

UNARY: Final[tuple[tuple[Any, ...], ...]] = (
    ("abs",), ("sgn",), ("neg",), ("step",), ("tanh",), ("elu",), ("relu",), ("sigmoid",), ("gelu",), ("gelu_quick",), ("gelu_erf",),
    ("silu",), ("hardswish",), ("hardsigmoid",), ("exp",), ("expm1",), ("softplus",), ("floor",), ("ceil",), ("round",), ("trunc",),
    ("xielu", 0.8, 0.8, 0.5, -1e-6),
)  # fmt: skip
"""Every unary function: the name of its builder, then its arguments."""

CASES: Final[dict[str, Callable[[Library, str], Iterator[LibraryCase]]]] = {
    "FILL": partial(_one_operand, builders=[("fill", 2.5)], types=FLOATS),
    "SCALE": partial(_one_operand, builders=[("scale", 1.5), ("scale_bias", 1.5, 0.25)]),
    "DIAG_MASK_ZERO": partial(_one_operand, builders=[("diag_mask_zero", 1)]),
    "DIAG_MASK_INF": partial(_one_operand, builders=[("diag_mask_inf", 1)]),
    "ADD": partial(_two_operands, builder="add"),
    "SUB": partial(_two_operands, builder="sub"),
    "MUL": partial(_two_operands, builder="mul"),
    "DIV": partial(_two_operands, builder="div"),
    "ADD_ID": _add_id,
    "ADD1": _add1,
    "SQR": partial(_one_operand, builders=[("sqr",)], types=FLOATS),
    "SQRT": partial(_one_operand, builders=[("sqrt",)], types=FLOATS, fill="positive"),
    "LOG": partial(_one_operand, builders=[("log",)], types=FLOATS, fill="positive"),
    "UNARY": partial(_one_operand, builders=UNARY, types=FLOATS),
    "CLAMP": partial(_one_operand, builders=[("clamp", -0.5, 0.5)], types=("f32", "f16")),
    "ROPE": _rope,
    "ROPE_BACK": _rope,
    "SILU_BACK": partial(_pairs, builder="silu_back"),
    "RMS_NORM": partial(_one_operand, builders=[("rms_norm", 1e-4)]),
    "RMS_NORM_BACK": partial(_pairs, builder="rms_norm_back", arguments=(1e-4,)),
    "SOFT_MAX": _soft_max,
    "SOFT_MAX_BACK": partial(_pairs, builder="soft_max_ext_back", arguments=(0.5, 0.0), second="probabilities"),
}
"""Op of the in-place list -> a function that yields its cases."""
