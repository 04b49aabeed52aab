"""Detectors at full size.

    python benchmarks/detectors.py audit [--ggml before,after] [--out FILE]
    python benchmarks/detectors.py modes [--layers 30] [--steps 20] [--modes a,b,...] [--out FILE]
    python benchmarks/detectors.py replay [--layers 30] [--seq 64] [--every 500] [--limit N] [--out FILE]
    python benchmarks/detectors.py waste [--seq 64] [--layers 30] [--out FILE]

`audit`, detector K: every kernel of the engine in every layout, and of a real ggml where one is installed; what was measured, and the processor time.
`unsafe_declared` is what breaks a promise: none of the engine's own kernels may, the variants kept for scenarios do. Of ggml before 0.15 four pairs do
(`allocsim audit --ggml before`); without the package `allocsim[ggml]` its rows are left out.

`modes`, detector D: 30 layers trained 20 steps in every sort of mode, each compared with the reference tensor by tensor. For each mode: whether it is equal,
rounds or is corrupt, where it first goes wrong, and its arena; the processor time of everything `repro run` does, and the most memory it had.

`replay`, detector R: what a plan of 30 layers allows, every case judged by S, and executed by D where that can tell more. For each group of cases: how many,
what S and D say, and the processor time. Every single pin is planned and judged; of the pin cases those are executed that use a pair in place that no other
has used, that S finds something in, or that are drawn (every n-th of the rest): `allocsim.r_replay.pins`.

`waste`, detector L in bytes: what lifetimes that are believed too long waste, and what the peak would be with right ones. What ggml's counting believes of the
engine's training graph and of the graphs captured from real ggml, with ggml's own placement and one that places by size. Figures are bytes and do not depend
on the machine. `wasted` is bytes times steps; `live` the most bytes alive at a step, `peak` what the placement needs, each as believed and with right
lifetimes.
"""

from collections import Counter
from collections.abc import Iterator
from typing import Any

from harness import DATA, Found, cpu, grown, peak_mib, run_one_of, spent

from allocsim import systems
from allocsim.allocators import ALLOCATORS
from allocsim.errors import AllocsimError
from allocsim.liveness.waste import waste as wasted
from allocsim.model import Program
from repro import run as whole_runs
from repro import scenarios
from repro.options import EngineOptions

MODES = ("default", "pinned", "reference", "float64", "deny", "pin:backward", "greedy_by_size", "tape")
PLACEMENTS = ("ggml", "greedy_by_size")


def audit(*, ggml: tuple[str, ...] = ("before", "after")) -> Iterator[Found]:
    """Measure the engine, and the libraries of ggml that are named."""
    return grown(_audited("engine", *filter(None, ggml)))


def _audited(*names: str) -> Iterator[tuple[str, Found]]:
    for name in names:
        before = spent()
        try:
            rows = _engine() if name == "engine" else _ggml(name)
        except AllocsimError as error:
            print(f"{name}: {error}")
            continue
        declared = [(what, measured) for what, promised, measured in rows if promised]
        yield (
            name,
            {
                "kernels": len({what.rpartition("/")[0] for what, *_ in rows}),
                "rows": len(rows),
                "measured": dict(Counter(measured for *_, measured in rows)),
                "declared": len(declared),
                "unsafe_declared": sorted(what for what, measured in declared if measured == "unsafe"),
                "cpu_seconds": round(spent() - before, 1),
            },
        )


def _engine() -> list[tuple[str, bool, str]]:
    from engine.k_audit import LAYOUTS, audit
    from engine.kernels import KERNELS

    found = audit(kernels=KERNELS, layouts=tuple(LAYOUTS))
    return [(f"{row.kind}/{row.variant}/{row.operand} {row.layout}", bool(row.declared), row.measured) for row in found]


def _ggml(which: str) -> list[tuple[str, bool, str]]:
    from allocsim.systems.ggml.access.probe import open_library
    from allocsim.systems.ggml.k_audit.library_audit import LAYOUTS, audit

    with open_library(which) as child:
        rows = audit(child, layouts=LAYOUTS).rows
    return [(f"{row['op']}/{row['source']} {row['layout']}", bool(row["declared"]), row["measured"]) for row in rows]


