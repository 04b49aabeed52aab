"""Random Triton kernels as text, for `triton_kernels.py`: what is drawn, and a module that has it.

    path = written(random.Random(7), Path("out"), "seven")

A kernel is loads (masked too), products, reductions, scans, sorts, gathers, histograms, joins, transposes and reshapes of tiles of drawn sizes and
types, in loops (nested, pipelined in drawn stages) and under branches on what is loaded. Every tile is float32 between its steps. Needs nothing
beside Python.
"""

import random
from pathlib import Path
from typing import Final

HEAD: Final = """import triton
import triton.language as tl


@triton.jit
def add(a, b):
    return a + b


@triton.jit
def larger(a, b):
    return tl.maximum(a, b)


@triton.jit
def kernel(x, w, y, n):
"""

SIZES: Final = (16, 32, 32, 64, 64, 128)
MOST: Final = 128 * 64
"""Elements of a tile: sorts and scans of more compile for minutes."""

ALIKE: Final = (
    "{v} - tl.max({v}, 1)[:, None]", "{v} / (1 + tl.sum({v} * {v}, 0)[None, :])", "{v} + tl.min({v}, {axis}, keep_dims=True)",
    "{v} + tl.argmax({v}, 1).to(tl.float32)[:, None]", "{v} * tl.sum(tl.sum({v}, 1), 0)", "tl.softmax({v})",
    "tl.cumsum({v}, {axis}, reverse={way})", "tl.associative_scan({v}, {axis}, add, reverse={way})", "tl.associative_scan({v}, {axis}, larger)",
    "tl.sort({v})", "tl.flip({v}, 1)", "tl.gather({v}, (r{b}[None, :] + r{a}[:, None]) % {size}, {axis})", "tl.where({v} > {u}, {u}, -{v})",
    "{v} * {u} + 1", "tl.exp({v}) - {u}", "{v} + tl.histogram(tl.reshape({v}, ({a} * {b},)).to(tl.int32), {b}).to(tl.float32)[None, :]",
    "tl.reshape(tl.permute(tl.reshape({v}, ({a} // 4, 4, {b})), (1, 0, 2)), ({a}, {b}))", "tl.reshape(tl.join({v}, {u}), ({a}, 2, {b})).sum(1)",
    "tl.trans(tl.reshape({v}, ({b}, {a})))", "tl.trans(tl.trans({v}) + r{a}[None, :])",
    "tl.dot({v}.to(tl.{kind}), tl.load(w + r{b}[:, None] * {b} + r{b}[None, :]).to(tl.{kind}))",
    "tl.dot(tl.load(w + r{a}[:, None] * {a} + r{a}[None, :] + t).to(tl.{kind}), {v}.to(tl.{kind}), {u})",
    "tl.dot(tl.dot({v}.to(tl.{kind}), tl.trans({u}).to(tl.{kind})).to(tl.float16), {u}.to(tl.float16))",
)  # fmt: skip
"""Of one or two tiles of a shape, one of that shape."""


class _Text:
    """Lines of a kernel that grow, and the tiles that it has, by shape."""

    def __init__(self, rng: random.Random) -> None:
        self.rng, self.lines, self.made = rng, list[str](), 0
        self.shape = self._drawn_shape()
        self.tiles = list[str]()

    def _drawn_shape(self) -> tuple[int, int]:
        while True:
            a, b = self.rng.choice(SIZES), self.rng.choice(SIZES)
            if a * b <= MOST:
                return a, b

    def say(self, depth: int, line: str) -> None:
        self.lines.append("    " * (depth + 1) + line)

    def load(self, depth: int) -> None:
        a, b = self.shape
        mask = self.rng.choice(("", f", mask=r{b}[None, :] < n, other=0.0", f", mask=r{a}[:, None] < n - t, other=1.0"))
        self.made += 1
        self.say(
            depth, f"v{self.made} = tl.load(x + t * {a * b} + r{a}[:, None] * {b} + r{b}[None, :]{mask}).to(tl.float32)"
        )
        self.tiles.append(f"v{self.made}")

    def step(self, depth: int) -> None:
        """Change a tile, by what it is and another."""
        (a, b), rng = self.shape, self.rng
        target, axis = rng.choice(self.tiles), rng.randrange(2)
        words = {
            "v": rng.choice(self.tiles), "u": rng.choice(self.tiles), "a": a, "b": b, "axis": axis, "way": rng.random() < 0.3,
            "size": self.shape[axis], "kind": rng.choice(("float16", "float16", "bfloat16", "float32")),
        }  # fmt: skip
        self.say(depth, f"{target} = ({rng.choice(ALIKE).format(**words)}).to(tl.float32)")

    def body(self, depth: int, steps: int) -> None:
        """Add steps, loops and branches."""
        for _ in range(steps):
            drawn = self.rng.random()
            if drawn < 0.25 and depth < 2:
                stages = self.rng.choice(
                    ("range(n)", "range(0, n, 2)", *(f"tl.range(0, n, num_stages={k})" for k in range(1, 6)))
                )
                self.say(depth, f"for t{depth} in {stages}:")
                self.say(depth + 1, f"t = t{depth}")
                kept = list(self.tiles)
                if self.rng.random() < 0.7:
                    self.load(depth + 1)
                self.body(depth + 1, self.rng.randrange(1, 4))
                self.say(depth + 1, f"{kept[0]} = {kept[0]} + {self.tiles[-1]}")
                self.tiles = kept
            elif drawn < 0.35 and depth:
                self.say(depth, "if tl.load(x + t) > 0:")
                self.step(depth + 1)
            else:
                self.step(depth)


def written(rng: random.Random, folder: Path, name: str) -> Path:
    """Write a module with a kernel `kernel(x, w, y, n)` of pointers to float32 and an integer; return its path."""
    text = _Text(rng)
    for size in sorted({*text.shape}):
        text.say(0, f"r{size} = tl.arange(0, {size})")
    text.say(0, "t = 0")
    for _ in range(rng.randrange(1, 3)):
        text.load(0)
    text.body(0, rng.randrange(2, 6))
    a, b = text.shape
    end = rng.choice(("tl.store(y + r{a}[:, None] * {b} + r{b}[None, :], {v})", "tl.store(y + r{b}[:, None] * {a} + r{a}[None, :], tl.trans({v}))",
                      "tl.atomic_add(y + r{a}, tl.sum({v}, 1))", "tl.store(y + tl.program_id(0), tl.sum(tl.sum({v}, 0), 0))"))  # fmt: skip
    text.say(0, end.format(a=a, b=b, v=text.tiles[0]))
    path = folder / f"{name}.py"
    path.write_text(HEAD + "\n".join(text.lines) + "\n", encoding="utf-8")
    return path
