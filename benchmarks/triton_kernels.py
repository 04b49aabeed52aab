"""Triton's kernels compiled for several GPUs and judged: none accused, and barriers left out one by one.

    python benchmarks/triton_kernels.py [--kernels N] [--seed N] [--leave-out N] [--whole N] [--keep FOLDER] [--again] [--out FILE]

Needs triton and numpy, no GPU. Products (grouped, persistent, batched, of descriptors, of warp groups), attention (causal, of descriptors), softmax,
norms, scans, convolutions, chains and random programs (`triton_random.py`), each with drawn sizes, types, stages and warps for three targets (two where
others have no such instructions). The first products are compiled to machine code too: judging is held against that. Of each kernel some barriers and
waits are left out, drawn; whether what is left has two accesses that meet and that nothing orders is told by sets of bytes and a search along the waits,
without the judge. A kernel that is accused is listed with its first race.

What the compiler made of a kernel and what was said of it are kept (`--keep`), so a run that was stopped goes on; `--again` judges anew what is kept.
`--whole` is how many products are compiled to machine code, for each target.
"""

import importlib.util
import random
import re
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from functools import reduce
from operator import or_
from pathlib import Path
from typing import Any, Final

from harness import Found, kept, run, spent, write

import triton
import triton.language as tl
from triton import knobs
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from triton_random import written

from allocsim.errors import DocumentError
from allocsim.judge.fast import check
from allocsim.model import Document, Plan
from allocsim.systems.triton.ask_triton import compiled
from allocsim.systems.triton.triton_kernel import loads

TARGETS: Final = {
    "sm_80": GPUTarget("cuda", 80, 32),
    "sm_90": GPUTarget("cuda", 90, 32),
    "sm_100": GPUTarget("cuda", 100, 32),
    "gfx942": GPUTarget("hip", "gfx942", 64),
}
SYNCHRONISING: Final = re.compile(
    r"\s*(?:%\S+ = )?(?:ttg\.barrier|ttg\.async_wait|ttng\.wait_barrier|ttng\.async_tma_store_wait|ttng\.warp_group_dot_wait %\S+ \{)"
)


