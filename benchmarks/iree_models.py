"""Random models through IREE's compiler, and what is said of the plans that it makes of them.

    python benchmarks/iree_models.py [--models N] [--compiler iree-compile] [--keep FOLDER] [--runtime PYTHON [--runs N]] [--out FILE]

Needs `iree-compile` (the package iree-base-compiler, in any environment). A model is a function over square
matrices: products (some onto another tensor), sums, transposes, slices put into other tensors, loops and branches.
Each is compiled for the CPU as far as the stream dialect, and the text before and after the pass
`iree-stream-layout-slices` is judged. `accused` must be empty; `doubtful` are models with an in-place pair that nobody
vouches for, which `check --strict` accuses. What the compiler printed is kept (`--keep`), so a run that was stopped
goes on. With `--runtime` these, and some clean ones, are run: `wrong` are those whose numbers are not those of the same
function in float64 by NumPy.
"""

import math
import random
import subprocess
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any, Final

from harness import Found, run

from random_models import DISAGREES, replay_word

from allocsim.errors import DocumentError
from allocsim.files import write_atomic
from allocsim.judge.fast import check
from allocsim.systems.iree.iree_stream import PASSES, loads

OPTIONS: Final = (
    "--iree-hal-target-device=local",
    "--iree-hal-local-target-device-backends=llvm-cpu",
    "--iree-llvmcpu-target-cpu=generic",
    "--compile-to=stream",
    *PASSES.split(),
)


FAR: Final = 1e-3
"""A distance that no rounding explains: the chains are at most some dozen products of float32 long."""


def measure(
    *, models: int = 300, compiler: str = "iree-compile", keep: str = "out/iree", runtime: str = "", runs: int = 200
) -> Found:
    """Compile, judge, replay; with `runtime`, run so many clean models, and all doubtful and accused ones."""
    answers: dict[str, list[int]] = {
        name: [] for name in ("clean", "doubtful", "accused", "no plan", "refused", "not compiled")
    }
    ops, replayed = 0, Counter[str]()
    for seed in range(models):
        answer, number, word = judged(dumped(seed, compiler, Path(keep)))
        answers[answer].append(seed)
        replayed[word] += bool(word)
        ops += number
    version = subprocess.run([compiler, "--version"], capture_output=True, text=True, check=True).stdout
    numbers = {
        name: ran(seeds[: runs if name == "clean" else None], compiler, runtime)
        for name, seeds in answers.items()
        if runtime and name in {"clean", "doubtful", "accused"}
    }
    missed = numbers.get("clean", {}).get("wrong")
    return {
        "version": next((line.strip() for line in version.splitlines() if "version" in line.lower()), ""),
        "models": models,
        "ops": ops,
        "replayed": dict(sorted(replayed.items())),
        **{name: len(seeds) for name, seeds in answers.items()},
        "seeds": {name: seeds for name, seeds in answers.items() if name != "clean"},
        "run": numbers,
        "unexplained": bool(answers["accused"] or answers["refused"] or missed or replayed[DISAGREES]),
    }


def ran(seeds: list[int], compiler: str, runtime: str) -> dict[str, Any]:
    """Return how many models were run, and those whose numbers are wrong, with how far."""
    found = {seed: distance(seed, compiler, runtime) for seed in seeds}
    ran = {seed: apart for seed, apart in found.items() if apart >= 0 or math.isnan(apart)}
    wrong = {seed: apart for seed, apart in ran.items() if not apart <= FAR}
    wrong = {seed: str(apart) for seed, apart in wrong.items()}
    return {
        "models": len(ran),
        "not run": len(found) - len(ran),
        "most": max((a for s, a in ran.items() if s not in wrong), default=0.0),
        "wrong": wrong,
    }


def dumped(seed: int, compiler: str, keep: Path) -> bytes:
    """Return what the compiler prints of a model, nothing where it fails; kept, if it was not yet."""
    path = keep / f"{seed}.txt"
    if not path.is_file():
        keep.mkdir(parents=True, exist_ok=True)
        source = path.with_suffix(".mlir")
        source.write_text(model(seed)[0])
        done = subprocess.run([compiler, *OPTIONS, source, "-o", "/dev/null"], capture_output=True, check=False)
        write_atomic(path, b"" if done.returncode else done.stderr)
    return path.read_bytes()


