"""Forms (sample calls) of every op of a ggml library. Guarded runs and random graphs use them in
addition to the cases of the in-place list.

Contract
--------
* A row of `FORMS` is the text `builder | operands | arguments`. An operand is `type:ne`, the
  fastest dimension first, with `!param` if ggml requires that flag. The call takes the operands
  first. An argument is an integer, a real number, `true`, `false`, `null` for an omitted tensor, or
  the name of a type. `nb1(0)` is the stride in bytes of dimension 1 of operand 0, f32 or i32.
* `forms(library)` yields cases of all ops. For the ops in
  `allocsim.systems.ggml.k_audit.library_cases` it yields the first, the middle and the last case of
  each combination of variant and types. Then it yields the rows of `FORMS` whose builder the
  library exports. A row does not name its op, because the library decides the op that it builds.
* `without_form(library)` returns the ops of a library that no case makes, each with the reason.

Shapes have odd lengths, lengths below and just above a vector register, several rows, heads and
sequences. What this module does not see: how a form is run.

Source: ggml.h of ggml 0.13.1 to 0.26.0, and the shapes in its tests of backends.
"""

import re
from collections.abc import Iterator
from math import prod
from typing import Any, Final

from allocsim.systems.ggml.access.library import Library
from allocsim.systems.ggml.k_audit.library_cases import BESIDE, CASES, LibraryCase, Operand, call_of