@triton.jit
def matmul(a, b, c, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    i, j, k = tl.arange(0, BM), tl.arange(0, BN), tl.arange(0, BK)
    ap, bp = a + i[:, None] * K + k[None, :], b + k[:, None] * BN + j[None, :]
    acc = tl.zeros((BM, BN), tl.float32)
    for _ in range(0, K, BK):
        acc = tl.dot(tl.load(ap), tl.load(bp), acc)
        ap += BK
        bp += BK * BN
    tl.store(c + i[:, None] * BN + j[None, :], acc)


@triton.jit
def matmul_softmax(a, b, c, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    i, j, k = tl.arange(0, BM), tl.arange(0, BN), tl.arange(0, BK)
    acc = tl.zeros((BM, BN), tl.float32)
    for kk in range(0, K, BK):
        x = tl.load(a + i[:, None] * K + kk + k[None, :], mask=k[None, :] < K - kk, other=0.0)
        acc += tl.dot(x, tl.load(b + (kk + k)[:, None] * BN + j[None, :]))
    z = tl.trans(tl.softmax(acc)) if BM == BN else tl.softmax(acc)
    tl.store(c + i[:, None] * BN + j[None, :], z + tl.sum(acc, 1)[:, None])


@triton.jit
def described(a, b, c, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, WS: tl.constexpr):
    ad = tl.make_tensor_descriptor(a, [M, K], [K, 1], [BM, BK])
    bd = tl.make_tensor_descriptor(b, [K, N], [N, 1], [BK, BN])
    cd = tl.make_tensor_descriptor(c, [M, N], [N, 1], [BM, BN])
    acc = tl.zeros((BM, BN), tl.float32)
    for kk in tl.range(0, tl.cdiv(K, BK), warp_specialize=WS):
        acc = tl.dot(ad.load([0, kk * BK]), bd.load([kk * BK, 0]), acc)
    cd.store([0, 0], acc.to(tl.float16))


@triton.jit
def attention(q, k, v, o, n, BM: tl.constexpr, BN: tl.constexpr, D: tl.constexpr):
    i, j, d = tl.arange(0, BM), tl.arange(0, BN), tl.arange(0, D)
    qs = tl.load(q + i[:, None] * D + d[None, :])
    top = tl.full((BM,), -1e30, tl.float32)
    total = tl.zeros((BM,), tl.float32)
    acc = tl.zeros((BM, D), tl.float32)
    for s in range(0, n, BN):
        scores = tl.dot(qs, tl.load(k + (s + j)[None, :] * D + d[:, None]))
        new = tl.maximum(top, tl.max(scores, 1))
        p = tl.exp(scores - new[:, None])
        scale = tl.exp(top - new)
        total = total * scale + tl.sum(p, 1)
        acc = acc * scale[:, None]
        acc = tl.dot(p.to(tl.float16), tl.load(v + (s + j)[:, None] * D + d[None, :]), acc)
        top = new
    tl.store(o + i[:, None] * D + d[None, :], acc / total[:, None])


@triton.jit
def grouped(a, b, c, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    p, rows, columns = tl.program_id(0), tl.cdiv(M, BM), tl.cdiv(N, BN)
    first = p // (4 * columns) * 4
    size = tl.minimum(rows - first, 4)
    i = ((first + p % (4 * columns) % size) * BM + tl.arange(0, BM)) % M
    j = (p % (4 * columns) // size * BN + tl.arange(0, BN)) % N
    k = tl.arange(0, BK)
    acc = tl.zeros((BM, BN), tl.float32)
    for kk in range(tl.cdiv(K, BK)):
        x = tl.load(a + i[:, None] * K + (kk * BK + k)[None, :], mask=k[None, :] < K - kk * BK, other=0.0)
        w = tl.load(b + (kk * BK + k)[:, None] * N + j[None, :], mask=k[:, None] < K - kk * BK, other=0.0)
        acc = tl.dot(x, w, acc)
    tl.store(c + i[:, None] * N + j[None, :], tl.where(acc > 0, acc, 0.01 * acc), mask=j[None, :] < N)


@triton.jit
def persistent(a, b, c, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, FLAT: tl.constexpr):
    i, j, k = tl.arange(0, BM), tl.arange(0, BN), tl.arange(0, BK)
    for tile in tl.range(tl.program_id(0), tl.cdiv(M, BM) * tl.cdiv(N, BN), tl.num_programs(0), flatten=FLAT):
        row, column = tile // tl.cdiv(N, BN) * BM, tile % tl.cdiv(N, BN) * BN
        acc = tl.zeros((BM, BN), tl.float32)
        for kk in range(0, K, BK):
            x = tl.load(a + (row + i)[:, None] * K + (kk + k)[None, :])
            acc = tl.dot(x, tl.load(b + (kk + k)[:, None] * N + (column + j)[None, :]), acc)
        tl.store(c + (row + i)[:, None] * N + (column + j)[None, :], acc)


@triton.jit
def batched(a, b, c, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    h, i, j, k = tl.arange(0, 2)[:, None, None], tl.arange(0, BM), tl.arange(0, BN), tl.arange(0, BK)
    acc = tl.zeros((2, BM, BN), tl.float32)
    for kk in range(0, K, BK):
        x = tl.load(a + h * BM * K + i[None, :, None] * K + (kk + k)[None, None, :])
        acc += tl.dot(x, tl.load(b + h * K * BN + (kk + k)[None, :, None] * BN + j[None, None, :]))
    tl.store(c + h * BM * BN + i[None, :, None] * BN + j[None, None, :], acc)


@triton.jit
def causal(q, k, v, o, n, BM: tl.constexpr, BN: tl.constexpr, D: tl.constexpr):
    row = tl.program_id(0) * BM
    i, j, d = row + tl.arange(0, BM), tl.arange(0, BN), tl.arange(0, D)
    qs = tl.load(q + i[:, None] * D + d[None, :], mask=i[:, None] < n, other=0.0)
    top, total, acc = tl.full((BM,), -1e30, tl.float32), tl.zeros((BM,), tl.float32), tl.zeros((BM, D), tl.float32)
    for stage in tl.static_range(2):
        low, high = (0, row) if stage == 0 else (row, tl.minimum(row + BM, n))
        for s in range(low, high, BN):
            scores = tl.dot(qs, tl.load(k + (s + j)[None, :] * D + d[:, None]))
            if stage == 1:
                scores = tl.where(i[:, None] >= (s + j)[None, :], scores, -1e30)
            new = tl.maximum(top, tl.max(scores, 1))
            p, scale = tl.exp2(scores - new[:, None]), tl.exp2(top - new)
            total, top = total * scale + tl.sum(p, 1), new
            acc = tl.dot(p.to(tl.float16), tl.load(v + (s + j)[:, None] * D + d[None, :]), acc * scale[:, None])
    tl.store(o + i[:, None] * D + d[None, :], acc / total[:, None], mask=i[:, None] < n)


@triton.jit
def described_attention(q, k, v, o, n, BM: tl.constexpr, BN: tl.constexpr, D: tl.constexpr, WS: tl.constexpr):
    qd = tl.make_tensor_descriptor(q, [n, D], [D, 1], [BM, D])
    kd = tl.make_tensor_descriptor(k, [n, D], [D, 1], [BN, D])
    vd = tl.make_tensor_descriptor(v, [n, D], [D, 1], [BN, D])
    od = tl.make_tensor_descriptor(o, [n, D], [D, 1], [BM, D])
    row = tl.program_id(0) * BM
    qs = qd.load([row, 0])
    top, total, acc = tl.full((BM,), -1e30, tl.float32), tl.zeros((BM,), tl.float32), tl.zeros((BM, D), tl.float32)
    for s in tl.range(0, n, BN, warp_specialize=WS):
        scores = tl.dot(qs, kd.load([s, 0]).T)
        new = tl.maximum(top, tl.max(scores, 1))
        p, scale = tl.exp2(scores - new[:, None]), tl.exp2(top - new)
        acc = tl.dot(p.to(tl.float16), vd.load([s, 0]), acc * scale[:, None])
        total, top = total * scale + tl.sum(p, 1), new
    od.store([row, 0], (acc / total[:, None]).to(tl.float16))


@triton.jit
def layer_norm(x, y, n, B: tl.constexpr):
    j = tl.arange(0, B)
    mean, squares = tl.zeros((B,), tl.float32), tl.zeros((B,), tl.float32)
    for at in range(0, n, B):
        v = tl.load(x + at + j, mask=at + j < n, other=0.0)
        mean += v
        squares += v * v
    m = tl.sum(mean, 0) / n
    scale = 1 / tl.sqrt(tl.sum(squares, 0) / n - m * m + 1e-5)
    for at in range(0, n, B):
        v = tl.load(x + at + j, mask=at + j < n, other=0.0)
        tl.store(y + at + j, tl.cumsum((v - m) * scale, 0), mask=at + j < n)


@triton.jit
def norm(x, y, n, B: tl.constexpr):
    j = tl.arange(0, B)
    for r in range(n):
        v = tl.load(x + r * B + j)
        m = tl.sum(v, 0) / B
        s = tl.sum((v - m) * (v - m), 0) / B
        tl.store(y + r * B + j, (v - m) / tl.sqrt(s + 1e-5))


@triton.jit
def softmax(x, y, n, B: tl.constexpr):
    j = tl.arange(0, B)
    for r in range(n):
        v = tl.load(x + r * B + j)
        e = tl.exp(v - tl.max(v, 0))
        tl.store(y + r * B + j, e / tl.sum(e, 0))


@triton.jit
def convolution(x, w, y, L, BM: tl.constexpr, C: tl.constexpr, T: tl.constexpr):
    i, c, o = tl.arange(0, BM), tl.arange(0, C), tl.arange(0, C)
    for p in range(0, L, BM):
        acc = tl.zeros((BM, C), tl.float32)
        for t in range(T):
            a = tl.load(x + (p + i + t)[:, None] * C + c[None, :])
            acc = tl.dot(a, tl.load(w + t * C * C + c[:, None] * C + o[None, :]), acc)
        tl.store(y + (p + i)[:, None] * C + o[None, :], acc)


@triton.jit
def add(a, b):
    return a + b


@triton.jit
def changed(v, code: tl.constexpr, R: tl.constexpr):
    if code == 0:
        v = v - tl.max(v, 1)[:, None]
    elif code == 1:
        v = v / (1 + tl.sum(v * v, 0)[None, :])
    elif code == 2:
        v = tl.cumsum(v, 0)
    elif code == 3:
        v = tl.associative_scan(v, 1, add)
    elif code == 4:
        v = tl.trans(v)
    elif code == 5:
        v = tl.dot(v.to(tl.float16), tl.trans(v).to(tl.float16))
    elif code == 6:
        v = tl.sort(v)
    elif code == 7:
        v = v + tl.histogram(tl.reshape(v, (R * R,)).to(tl.int32), R).to(tl.float32)[None, :]
    elif code == 8:
        v = v + tl.argmax(v, 1).to(tl.float32)[:, None]
    return v


@triton.jit
def chain(x, y, n, A: tl.constexpr, B: tl.constexpr, C: tl.constexpr, D: tl.constexpr, R: tl.constexpr):
    i, j = tl.arange(0, R), tl.arange(0, R)
    v = tl.load(x + i[:, None] * R + j[None, :])
    v = changed(v, A, R)
    for _ in range(n):
        v = changed(changed(v, B, R), C, R)
        if tl.load(x) > 0:
            v = changed(v, D, R)
    tl.store(y + j[:, None] + i[None, :] * R, v)


def drawn(
    rng: random.Random, folder: Path, name: str
) -> tuple[str, Any, dict[str, str], dict[str, int], dict[str, int], list[str]]:
    """Return (kind, kernel, signature, constants, options, targets); `folder` and `name` are for a random one's text."""
    whole, every = "*fp32", ("sm_80", "sm_90", "sm_100", "gfx942")
    typed = dict.fromkeys("ab", rng.choice(("*fp16", "*fp16", "*bf16", "*fp32")))
    half, product = dict.fromkeys("ab", "*fp16"), {**typed, "c": whole, "M": "i32", "N": "i32", "K": "i32"}
    sizes = {"BM": rng.choice((32, 64, 128)), "BN": rng.choice((32, 64, 128)), "BK": rng.choice((32, 64))}
    wide = {"BM": 128, "BN": rng.choice((64, 128)), "BK": 64}
    length = {"B": rng.choice((256, 1024, 2048, 4096))}
    square = {"R": rng.choice((16, 32, 64)), **{name: rng.randrange(9) for name in "ABCD"}}
    tall = {"BM": sizes["BM"], "BN": sizes["BN"], "D": rng.choice((32, 64, 128))}
    deep = {"num_stages": rng.choice((1, 2, 3, 4, 5)), "num_warps": rng.choice((2, 4, 4, 8))}
    heads, rows = {**dict.fromkeys("qkv", "*fp16"), "o": whole, "n": "i32"}, {"x": whole, "y": whole, "n": "i32"}
    kind, kernel, signature, constants, targets = rng.choice(
        [
            ("product", matmul, {**typed, "c": whole, "K": "i32"}, sizes, every),
            ("product, grouped", grouped, product, sizes, every),
            ("product, persistent", persistent, product, {**sizes, "FLAT": rng.randrange(2)}, every),
            ("product, batched", batched, {**typed, "c": whole, "K": "i32"}, {"BM": 32, "BN": sizes["BN"] // 2, "BK": 32}, every),
            ("product and softmax", matmul_softmax, {**half, "c": whole, "K": "i32"}, sizes, every),
            ("descriptors", described, {**product, **half, "c": "*fp16"}, {**wide, "WS": 0}, ("sm_90", "sm_100")),
            ("warp groups", described, {**product, **half, "c": "*fp16"}, {**wide, "WS": 1}, ("sm_90", "sm_100")),
            ("attention", attention, heads, tall, every),
            ("attention, causal", causal, heads, {**tall, "BN": min(tall["BM"], tall["BN"])}, every),
            ("attention, descriptors", described_attention, {**heads, "o": "*fp16"}, {"BM": 128, "BN": 64, "D": 64, "WS": rng.randrange(2)}, ("sm_90", "sm_100")),
            ("norm", norm, rows, length, every),
            ("layer norm", layer_norm, rows, length, every),
            ("softmax", softmax, rows, length, every),
            ("convolution", convolution, {"x": "*fp16", "w": "*fp16", "y": whole, "L": "i32"}, {"BM": sizes["BM"], "C": rng.choice((32, 64)), "T": 3}, every),
            ("random chain", chain, rows, square, every),
            *[("random program", None, {"x": whole, "w": whole, "y": whole, "n": "i32"}, {}, every)] * 8,
        ]
    )  # fmt: skip
    if constants.get("WS"):
        deep["num_warps"] = 4
    if kernel is None:
        path = written(rng, folder, name)
        spec = importlib.util.spec_from_file_location(path.stem, path)
        module = importlib.util.module_from_spec(spec)  # type: ignore[arg-type]
        spec.loader.exec_module(module)  # type: ignore[union-attr]
        kernel = module.kernel
    return kind, kernel, signature, constants, deep, rng.sample(targets, min(3, len(targets)))


def bytes_of(plan: Plan, value: int) -> int:
    """Return the bytes of a value as planned, as bits of a number; arenas lie one behind the other."""
    row, home = plan.program.values[value], int(plan.program.values.buffer[value])
    bits = 1
    for size, stride in sorted(zip(row.shape, row.strides, strict=True), key=lambda pair: pair[1]):
        if stride == 1:
            bits = (1 << size) - 1
            continue
        once = bits
        for index in range(1, size):
            bits |= once << (int(stride) * index)
    begin = sum(arena.capacity or 0 for arena in plan.program.arenas[: int(plan.arena[home])])
    return bits << (begin + int(plan.offset[home]) + int(row.offset))


def meets_unordered(plan: Plan) -> bool:
    """Return whether two ops touch a byte that one writes, and neither comes before the other."""
    before, last, sides = list[int](), dict[int, int](), list[tuple[int, int]]()
    held = [bytes_of(plan, value) for value in range(len(plan.program.values.buffer))]
    for number, op in enumerate(plan.program.ops):
        found = 0
        for wait in {*op.after, *([last[op.stream]] if op.stream in last else [])}:
            found |= before[wait] | 1 << wait
        before.append(found)
        last[op.stream] = number
        written = reduce(or_, (held[value] for value in op.results), 0)
        touched = reduce(or_, (held[value] for value in op.operands), written)
        apart = (1 << number) - 1 & ~found
        while apart:
            other = apart.bit_length() - 1
            apart ^= 1 << other
            if touched & sides[other][1] or written & sides[other][0]:
                return True
        sides.append((touched, written))
    return False


def left_out(text: str, rng: random.Random, most: int) -> Iterator[tuple[str, str]]:
    """Yield (what, text) without one barrier or wait whose results nobody needs, drawn."""
    lines = text.splitlines()
    places = [number for number, line in enumerate(lines) if SYNCHRONISING.match(line)]
    for number in rng.sample(places, min(most, len(places))):
        what = re.search(r"tt\w*g\.\w+", lines[number])
        yield what[0] if what else "", "\n".join(lines[:number] + lines[number + 1 :])


def judged(text: str) -> tuple[str, str, Document | None]:
    """Return clean, accused or refused, with the first reason."""
    try:
        document = loads(text.encode(), "kernel")
    except DocumentError as error:
        return "refused", str(error), None
    report = check(document)
    return ("accused", report.violations[0].kind, document) if report.violations else ("clean", "", document)


def told(text: str, seed: str, most: int) -> dict[str, Any]:
    """Return what is said of a kernel, in which time, and of what is left of it without barriers."""
    rng, start = random.Random(seed), spent()  # noqa: S311 - draws, no secrets
    state, why, document = judged(text)
    said: dict[str, Any] = {"judged": spent() - start, "why": why, "left out": []}
    said["told"] = "no shared memory" if document is None and "no plan here" in why else state
    for what, rest in left_out(text, rng, most) if state == "clean" else ():
        found, reason, changed = judged(rest)
        meets = changed is not None and any(map(meets_unordered, changed.plans))
        said["left out"].append([f"{what}: {found}, {'meets' if meets else 'nothing meets'}", reason])
    return said


def table(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the counts of rows, and those rows that somebody is to look at."""
    seconds: Counter[str] = Counter()
    for row in rows:
        for name in ("compiled", "judged"):
            seconds[f"{name}, {row['kind']}"] += row.get(name, 0)
    shares = sorted(round(row["judged"] / row["whole"], 3) for row in rows if "whole" in row)
    odd = ("clean, meets", "refused")
    return {
        "triton": triton.__version__,
        "kernels": len({row["number"] for row in rows}),
        "told": dict(sorted(Counter(row["told"] for row in rows).items())),
        "of each kind": dict(sorted(Counter(f"{row['kind']}, {row['target']}: {row['told']}" for row in rows).items())),
        "left out": dict(sorted(Counter(what for row in rows for what, _ in row.get("left out", ())).items())),
        "cpu seconds": {name: round(taken, 3) for name, taken in sorted(seconds.items())},
        "shares of a product's whole compile": shares,
        "listed": [
            row for row in rows
            if row["told"] not in {"clean", "no shared memory"} or any(word in what for what, _ in row["left out"] for word in odd)
        ],
    }  # fmt: skip


def made(source: Any, target: str, options: dict[str, int], *, whole: bool) -> tuple[str, dict[str, float]]:
    """Return the text that the compiler makes, and what it and the whole compile cost, which may fail for want of registers or memory."""
    start = spent()
    text = compiled(source, TARGETS[target], options)
    cost = {"compiled": spent() - start}
    if whole:
        start = spent()
        with suppress(Exception):
            triton.compile(source, target=TARGETS[target], options=options)
            cost["whole"] = spent() - start
    return text, cost


def measure(
    *,
    kernels: int = 300,
    seed: int = 34,
    leave_out: int = 3,
    whole: int = 20,
    keep: str = "out/triton",
    again: bool = False,
) -> Iterator[Found]:
    """Compile, judge and leave out, kernel by kernel; yield the table after each."""
    folder, rows, products = Path(keep), list[dict[str, Any]](), Counter[str]()
    folder.mkdir(parents=True, exist_ok=True)
    knobs.compilation.always_compile = True
    for number in range(kernels):
        rng = random.Random(f"{seed} {number}")  # noqa: S311 - draws, no secrets
        kind, kernel, signature, constants, options, targets = drawn(rng, folder, f"kernel_{number}")
        source = ASTSource(
            kernel, signature={**signature, **dict.fromkeys(constants, "constexpr")}, constexprs=constants,
            attrs={(place,): [["tt.divisibility", 16]] for place in range(len(signature))},
        )  # fmt: skip
        case = {"number": number, "kind": kind, "kernel": kernel.__name__, **constants, **options}
        for target in targets:
            text, said = (folder / f"{number}_{target}.{suffix}" for suffix in ("ttgir", "json"))
            products[target] += kind.startswith("product")
            row = kept(said) or case | {"target": target, "told": "not compiled", "why": "the compiler died"}
            if not said.is_file():
                write(said, row)
                try:
                    ir, cost = made(
                        source, target, options, whole=kind.startswith("product") and products[target] <= whole
                    )
                    row |= cost
                    text.write_text(ir)
                except Exception as error:  # noqa: BLE001 - whatever the compiler raises
                    row["why"] = str(error)[:200]
            if text.is_file() and (again or "judged" not in row):
                row |= told(text.read_text(), f"{number} {target}", leave_out)
            write(said, row)
            rows.append(row)
        yield table(rows)


if __name__ == "__main__":
    run(measure, failed="listed")
