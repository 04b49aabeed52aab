"""Decides which operands may share bytes with the result of an HLO kernel, and names the sources.

| op | operands that may share bytes with the result | source |
|---|---|---|
| elementwise (`ELEMENTWISE`) | every operand of the same width with the same order of elements in memory (`hlo_places`) | XLA `HloDataflowAnalysis::CanShareOperandBufferWithUser`: users that are elementwise on the operand |
| `UPDATES` | the operand that is updated | XLA `HloDataflowAnalysis::GetInPlaceInputOutputPairs` |
| `custom-call` | the operands that `output_to_operand_aliasing` lists | the same |
| a fusion | an operand, if every use on the way to the result is elementwise and reads each element at its own place (`hlo_places`), or is the updated operand | the same, `HloInstruction::IsElementwiseOnOperand` for fusions |
| a fusion that updates a part of an operand from a slice of the same operand | depends on the order of reads and writes (`hlo_windows`) | |
| `NEVER` | none: an element of the result is computed from elements at other places | the definition of the op |
| any other op, and a custom fusion | unknown (`None`) | |
"""

from collections.abc import Mapping, Sequence
from typing import Final

from allocsim.allowances import charge
from allocsim.errors import DocumentError
from allocsim.programs.builder import Pair
from allocsim.systems.xla.hlo_places import MOVING, NotKnownError, Places, passed, safety
from allocsim.systems.xla.hlo_text import Instruction, Leaf, ReadableModule
from allocsim.systems.xla.hlo_windows import SAFE, UNKNOWN, UNSAFE, read_through

ELEMENTWISE: Final = frozenset((
    "abs", "add", "and", "atan2", "bitcast-convert", "cbrt", "ceil", "clamp", "compare", "complex", "convert", "copy",
    "cosine", "divide", "erf", "exponential", "exponential-minus-one", "floor", "imag", "is-finite", "log",
    "log-plus-one", "logistic", "map", "maximum", "minimum", "multiply", "negate", "not", "or", "popcnt", "power",
    "real", "reduce-precision", "remainder", "round-nearest-afz", "round-nearest-even", "rsqrt", "select", "shift-left",
    "shift-right-arithmetic", "shift-right-logical", "sign", "sine", "sqrt", "subtract", "tan", "tanh", "xor",
    "count-leading-zeros",
))  # fmt: skip

KEEPING: Final = ELEMENTWISE | {"bitcast"}
"""Ops that compute element k of the result from element k of each operand, in row-major order."""

UPDATES: Final = frozenset(("dynamic-update-slice", "scatter", "all-reduce", "sort"))
"""Ops that may write result i over operand i: all i of `sort` and `all-reduce`, otherwise i = 0."""

NEVER: Final = frozenset((
    "broadcast", "concatenate", "convolution", "dot", "fft", "gather", "iota", "pad", "reduce", "reduce-window", "rng",
    "rng-bit-generator", "select-and-scatter", "triangular-solve", "cholesky",
))  # fmt: skip

CUSTOM: Final = "kind=kCustom"
Fusions = dict[tuple[tuple[str, ...], bool, int], list[int] | None]
"""(called computations, whether the fusion is custom, number of operands) -> for each operand SAFE,
UNSAFE or UNKNOWN, or None if the fusion cannot be examined. This is a cache, because many fusions,
and each turn of a loop, may call the same computation."""
STEP: Final = 8
"""One step through a fusion is charged as this number of comparisons."""


