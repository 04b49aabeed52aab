"""Random models through IREE's compiler, and what is said of the plans that it makes of them.

    python benchmarks/iree.py [--models N] [--first SEED] [--compiler iree-compile] [--out FILE]

Needs `iree-compile` (the package iree-base-compiler, in any environment). A model is a function over square
matrices: products (some onto another tensor), sums, transposes, slices put into other tensors, loops and branches.
Each is compiled for the CPU as far as the stream dialect, and the text before and after the pass
`iree-stream-layout-slices` is judged. `accused` must be empty; `doubtful` are models with an in-place pair that nobody
vouches for, which `check --strict` accuses: whether their numbers are wrong is for a run to say (docs/found.md).
"""

import argparse
import json
import random
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, Final

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent))  # this checkout, installed or not

from allocsim.checks import check  # noqa: E402 - after the path above
from allocsim.errors import DocumentError  # noqa: E402 - as above
from allocsim.formats.iree_stream import PASSES, loads  # noqa: E402 - as above

OPTIONS: Final = (
    "--iree-hal-target-device=local",
    "--iree-hal-local-target-device-backends=llvm-cpu",
    "--iree-llvmcpu-target-cpu=generic",
    "--compile-to=stream",
    *PASSES.split(),
)


def main() -> int:
    """Compile, judge, write."""
    parser = argparse.ArgumentParser(description="Random models through IREE's compiler.")
    parser.add_argument("--models", type=int, default=300)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--compiler", default="iree-compile")
    parser.add_argument("--out", type=Path, default=HERE / "results" / "iree.json")
    options = parser.parse_args()
    answers: dict[str, list[int]] = {
        name: [] for name in ("clean", "doubtful", "accused", "no plan", "refused", "not compiled")
    }
    ops = 0
    for seed in range(options.first, options.first + options.models):
        answer, count = judged(model(seed), options.compiler)
        answers[answer].append(seed)
        ops += count
    version = subprocess.run([options.compiler, "--version"], capture_output=True, text=True, check=True).stdout
    found: dict[str, Any] = {
        "version": next((line.strip() for line in version.splitlines() if "version" in line.lower()), ""),
        "models": options.models,
        "ops": ops,
        **{name: len(seeds) for name, seeds in answers.items()},
        "seeds": {name: seeds for name, seeds in answers.items() if name != "clean"},
    }
    options.out.write_text(json.dumps(found, indent=1) + "\n")
    print({name: value for name, value in found.items() if name != "seeds"})
    return bool(answers["accused"] or answers["refused"])


def judged(text: str, compiler: str) -> tuple[str, int]:
    """Return what is said of the plan of a model, and how many ops were judged."""
    with tempfile.NamedTemporaryFile(mode="w", suffix=".mlir") as file:
        file.write(text)
        file.flush()
        done = subprocess.run([compiler, *OPTIONS, file.name, "-o", "/dev/null"], capture_output=True, check=False)
    if done.returncode:
        return "not compiled", 0
    try:
        document = loads(done.stderr)
    except DocumentError as error:
        return ("no plan" if "no plan here" in str(error) else "refused"), 0
    report = check(document)
    doubtful = any(row.kind == "AssumedInPlace" for row in report.warnings)
    ops = sum(len(program.ops) for program in document.programs)
    return ("doubtful" if doubtful else "clean") if report.clean else "accused", ops


class Writer:
    """A function as it is written."""

    def __init__(self, seed: int) -> None:
        self.random, self.names = random.Random(seed), 0  # noqa: S311 - models, no secrets
        self.side = self.random.choice((4, 8, 16, 32))
        self.type, self.half = f"tensor<{self.side}x{self.side}xf32>", f"tensor<{self.side // 2}x{self.side}xf32>"

    def name(self) -> str:
        """Return a name that is not in use."""
        self.names += 1
        return f"%v{self.names}"

    def body(self, values: list[str], rows: list[str], count: int, *, nested: bool = False) -> list[str]:
        """Write `count` ops over values that are known; return these and the results."""
        values, draw, kind = list(values), self.random, self.type
        for _ in range(count):
            made, one, other, chance = self.name(), draw.choice(values[-6:]), draw.choice(values), draw.random()
            if chance < 0.5:
                onto = "%f" if chance < 0.4 else draw.choice(values)
                rows.append(
                    f"{made} = linalg.matmul ins({one}, {other} : {kind}, {kind}) outs({onto} : {kind}) -> {kind}"
                )
            elif chance < 0.6:
                rows.append(f"{made} = arith.addf {one}, {other} : {kind}")
            elif chance < 0.7:
                rows.append(f"{made} = linalg.transpose ins({one} : {kind}) outs(%e : {kind}) permutation = [1, 0]")
            elif chance < 0.85:
                part, cut = self.name(), f"[{self.side // 2}, {self.side}] [1, 1]"
                to, at = draw.choice((0, self.side // 2)), draw.choice((0, self.side // 2))
                rows.append(f"{part} = tensor.extract_slice {one}[{at}, 0] {cut} : {kind} to {self.half}")
                rows.append(
                    f"{made} = tensor.insert_slice {part} into {other}[{to}, 0] {cut} : {self.half} into {kind}"
                )
            elif nested:
                rows.append(f"{made} = arith.mulf {one}, {other} : {kind}")
            elif chance < 0.93:
                step, carried, inner = self.name(), self.name(), list[str]()
                last = self.body([*values, carried], inner, draw.randint(2, 5), nested=True)[-1]
                loop = f"scf.for {step} = %i0 to %i3 step %i1 iter_args({carried} = {one}) -> ({kind})"
                rows += [f"{made} = {loop} {{", *inner, f"scf.yield {last} : {kind}", "}"]
            else:
                truth, element, sides = self.name(), self.name(), (list[str](), list[str]())
                ends = [self.body(values, side, draw.randint(1, 3), nested=True)[-1] for side in sides]
                rows.append(f"{element} = tensor.extract {one}[%i0, %i0] : {kind}")
                rows.append(f"{truth} = arith.cmpf ogt, {element}, %c0 : f32")
                yields = [f"scf.yield {end} : {kind}" for end in ends]
                rows += [f"{made} = scf.if {truth} -> ({kind}) {{", *sides[0], yields[0]]
                rows += ["} else {", *sides[1], yields[1], "}"]
            values.append(made)
        return values


def model(seed: int) -> str:
    """Return a function over square matrices as MLIR."""
    writer = Writer(seed)
    kind, draw = writer.type, writer.random
    given = [f"%a{place}" for place in range(draw.randint(1, 3))]
    rows = [
        "%c0 = arith.constant 0.0 : f32",
        *(f"%i{number} = arith.constant {number} : index" for number in (0, 1, 3)),
        f"%e = tensor.empty() : {kind}",
        f"%f = linalg.fill ins(%c0 : f32) outs(%e : {kind}) -> {kind}",
    ]
    values = writer.body(given, rows, draw.randint(3, 25))
    out = [values[-1], *draw.sample(values, min(len(values), draw.randint(0, 2)))]
    kinds = ", ".join([kind] * len(out))
    head = f"func.func @m({', '.join(f'{name}: {kind}' for name in given)}) -> ({kinds}) {{"
    return "\n".join([head, *rows, f"return {', '.join(out)} : {kinds}", "}"]) + "\n"


if __name__ == "__main__":
    sys.exit(main())
