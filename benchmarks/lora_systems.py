"""One training step, the plans of four systems: bytes over the bound, who is sound, at what cost.

    BENCH_PEERS=python-with-torch-jax-tinygrad python benchmarks/lora_systems.py [--keep FOLDER] [--only NAME ...] [--report FOLDER]

The step: a transformer of two layers with LoRA adapters on QKV and O, forward, backward and SGD with momentum (`lora_sizes.py` has its sizes). Each
system runs in the interpreter that BENCH_PEERS names; what it planned is read by the importer of its files and judged by `check`. A system that cannot
be run there is left out of the table with the reason. Writes results/lora_systems.json and the table of docs/systems.md; with
--report also a folder: README.md with the table, and for each plan that was judged a page with its verdict and a map to move about in, and two pictures.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent))  # this checkout, installed or not

from allocsim import systems  # noqa: E402 - after the path above
from allocsim.errors import AllocsimError  # noqa: E402
from allocsim.files.sizes import in_bytes  # noqa: E402
from allocsim.judge.fast import check  # noqa: E402
from allocsim.model import Role  # noqa: E402
from allocsim.systems.torch.peak_lines import peak_bytes  # noqa: E402

LIMIT = 400
"""Seconds for one system."""

PAGE = HERE.parent / "docs" / "systems.md"
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
}
"""System -> script with arguments, what it writes, environment; `{}` is the folder."""

VERSIONS = {"PyTorch eager": "torch", "TorchInductor": "torch", "XLA": "jax", "tinygrad": "tinygrad"}


def main() -> None:
    """Run all, judge, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peers", default=os.environ.get("BENCH_PEERS", sys.executable))
    parser.add_argument("--only", nargs="*", default=list(SYSTEMS))
    parser.add_argument("--keep", type=Path, help="leave what the systems wrote here")
    parser.add_argument("--report", type=Path, help="write a page and pictures of each plan, and the table, here")
    parser.add_argument("--out", type=Path, default=HERE / "results" / "lora_systems.json")
    options = parser.parse_args()
    old = json.loads(options.out.read_text(encoding="utf-8"))["rows"] if options.out.is_file() else []
    rows = {row["system"]: row for row in old}
    with tempfile.TemporaryDirectory() as made:
        folder = options.keep or Path(made)
        folder.mkdir(parents=True, exist_ok=True)
        for system in options.only:
            rows[system] = row = measured(system, folder, options.peers)
            print(json.dumps(row), flush=True)
            written([rows[name] for name in SYSTEMS if name in rows], options.out)
        if options.report:
            reported([rows[name] for name in options.only], folder, options.report)


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
            made = {
                "page": report / f"{name}.html",
                "map": report / f"{name}-map.png",
                "live": report / f"{name}-live.png",
            }
            for kind, target in made.items():
                words = ["report"] if kind == "page" else ["plot", "--kind", kind]
                command = [sys.executable, "-m", "allocsim", *words, str(path), "-o", str(target)]
                subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
            lines += ["", f"## {row['system']} {row['version']}, graph {number}", "", f"[The page]({name}.html)", ""]
            lines += [f"![{kind}]({made[kind].name})" for kind in ("map", "live")]
    (report / "README.md").write_text("\n".join(lines) + "\n", encoding="utf-8")


def written(rows: list[dict[str, Any]], out: Path) -> None:
    """Write the rows, and the table into its page."""
    out.write_text(json.dumps({"rows": rows}, indent=1) + "\n", encoding="utf-8")
    before, _, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
    PAGE.write_text(f"{before}{BEGIN}\n{table(rows)}{END}{rest.partition(END)[2]}", encoding="utf-8")


def measured(system: str, folder: Path, peers: str) -> dict[str, Any]:
    """Return the row of a system."""
    words, pattern, environment = SYSTEMS[system]
    command = [peers, str(HERE / words[0]), *(word.format(folder) for word in words[1:])]
    variables = {**_own(os.environ), **{name: text.format(folder) for name, text in environment.items()}}
    version = subprocess.run(
        [peers, "-c", f"from importlib.metadata import version; print(version('{VERSIONS[system]}'))"],
        check=False, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=_own(os.environ),
    ).stdout.strip()  # fmt: skip
    row: dict[str, Any] = {"system": system, "version": version}
    begin = time.perf_counter()
    try:
        ran = subprocess.run(command, check=False, capture_output=True, text=True, env=variables, timeout=LIMIT)
    except subprocess.TimeoutExpired:
        return row | {"left_out": f"took more than {LIMIT} s"}
    if ran.returncode:
        return row | {"left_out": (ran.stderr.strip().splitlines() or ["no word"])[-1][:200]}
    row |= {"step_ms": ran.stdout.strip() or None, "seconds": round(time.perf_counter() - begin, 1)}
    return row | {"plans": [judged(path, str(folder)) for path in sorted(folder.glob(pattern))]}


def _own(variables: Mapping[str, str]) -> dict[str, str]:
    """Return an environment in which another interpreter finds its own packages; the scripts add
    this checkout themselves.
    """
    return {name: text for name, text in variables.items() if name != "PYTHONPATH"}


def judged(path: Path, folder: str) -> dict[str, Any]:
    """Return what is to be said of the plans in a file; buffers and ops are those of the plan with
    the largest peak.
    """
    try:
        document = systems.load(path)
    except AllocsimError as error:
        return {"left_out": " ".join(str(error).replace(f"{folder}/", "").split())[:300]}
    begin = time.process_time()
    report = check(document)
    seconds = time.process_time() - begin
    plan = max(document.plans, key=peak_bytes)
    program = plan.program
    given = [Role(role) for role in program.buffers.role]
    inputs = sum(
        int(n)
        for n, role, arena in zip(program.buffers.nbytes, given, plan.arena, strict=True)
        if role == Role.INPUT and arena >= 0
    )
    return {
        "ops": len(program.ops),
        "buffers": len(program.buffers),
        "peak": report.stats.peak_bytes,
        "bound": report.stats.lower_bound_bytes,
        "inputs": inputs,
        "violations": len(report.violations),
        "warnings": sorted({warning.kind for warning in report.warnings}),
        "check_seconds": round(seconds, 3),
    }


def table(rows: list[dict[str, Any]]) -> str:
    """Return the rows as a table of Markdown."""
    lines = [
        "",
        "| system | ops, buffers | peak | bound | peak over bound | sound | step |",
        "|---|---|---|---|---|---|---|",
    ]
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
            cells = (
                f"{plan['ops']}, {plan['buffers']}",
                in_bytes(plan["peak"]),
                in_bytes(plan["bound"]),
                over,
                sound,
                step,
            )
            lines.append(f"| {label} | {' | '.join(cells)} |")
    return "\n".join([*lines, "", ""])


if __name__ == "__main__":
    main()