def pairs(
    module: ReadableModule,
    row: Instruction,
    widths: Sequence[tuple[int, int]],
    results: int,
    leaves: Sequence[Leaf | None],
    *,
    fusions: Fusions,
) -> tuple[Pair, ...] | None:
    """Return the in-place pairs of a kernel; None if it is unknown whether a pair is safe.

    Args:
        module: the module that has the computation of a fusion.
        row: the kernel.
        widths: for each operand, its bytes and the bytes of the first result; a pair needs equal sizes.
        results: the number of arrays that the kernel writes.
        leaves: for each operand its layout, or None for a tuple.
        fusions: the cache of fusions that were examined; this function adds to it.
    """
    if row.opcode == "fusion":
        key = row.called("calls"), CUSTOM in row.attributes, len(widths)
        if key not in fusions:
            fusions[key] = _fusion(module, row, len(widths))
        said = fusions[key]
    elif row.opcode in UPDATES:
        many = row.opcode in ("sort", "all-reduce")
        return tuple((i, i) for i in range(min(len(widths), results) if many else 1))
    elif row.opcode == "custom-call":
        return _listed(row) if "output_to_operand_aliasing" in row.attributes else None
    else:
        known = UNSAFE if row.opcode in NEVER else UNKNOWN
        keeps = row.opcode in ELEMENTWISE | MOVING and len(leaves) == len(widths)
        said = [_alone(row, leaf) for leaf in leaves] if keeps else [known] * len(widths)
    if said is None or any(word == UNKNOWN and own == of for word, (own, of) in zip(said, widths, strict=False)):
        return None
    return tuple((i, r, "bytes") for i, word in enumerate(said) if word == SAFE for r in range(results))


def _alone(row: Instruction, leaf: Leaf | None) -> int:
    """Return SAFE, UNSAFE or UNKNOWN for an elementwise or moving op's operand outside a fusion."""
    try:
        return safety(passed(None, row, leaf))
    except NotKnownError:
        return UNKNOWN


def _listed(row: Instruction) -> tuple[Pair, ...]:
    """Return the in-place pairs that a custom call lists: `{{}: (0, {})}` or `{{1}: (2, {})}`."""
    import re  # noqa: PLC0415 - few modules need it

    text = row.attributes.partition("output_to_operand_aliasing=")[2]
    found = re.findall(r"\{(\d{0,4})\}: \((\d{1,4}), \{\}", text.partition("}}")[0] + "}")
    return tuple((int(operand), int(result or 0)) for result, operand in found)


def _fusion(module: ReadableModule, row: Instruction, operands: int) -> list[int] | None:
    """Return SAFE, UNSAFE or UNKNOWN per operand of a fusion; None if it cannot be examined."""
    called = row.called("calls")
    if CUSTOM in row.attributes or len(called) != 1:
        return None
    try:
        inside = module.instructions(called[0])
    except DocumentError:
        return None
    users: dict[str, list[Instruction]] = {}
    for line in inside:
        for name in line.operands:
            users.setdefault(name, []).append(line)
    given: Mapping[int, str] = {int(line.argument): line.name for line in inside if _is_given(line)}
    by_name = {line.name: line for line in inside}
    return [_walk(given[index], users, by_name) if index in given else UNKNOWN for index in range(operands)]


def _is_given(line: Instruction) -> bool:
    return line.opcode == "parameter" and line.argument.isdigit()


def _walk(name: str, users: Mapping[str, Sequence[Instruction]], by_name: Mapping[str, Instruction]) -> int:
    """Follow every use of a fusion's parameter to the result; return the worst outcome found."""
    left: list[tuple[str, Places]] = [(name, None)]
    seen, found = {(name, b"")}, {SAFE}
    while left and UNSAFE not in found:
        here, places = left.pop()
        if by_name[here].root:
            found.add(safety(places))
        uses = users.get(here, ())
        charge("comparison", STEP * len(uses))
        for line in uses:
            kept = line.opcode in ELEMENTWISE | MOVING or line.opcode in ("bitcast", "tuple")
            updated = (
                line.opcode in ("dynamic-update-slice", "scatter")
                and line.operands.count(here) == 1
                and line.operands[0] == here
            )
            if kept or updated:
                try:
                    aside = updated or line.opcode == "tuple"
                    on = places if aside else passed(places, line, by_name[here].shape.get(()))
                except NotKnownError:
                    found.add(UNKNOWN)
                    continue
                if (key := (line.name, b"" if on is None else on.tobytes())) not in seen:
                    seen.add(key)
                    left.append((line.name, on))
            elif line.opcode in NEVER:
                found.add(UNSAFE)
            else:
                found.add(read_through(line, users, by_name, KEEPING) if line.opcode == "slice" else UNKNOWN)
    return next(word for word in (UNSAFE, UNKNOWN, SAFE) if word in found)


__all__ = ["ELEMENTWISE", "NEVER", "UPDATES", "Fusions", "pairs"]