def modes(*, layers: int = 30, steps: int = 20, modes: tuple[str, ...] = MODES) -> Found:
    """Train in every mode."""
    chosen = EngineOptions(layers=layers, steps=steps, modes=modes)
    seconds, result = cpu(lambda: whole_runs.run(scenarios.find("ggml-1501"), chosen))
    rows = {course["mode"]: _course(course) for course in result.differential}
    for name, row in rows.items():
        print(f"{name:16} {row}")
    return {
        "layers": layers,
        "steps": steps,
        "verdict": [list(cause) for cause in sorted(result.verdict.classes)],
        "cpu_seconds": round(seconds, 1),
        "peak_mib": peak_mib(),
        "modes": rows,
    }


def _course(course: dict[str, Any]) -> dict[str, Any]:
    first = course["first"]
    return {
        "nature": course["nature"],
        "first_step": course["first_step"],
        "first_wrong": None if first is None else f"{first['name']} ({first['what']})",
        "loss": [course["loss"][0], course["loss"][-1]],
        "arena_mib": round(course["arena_bytes"] / 2**20, 1),
        "executor": course["executor"],
        "tensors": sum(row["tensors"] for row in course["rows"]),
        "differing": sum(row["differing"] for row in course["rows"]),
    }


def replay(*, layers: int = 30, seq: int = 64, every: int = 500, limit: int | None = None) -> Iterator[Found]:
    """Replay group by group; of the pin cases at most `limit`."""
    from allocsim.r_replay import GROUPS, failed
    from repro.pipeline import prepare
    from repro.r_replay import replay

    experiment = prepare(scenarios.find("ggml-1501"), EngineOptions(layers=layers, seq=seq, steps=2, fixed=True))
    program = experiment.workload.program

    def group(name: str) -> Found:
        seconds, rows = cpu(lambda: list(replay(experiment, groups=(name,), limit=limit, every=every)))
        said = {letter: dict(Counter(row[letter]["status"] for row in rows)) for letter in "SD"}
        return {"cases": len(rows), "fail": sum(map(failed, rows)), **said, "cpu_seconds": round(seconds, 1)}

    size = {"layers": layers, "seq": seq, "every": every, "ops": len(program.ops), "buffers": len(program.buffers)}
    return grown(((name, group(name)) for name in GROUPS), **size, peak_mib=lambda _: peak_mib())


def waste(*, layers: int = 30, seq: int = 64) -> Iterator[Found]:
    """Ask of one program after the other."""
    return grown((name, _wasted(program)) for name, program in _programs(layers, seq))


def _programs(layers: int, seq: int) -> Iterator[tuple[str, Program]]:
    """Yield the training graph of the scenarios, and every graph captured from ggml."""
    from engine.graph.lowering import lower
    from repro import lora_setup

    setup = lora_setup.set_up(scenarios.find("ggml-1501").training, layers=layers, seq=seq)
    yield f"training, {layers} layers", lower(setup.graph, (setup.loss,)).program
    for path in sorted((DATA / "ggml").glob("*.json")):
        yield path.stem, systems.load(path).programs[0]


def _wasted(program: Program) -> Found:
    problem = ALLOCATORS["ggml"].believe(program)
    found = {name: wasted(problem, ALLOCATORS[name]) for name in PLACEMENTS}
    one = next(iter(found.values()))
    return {
        "ops": len(program.ops),
        "buffers": len(program.buffers),
        "too long": len(one.buffers),
        "wasted": one.wasted,
        "live": [one.live_believed, one.live],
        "peak": {name: [each.peak_believed, each.peak] for name, each in found.items()},
        "most wasteful": [[row.name, row.nbytes, list(row.believed), list(row.derived)] for row in one.buffers[:3]],
    }


if __name__ == "__main__":
    run_one_of(audit, modes, replay, waste)
