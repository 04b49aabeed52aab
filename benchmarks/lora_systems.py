"""One training step, the plans of four systems: bytes over the bound, who is sound, at what cost.

    BENCH_PEERS=python-with-torch-jax-tinygrad python benchmarks/lora_systems.py [--keep FOLDER] [--only NAME,...] [--report FOLDER]

The step: a transformer of two layers with LoRA adapters on QKV and O, forward, backward and SGD with momentum (`lora_sizes.py` has its sizes). Each
system runs in the interpreter that BENCH_PEERS names; what it planned is read by the importer of its files and judged by `check`. A system that cannot
be run there is left out of the table with the reason. Writes results/lora_systems.json and the table of docs/systems.md; --keep leaves what the systems wrote; with
--report also a folder: README.md with the table, and for each plan that was judged a page with its verdict and a map to move about in, and two pictures.
"""

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from harness import HERE, PEERS, ROOT, Found, cpu, kept, run, took, why_not

from allocsim import systems
from allocsim.errors import AllocsimError
from allocsim.files.sizes import in_bytes
from allocsim.judge.fast import check
from allocsim.model import Role
from allocsim.systems.torch.peak_lines import peak_bytes

LIMIT = 400
"""Seconds for one system."""

PAGE = ROOT / "docs" / "systems.md"
BEGIN, END = "<!-- table -->", "<!-- end of table -->"

SYSTEMS: dict[str, tuple[list[str], str, dict[str, str]]] = {
    "PyTorch eager": (["lora_torch.py", "eager", "{}/eager.json"], "eager.json", {}),
    "TorchInductor": (["lora_torch.py", "inductor", "{}/inductor"], "inductor/graph*.py", {}),
    "XLA": (
        ["lora_jax.py", "2"],
        "xla/*jit_step*buffer-assignment.txt",
        {"XLA_FLAGS": "--xla_dump_to={}/xla --xla_dump_hlo_as_text"},
    ),
    "tinygrad": (["lora_tinygrad.py", "{}/tinygrad.json"], "tinygrad.json", {"DEV": "NULL"}),
}  # fmt: skip
"""System -> script with arguments, what it writes, environment; `{}` is the folder."""

VERSIONS = {"PyTorch eager": "torch", "TorchInductor": "torch", "XLA": "jax", "tinygrad": "tinygrad"}


def measure(
    *, only: tuple[str, ...] = tuple(SYSTEMS), keep: str = "", report: str = "", peers: str = PEERS, out: Path
) -> Iterator[Found]:
    """Run all, judge, write the table."""
    rows = {row["system"]: row for row in kept(out).get("rows", ())}
    with tempfile.TemporaryDirectory() as made:
        folder = Path(keep or made).absolute()
        folder.mkdir(parents=True, exist_ok=True)
        for system in only:
            rows[system] = row = measured(system, folder, peers)
            print(json.dumps(row), flush=True)
            every = [rows[name] for name in SYSTEMS if name in rows]
            before, _, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
            PAGE.write_text(f"{before}{BEGIN}\n{table(every)}{END}{rest.partition(END)[2]}", encoding="utf-8")
            yield {"rows": every}
        if report:
            reported([rows[name] for name in only], folder, Path(report))


def reported(rows: list[dict[str, Any]], folder: Path, report: Path) -> None:
    """Write a folder about the plans that the systems left in another."""
    report.mkdir(parents=True, exist_ok=True)
    lines = ["# One training step, the plans of several systems", table(rows)]
    for row in rows:
        paths = sorted(folder.glob(SYSTEMS[row["system"]][1])) if "plans" in row else []
        for number, (path, plan) in enumerate(zip(paths, row.get("plans", ()), strict=True)):
            if "left_out" in plan:
                continue
            name = f"{row['system'].lower().replace(' ', '-')}-{number}"
            for kind in ("page", "map", "live"):
                target = f"{name}.html" if kind == "page" else f"{name}-{kind}.png"
                words = ["report"] if kind == "page" else ["plot", "--kind", kind]
                command = [sys.executable, "-m", "allocsim", *words, path, "-o", report / target]
                subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
            lines += ["", f"## {row['system']} {row['version']}, graph {number}", "", f"[The page]({name}.html)", ""]
            lines += [f"![{kind}]({name}-{kind}.png)" for kind in ("map", "live")]
    (report / "README.md").write_text("\n".join(lines) + "\n", encoding="utf-8")