FORMS: Final = """
dup | f32:33,5 |
dup | f16:7,3 |
acc | f32:33,5 f32:7,3 | nb1(0) nb2(0) nb3(0) 8
set | f32:33,5 f32:7,3 | nb1(0) nb2(0) nb3(0) 8
add_cast | f16:33,5 f32:33,5 | f32
add_cast | bf16:33,5 f32:33 | f32
add_cast | q8_0:64,5 f32:64,5 | f32
sin | f32:33,5 |
cos | f32:33,5 |
sum | f32:33,5,2 |
sum | f16:33,5 |
sum_rows | f32:33,5,2 |
cumsum | f32:33,5 |
mean | f32:33,5,2 |
argmax | f32:33,5 |
count_equal | i32:33,5 i32:33,5 |
repeat | f32:7,3 f32:21,6,2 |
repeat | f16:7,3 f16:21,6 |
repeat_back | f32:21,6,2 f32:7,3 |
concat | f32:33,5 f32:33,2 | 1
concat | f32:33,5 f32:7,5 | 0
concat | f16:33,5,2 f16:33,5,3 | 2
norm | f32:33,5 | 1e-5
group_norm | f32:8,8,9,2 | 3 1e-5
group_norm | f32:8,8,32 | 32 1e-5
l2_norm | f32:33,5 | 1e-5
geglu | f32:66,5 |
reglu | f32:66,5 |
swiglu | f32:66,5 |
geglu_erf | f16:66,5 |
geglu_quick | f32:66,5 |
swiglu_swapped | f32:66,5 |
reglu_split | f32:33,5 f32:33,5 |
geglu_split | f16:33,5 f16:33,5 |
swiglu_split | f32:33,5 f32:33,5 |
swiglu_oai | f32:33,5 f32:33,5 | 1.7 7.0
mul_mat | f32:33,7 f32:33,5 |
mul_mat | f16:64,17 f32:64,9 |
mul_mat | q4_0:256,16 f32:256,9 |
mul_mat | f32:33,7,2 f32:33,5,4,3 |
mul_mat_id | f32:33,7,4 f32:33,2,5 i32:2,5 |
mul_mat_id | q8_0:64,16,4 f32:64,1,9 i32:3,9 |
out_prod | f32:33,5 f32:7,5 |
out_prod | q8_0:64,5 f32:7,5 |
cont | f32:33,5 |
get_rows | f32:33,7 i32:5 |
get_rows | i32:33,7 i32:5 |
get_rows_back | f32:33,5 i32:5 f32:33,7 |
get_rows_back | f16:33,5 i32:5 f32:33,7 |
diag | f32:33,1,2 |
im2col | f16:3,3,4 f32:11,9,4,2 | 1 1 0 0 1 1 true f16
im2col | f32:3,3,4 f32:11,9,4,2 | 2 1 1 1 1 2 true f32
im2col | f32:3,4 f32:11,4,2 | 1 0 1 0 1 0 false f32
im2col_3d | f32:3,3,2,8 f32:7,6,5,4 | 4 1 1 1 1 1 1 1 1 1 f32
col2im_1d | f32:12,7 | 2 3 1
conv_transpose_1d | f32:5,7,3 f32:9,3 | 2 0 1
conv_transpose_1d | f16:5,7,3 f32:9,3 | 2 0 1
conv_transpose_2d_p0 | f16:3,3,5,4 f32:7,6,4 | 2
conv_2d_direct | f32:3,3,4,5 f32:11,9,4,2 | 1 1 1 1 1 1
conv_2d_direct | f16:3,3,4,5 f32:11,9,4,2 | 2 1 0 1 1 2
conv_2d_dw_direct | f32:3,3,1,5 f32:11,9,5,2 | 1 1 1 1 1 1
conv_3d_direct | f32:3,3,2,20 f32:7,6,5,8 | 1 1 1 1 1 1 1 1 1 4 2 5
pool_1d | f32:33,5 | 0 3 3 0
pool_1d | f32:33,5 | 1 4 2 1
pool_2d | f32:11,9,4,2 | 0 3 3 2 2 1.0 1.0
pool_2d | f32:11,9,4,2 | 1 2 2 2 2 0.0 0.0
pool_2d_back | f32:5,4,3 f32:11,9,3 | 0 3 3 2 2 0.0 0.0
pool_2d_back | f32:5,4,3 f32:11,9,3 | 1 3 3 2 2 0.0 0.0
upscale | f32:7,5,3,2 | 2 0
upscale | f32:7,5,3,2 | 3 1
interpolate | f32:7,5,3,2 | 11 13 3 2 1
interpolate | f32:7,5,3,2 | 5 3 3 2 2
pad | f32:7,5,3,2 | 3 1 2 1
pad_ext | f32:7,5,3,2 | 1 2 3 0 1 1 0 2
pad_ext_circular | f32:7,5,3,2 | 1 2 3 0 1 1 0 2
pad_reflect_1d | f32:33,5 | 3 5
roll | f32:7,5,3,2 | 3 -2 1 0
arange | | 0.0 33.0 1.5
timestep_embedding | f32:5 | 32 10000
timestep_embedding | f32:5 | 33 10000
argsort | f32:33,5 | 0
argsort | f32:8,5 | 1
top_k | f32:33,5 | 4
argsort_top_k | f32:33,5 | 4
clamp | f32:33,5 | -0.5 0.5
leaky_relu | f32:33,5 | 0.1 false
tri | f32:9,9,2 | 0
flash_attn_ext | f32:64,5,4 f16:64,96,2 f16:64,96,2 f16:96,5 | 0.125 0.0 0.0
flash_attn_ext | f32:64,5,4 f16:64,96,2 f16:64,96,2 | null 0.125 0.0 0.0
flash_attn_ext | f32:40,3,4,2 f32:40,33,4,2 f32:24,33,4,2 f16:33,3 | 0.15 8.0 0.0
flash_attn_ext | f32:64,1,4 q8_0:64,256,4 q8_0:64,256,4 f16:256,1 | 0.125 0.0 10.0
flash_attn_ext | f32:128,70,2 f16:128,96,2 f16:128,96,2 f16:96,70 | 0.09 0.0 0.0
ssm_conv | f32:10,33,2 f32:4,33 |
ssm_conv | f32:4,16 f32:4,16 |
ssm_scan | f32:16,1,32,2 f32:1,32,5,2 f32:32,5,2 f32:16,32 f32:16,4,5,2 f32:16,4,5,2 i32:2 | 1
ssm_scan | f32:16,8,6,2 f32:8,6,5,2 f32:6,5,2 f32:1,6 f32:16,2,5,2 f32:16,2,5,2 i32:2 | 1
ssm_scan | f32:17,7,6,1 f32:7,6,3,1 f32:6,3,1 f32:1,6 f32:17,2,3,1 f32:17,2,3,1 i32:1 | 1
win_part | f32:7,9,10 | 4
win_unpart | f32:7,4,4,9 | 9 10 4
get_rel_pos | f16:8,9 | 5 5
add_rel_pos | f32:25,25,2 f32:5,5,5,2 f32:5,5,5,2 |
rwkv_wkv6 | f32:64,2,5 f32:64,2,5 f32:64,2,5 f32:64,2 f32:64,2,5 f32:8192,1 |
rwkv_wkv6 | f32:8,3,4 f32:8,3,4 f32:8,3,4 f32:8,3 f32:8,3,4 f32:192,2 |
rwkv_wkv6 | f32:20,3,4 f32:20,3,4 f32:20,3,4 f32:20,3 f32:20,3,4 f32:1200,2 |
gated_linear_attn | f32:64,2,5 f32:64,2,5 f32:64,2,5 f32:64,2,5 f32:8192,1 | 0.125
gated_linear_attn | f32:8,3,4 f32:8,3,4 f32:8,3,4 f32:8,3,4 f32:192,2 | 0.35
gated_linear_attn | f32:20,3,4 f32:20,3,4 f32:20,3,4 f32:20,3,4 f32:1200,2 | 0.22
rwkv_wkv7 | f32:64,2,5 f32:64,2,5 f32:64,2,5 f32:64,2,5 f32:64,2,5 f32:64,2,5 f32:8192,1 |
rwkv_wkv7 | f32:8,3,4 f32:8,3,4 f32:8,3,4 f32:8,3,4 f32:8,3,4 f32:8,3,4 f32:192,2 |
rwkv_wkv7 | f32:16,2,4 f32:16,2,4 f32:16,2,4 f32:16,2,4 f32:16,2,4 f32:16,2,4 f32:512,2 |
rwkv_wkv7 | f32:48,1,3 f32:48,1,3 f32:48,1,3 f32:48,1,3 f32:48,1,3 f32:48,1,3 f32:2304,1 |
solve_tri | f32:9,9,2 f32:5,9,2 | true true false
gated_delta_net | f32:32,2,5 f32:32,2,5 f32:32,2,5 f32:1,2,5 f32:1,2,5 f32:32,32,2 | 1
gated_delta_net | f32:32,2,5 f32:32,2,5 f32:32,2,5 f32:1,2,5 f32:1,2,5 f32:2048 | 1
gated_delta_net | f32:16,3,4,2 f32:16,3,4,2 f32:16,3,4,2 f32:16,3,4,2 f32:1,3,4,2 f32:16,16,3,2 | 1
lightning_indexer | f32:64,4,5 f16:64,1,33 f32:4,5 f16:33,5 |
dsv4_hc_comb | f32:24,5 f32:3 f32:24 | 1e-5 3
dsv4_hc_pre | f32:33,4,5 f32:4,5 |
dsv4_hc_post | f32:33,5 f32:33,4,5 f32:4,5 f32:4,4,5 |
cross_entropy_loss | f32:33,5 f32:33,5 |
cross_entropy_loss_back | f32:1 f32:33,5 f32:33,5 |
opt_step_adamw | f32:33,5!param f32:33,5 f32:33,5 f32:33,5 f32:7 |
opt_step_sgd | f32:33,5!param f32:33,5 f32:2 |
"""
"""The builder, operands and arguments of each form, one form a line."""