def judged(dump: bytes) -> tuple[str, int, str]:
    """Return what is said of the plan of a model, how many ops were judged, and what replaying it said."""
    if not dump:
        return "not compiled", 0, ""
    try:
        document = loads(dump)
    except DocumentError as error:
        return ("no plan" if "no plan here" in str(error) else "refused"), 0, ""
    report = check(document)
    doubtful = any(row.kind == "AssumedInPlace" for row in report.warnings)
    ops = sum(len(program.ops) for program in document.programs)
    answer = ("doubtful" if doubtful else "clean") if report.clean else "accused"
    return answer, ops, replay_word(document, report)


class Writer:
    """A function as it is written, in MLIR and in NumPy's words."""

    def __init__(self, seed: int) -> None:
        self.random, self.names = random.Random(seed), 0  # noqa: S311 - models, no secrets
        self.side = self.random.choice((4, 8, 16, 32))
        self.type, self.half = f"tensor<{self.side}x{self.side}xf32>", f"tensor<{self.side // 2}x{self.side}xf32>"
        self.rows: list[str] = []
        self.script: list[str] = []
        self.depth = 1

    def name(self) -> str:
        """Return a name that is not in use."""
        self.names += 1
        return f"v{self.names}"

    def say(self, *rows: str, numpy: str = "") -> None:
        """Write lines, and what NumPy is to do."""
        self.rows += rows
        if numpy:
            self.script += ["    " * self.depth + line for line in numpy.split("; ")]

    def body(self, values: list[str], count: int, *, nested: bool = False) -> list[str]:
        """Write `count` ops over values that are known; return these and the results."""
        values, draw, kind, half = list(values), self.random, self.type, self.side // 2
        for _ in range(count):
            made, one, other, chance = self.name(), draw.choice(values[-6:]), draw.choice(values), draw.random()
            if chance < 0.5:
                onto = "f" if chance < 0.4 else draw.choice(values)
                ins = f"ins(%{one}, %{other} : {kind}, {kind}) outs(%{onto} : {kind})"
                self.say(f"%{made} = linalg.matmul {ins} -> {kind}", numpy=f"{made} = {onto} + {one} @ {other}")
            elif chance < 0.6:
                self.say(f"%{made} = arith.addf %{one}, %{other} : {kind}", numpy=f"{made} = {one} + {other}")
            elif chance < 0.7:
                turned = f"ins(%{one} : {kind}) outs(%e : {kind}) permutation = [1, 0]"
                self.say(f"%{made} = linalg.transpose {turned}", numpy=f"{made} = {one}.T")
            elif chance < 0.85:
                part, cut = self.name(), f"[{half}, {self.side}] [1, 1]"
                to, at = draw.choice((0, half)), draw.choice((0, half))
                self.say(
                    f"%{part} = tensor.extract_slice %{one}[{at}, 0] {cut} : {kind} to {self.half}",
                    f"%{made} = tensor.insert_slice %{part} into %{other}[{to}, 0] {cut} : {self.half} into {kind}",
                    numpy=f"{made} = {other}.copy(); {made}[{to}:{to + half}] = {one}[{at}:{at + half}]",
                )
            elif nested:
                self.say(f"%{made} = arith.mulf %{one}, %{other} : {kind}", numpy=f"{made} = {one} * {other}")
            elif chance < 0.93:
                self.loop(made, one, values)
            else:
                self.branch(made, one, values)
            values.append(made)
        return values

    def inside(self, values: list[str], count: int) -> str:
        """Write a body one level deeper; return its last value."""
        self.depth += 1
        last = self.body(values, count, nested=True)[-1]
        self.depth -= 1
        return last

    def loop(self, made: str, one: str, values: list[str]) -> None:
        """Write a loop of three turns that carries one value."""
        step, carried = self.name(), self.name()
        head = f"scf.for %{step} = %i0 to %i3 step %i1 iter_args(%{carried} = %{one}) -> ({self.type})"
        self.say(f"%{made} = {head} {{", numpy=f"{made} = {one}; for _ in range(3):;     {carried} = {made}")
        last = self.inside([*values, carried], self.random.randint(2, 5))
        self.say(f"scf.yield %{last} : {self.type}", "}", numpy=f"    {made} = {last}")

    def branch(self, made: str, one: str, values: list[str]) -> None:
        """Write two sides, of which the sign of an element chooses."""
        truth, element = self.name(), self.name()
        self.say(
            f"%{element} = tensor.extract %{one}[%i0, %i0] : {self.type}",
            f"%{truth} = arith.cmpf ogt, %{element}, %c0 : f32",
            f"%{made} = scf.if %{truth} -> ({self.type}) {{",
            numpy=f"if {one}[0, 0] > 0:",
        )
        for end in ("} else {", "}"):
            last = self.inside(values, self.random.randint(1, 3))
            self.say(f"scf.yield %{last} : {self.type}", end, numpy=f"    {made} = {last}")
            if end != "}":
                self.say(numpy="else:")


