"""The five models of `examples/` under every planner of the shelf, and with each of six planted faults: which verdict, which party, which cure.

    python benchmarks/own_models.py [--steps N] [--planners NAME,...] [--out FILE]

`clean` counts planners under which a sound model was found sound, of those asked; what is `wrong` is named, with what was said. A fault counts as convicted where the
verdict names its class and party, and nothing else; `cured` where a cure was found and run.
"""

import argparse
import json
import sys
from dataclasses import replace
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE.parent), str(HERE.parent / "tests")]  # this checkout, installed or not

from planted_models import EXAMPLES, FAULTS, case, options_of, planted  # noqa: E402 - after the path above

from allocsim.allocators import ALLOCATORS  # noqa: E402
from repro.options import EngineOptions  # noqa: E402
from repro.run import run  # noqa: E402


def main() -> None:
    """Run the campaign and write its figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=2)
    parser.add_argument("--out", type=Path, default=HERE / "results" / "own_models.json")
    parser.add_argument(
        "--planners", default=",".join(ALLOCATORS), help="Names joined by commas; all of the shelf by default."
    )
    asked = parser.parse_args()
    planners = asked.planners.split(",")
    options = EngineOptions(steps=asked.steps)
    wrong, clean, convicted, cured = [], 0, 0, 0
    for name in EXAMPLES:
        for allocator in planners:
            result = run(case(name), replace(options, allocator=allocator))
            clean += result.verdict.sound
            if not result.verdict.sound:
                wrong.append({"model": name, "allocator": allocator, "said": result.verdict.text})
        for fault in FAULTS:
            result = run(planted(name, fault, options), options_of(fault, options))
            convicted += result.matches
            cured += result.evidence.cure is not None
            if not result.matches or result.evidence.cure is None:
                wrong.append({"model": name, "fault": fault, "said": result.verdict.text})
        print(f"{name}: {clean} clean, {convicted} convicted, {cured} cured, {len(wrong)} wrong so far", flush=True)
    found = {
        "models": len(EXAMPLES),
        "planners": planners,
        "steps": asked.steps,
        "clean": [clean, len(EXAMPLES) * len(planners)],
        "faults": list(FAULTS),
        "convicted": [convicted, len(EXAMPLES) * len(FAULTS)],
        "cured": cured,
        "wrong": wrong,
    }
    asked.out.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