WITHOUT: Final[dict[str, str]] = {
    **dict.fromkeys(("NONE", "RESHAPE", "VIEW", "PERMUTE", "TRANSPOSE"), "it runs no kernel"),
    **dict.fromkeys(("MAP_CUSTOM1", "MAP_CUSTOM2", "MAP_CUSTOM3", "CUSTOM"), "the program that builds the graph supplies its function"),
    "FLASH_ATTN_BACK": "its builder aborts in every version",
    "IM2COL_BACK": "its builder takes the shape of the input as a pointer",
}  # fmt: skip
"""Op without a form -> the reason."""

_STRIDE: Final = re.compile(r"nb([123])\((\d)\)")


def form_cases(library: Library) -> Iterator[LibraryCase]:
    """Yield the forms whose builder the library exports; their `op` is empty, as the library
    decides the op.
    """
    for line in FORMS.strip().splitlines():
        builder, operands, arguments = (part.strip() for part in line.split("|"))
        if library.has(f"ggml_{builder}"):
            made = tuple(map(_operand, operands.split()))
            given = [_argument(library, word, made) for word in arguments.split()]
            yield call_of("", builder, *made, arguments=given, makes=None)


def _operand(word: str) -> Operand:
    dtype, dims, flag = re.fullmatch(r"(\w+):([\d,]+)!?(param)?", word).groups("")  # type: ignore[union-attr]
    return Operand(
        dtype, tuple(map(int, dims.split(","))), "reversed" if dtype.startswith("i") else "normal", flag=flag
    )


def forms(library: Library) -> Iterator[LibraryCase]:
    """Yield cases of every op of the library, beginning with the ops of the in-place list."""
    for op, make in {**{op: make for op, make in CASES.items() if op in library.in_place_ops}, **BESIDE}.items():
        groups: dict[tuple[str, str], list[LibraryCase]] = {}
        for case in make(library, op):
            groups.setdefault((case.variant, case.types), []).append(case)
        for group in groups.values():
            yield from (group[at] for at in sorted({0, len(group) // 2, len(group) - 1}))
    yield from form_cases(library)


def without_form(library: Library, made: set[str]) -> dict[str, str]:
    """Return each op of the library that is not in `made`, with the reason."""
    return {op: WITHOUT.get(op, "no form of it is known") for op in library.ops if op not in made}


def _argument(library: Library, word: str, operands: tuple[Operand, ...]) -> Any:
    if stride := _STRIDE.fullmatch(word):
        return 4 * prod((*operands[int(stride[2])].ne, 1, 1, 1)[: int(stride[1])])
    if word in _WORDS:
        return _WORDS[word]
    if word in library.all_types:
        return library.type_number(word)
    return float(word) if "." in word or "e" in word else int(word)


_WORDS: Final[dict[str, Any]] = {"true": True, "false": False, "null": None}


__all__ = ["FORMS", "WITHOUT", "form_cases", "forms", "without_form"]