def measured(system: str, folder: Path, peers: str) -> dict[str, Any]:
    """Return the row of a system."""
    (script, *words), pattern, environment = SYSTEMS[system]
    own = {"PYTHONPATH": "", **{name: text.format(folder) for name, text in environment.items()}}
    version = f"from importlib.metadata import version; print(version('{VERSIONS[system]}'))"
    row: dict[str, Any] = {"system": system, "version": took(peers, "-c", version, PYTHONPATH="")["out"].strip()}
    ran = took(peers, HERE / script, *(word.format(folder) for word in words), seconds=LIMIT, **own)
    if ran["status"]:
        return row | {"left_out": f"took more than {LIMIT} s" if ran["wall"] > LIMIT else why_not(ran)}
    row |= {"step_ms": ran["out"].strip() or None, "seconds": round(ran["wall"], 1)}
    return row | {"plans": [judged(path, str(folder)) for path in sorted(folder.glob(pattern))]}


def judged(path: Path, folder: str) -> dict[str, Any]:
    """Return what is to be said of the plans in a file; buffers and ops are those of the plan with the largest peak."""
    try:
        document = systems.load(path)
    except AllocsimError as error:
        return {"left_out": " ".join(str(error).replace(f"{folder}/", "").split())[:300]}
    seconds, report = cpu(lambda: check(document))
    plan = max(document.plans, key=peak_bytes)
    program = plan.program
    given = (program.buffers.role == Role.INPUT) & (plan.arena >= 0)
    return {
        "ops": len(program.ops),
        "buffers": len(program.buffers),
        "peak": report.stats.peak_bytes,
        "bound": report.stats.lower_bound_bytes,
        "inputs": int(program.buffers.nbytes[given].sum()),
        "violations": len(report.violations),
        "warnings": sorted({warning.kind for warning in report.warnings}),
        "check_seconds": round(seconds, 3),
    }


def table(rows: list[dict[str, Any]]) -> str:
    """Return the rows as a table of Markdown."""
    heads = ("system", "ops, buffers", "peak", "bound", "peak over bound", "sound", "step")
    lines = ["", f"| {' | '.join(heads)} |", f"|{'---|' * len(heads)}"]
    for row in rows:
        of = VERSIONS[row["system"]]
        version = row["version"] if of in row["system"].lower() else f"({of} {row['version']})"
        name = f"{row['system']} {version}"
        if "left_out" in row:
            lines.append(f"| {name} | left out: {row['left_out']} | | | | | |")
            continue
        for number, plan in enumerate(row["plans"]):
            label = name if len(row["plans"]) == 1 else f"{name}, graph {number}"
            if "left_out" in plan:
                lines.append(f"| {label} | left out: {plan['left_out']} | | | | | |")
                continue
            over = f"{plan['peak'] / plan['bound']:.3f}" if plan["bound"] else ""
            sound = f"{plan['violations']} violations" if plan["violations"] else "clean"
            step = f"{float(row['step_ms']):.0f} ms" if row["step_ms"] else "not computed"
            sizes = f"{plan['ops']}, {plan['buffers']}", in_bytes(plan["peak"]), in_bytes(plan["bound"])
            cells = (*sizes, over, sound, step)
            lines.append(f"| {label} | {' | '.join(cells)} |")
    return "\n".join([*lines, "", ""])


if __name__ == "__main__":
    run(measure, known={"only": SYSTEMS})