def model(seed: int) -> tuple[str, str]:
    """Return a function over square matrices as MLIR, and what it is to give in NumPy's words."""
    writer = Writer(seed)
    kind, draw = writer.type, writer.random
    given = [f"a{place}" for place in range(draw.randint(1, 3))]
    writer.say(
        "%c0 = arith.constant 0.0 : f32",
        *(f"%i{number} = arith.constant {number} : index" for number in (0, 1, 3)),
        f"%e = tensor.empty() : {kind}",
        f"%f = linalg.fill ins(%c0 : f32) outs(%e : {kind}) -> {kind}",
        numpy="f = 0.0",
    )
    values = writer.body(given, draw.randint(3, 25))
    out = [values[-1], *draw.sample(values, min(len(values), draw.randint(0, 2)))]
    kinds = ", ".join([kind] * len(out))
    head = f"func.func @m({', '.join(f'%{name}: {kind}' for name in given)}) -> ({kinds}) {{"
    end = f"return {', '.join(f'%{name}' for name in out)} : {kinds}"
    script = [f"def reference({', '.join(given)}):", *writer.script, f"    return [{', '.join(out)}]"]
    return "\n".join([head, *writer.rows, end, "}"]) + "\n", "\n".join([f"SIDE = {writer.side}", *script]) + "\n"


RUN = """
import sys
import iree.runtime as rt
import numpy as np

context = rt.SystemContext(config=rt.Config("local-task"))
context.add_vm_module(rt.VmModule.copy_buffer(context.instance, open(sys.argv[1], "rb").read()))
rng = np.random.default_rng(1)
count = reference.__code__.co_argcount
given = [(rng.standard_normal((SIDE, SIDE)) / SIDE).astype(np.float32) for _ in range(count)]
found = context.modules.module.m(*given)
found = [row.to_host() for row in (found if isinstance(found, (list, tuple)) else [found])]
right = reference(*(row.astype(np.float64) for row in given))
apart = [np.abs(one - other).max() / max(np.abs(other).max(), 1e-30) for one, other in zip(found, right)]
print(max(map(float, apart)))
"""


def distance(seed: int, compiler: str, runtime: str) -> float:
    """Return how far what the compiled model gives lies from float64, relative to the largest element; -1 if it does not run."""
    text, script = model(seed)
    with tempfile.TemporaryDirectory() as folder:
        source, made, run = (Path(folder) / name for name in ("m.mlir", "m.vmfb", "run.py"))
        source.write_text(text)
        run.write_text(script + RUN)
        options = [option for option in OPTIONS if not option.startswith(("--compile-to", "--mlir"))]
        done = subprocess.run([compiler, *options, source, "-o", made], capture_output=True, check=False)
        if done.returncode:
            return -1.0
        done = subprocess.run([runtime, run, made], capture_output=True, text=True, check=False)
    return float(done.stdout) if done.returncode == 0 else -1.0


if __name__ == "__main__":
    run(measure, failed="unexplained", called="iree")
