"""Rotary positions. The contract is that of `engine.kernels.compiled`."""

import math
from typing import Any

from engine.kernels.compiled.jit import kernel
from engine.kernels.compiled.row_primitives import copy, fetch, rescale
from engine.kernels.compiled.vectors import BLOCK, stack_block


@kernel
def rope(x: Any, steps: Any, pos: Any, freq: Any, cos: Any, sin: Any, sign: Any, neox: Any, out: Any) -> None:  # noqa: PLR0917 - compiled
    """Rotate pairs of the first 2 * len(freq) elements of each head by sign * pos * freq.

    Copy the rest.

    out: (T, H, hd); x: (n,), head h of position t beginning at element t * steps[0] + h * steps[1];
    pos: (T,) int32; freq: (half,) float64; cos, sin: (P, half), the tables for positions 0..P-1
    (others are computed). Pairs are (i, i + half) if `neox`, else (2i, 2i + 1).
    """
    first, second, c, s = stack_block(out), stack_block(out), stack_block(out), stack_block(out)
    half = freq.size
    length, heads, width = out.shape
    for t in range(length):
        known = 0 <= pos[t] < cos.shape[0]
        for start in range(0, half, BLOCK // 2):
            m = min(BLOCK // 2, half - start)
            if known:
                copy(cos[pos[t], start : start + m], c[:m])
                copy(sin[pos[t], start : start + m], s[:m])
            else:
                for i in range(m):
                    c[i] = math.cos(pos[t] * freq[start + i])
                    s[i] = math.sin(pos[t] * freq[start + i])
            rescale(s[:m], sign)
            fetch(out[t, 0], 4 * heads * width, heads * width)
            for head in range(heads):
                at = t * steps[0] + head * steps[1]
                o = out[t, head]
                if neox:
                    low, high = at + start, at + half + start
                    a, b = x[low : low + m], x[high : high + m]
                    for i in range(m):
                        first[i] = a[i] * c[i] - b[i] * s[i]
                        second[i] = a[i] * s[i] + b[i] * c[i]
                    copy(first, o[start : start + m])
                    copy(second, o[half + start : half + start + m])
                else:
                    a = x[at + 2 * start : at + 2 * (start + m)]
                    for i in range(m):
                        first[2 * i] = a[2 * i] * c[i] - a[2 * i + 1] * s[i]
                        first[2 * i + 1] = a[2 * i] * s[i] + a[2 * i + 1] * c[i]
                    copy(first, o[2 * start : 2 * (start + m)])
        for head in range(heads):
            for i in range(2 * half, width):
                out[t, head, i] = x[t * steps[0] + head * steps[1] + i]
