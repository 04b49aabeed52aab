"""What it costs to record a ggml program, and to judge it while it runs, on training steps of 30 layers.

    python benchmarks/ggml_recording.py [--repeat 3] [--out FILE]

The program is `tests/data/ggml_host/thirty_layers.c` on one thread against the library `before`, with the graph kept or
made anew in each step, small and wide. CPU seconds: of the program alone, of the program with the recorder before it
(`recorded`), and of the program and the judge together (`live`: `allocsim record ggml --live`, from start to end, its
imports and the verdict at the end included; `live less start` without the CPU of a judge that has one step to judge).
Ratios are to the program alone; each figure is the least of `--repeat` runs. `log_bytes` is the size of the log for one
step. The result is kept in `benchmarks/results/ggml_recording.json`.
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from allocsim.systems.ggml.access.library import find
from allocsim.systems.ggml.host_record.host_recorder import LOG, build

HERE = Path(__file__).parent
SOURCE = HERE.parent / "tests" / "data" / "ggml_host" / "thirty_layers.c"

CASES: Final = {
    "small, kept": ("2000", "32", "16", "kept"),
    "small, anew": ("60", "32", "16", "anew"),
    "wide, kept": ("20", "256", "64", "kept"),
    "wide, anew": ("20", "256", "64", "anew"),
}
"""Steps, width, tokens, and whether the graph is kept."""


def program(folder: Path) -> str:
    """Compile the program and return its path."""
    libraries = find("before").parent
    linked = [str(next(libraries.glob(f"libggml-{part}-*.so*"))) for part in ("cpu", "base")]
    options = [f"-Wl,--disable-new-dtags,-rpath,{libraries}", "-Wl,--allow-shlib-undefined", "-lm"]
    made = str(folder / "thirty_layers")
    subprocess.run([os.environ.get("CC", "cc"), "-O1", str(SOURCE), *linked, "-o", made, *options], check=True)
    return made


def seconds(command: list[str], **environment: str) -> float:
    """Return the CPU seconds of a command and its children."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, env={**os.environ, **environment})
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> int:
    """Measure, print, keep."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--out", type=Path, default=HERE / "results" / "ggml_recording.json")
    asked = parser.parse_args()
    result: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        made, recorder = program(folder), build(folder)
        for case, (steps, *form) in CASES.items():
            result[case] = measured(made, recorder, folder / "log.jsonl", int(steps), form, repeat=asked.repeat)
            sys.stdout.write(f"{case}: {json.dumps(result[case])}\n")
    asked.out.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    return 0


def measured(made: str, recorder: Path, log: Path, steps: int, form: list[str], *, repeat: int) -> dict[str, Any]:
    """Return what one case costs."""

    def least(run: Callable[[], float]) -> float:
        return min(run() for _ in range(repeat))

    def recorded() -> float:
        log.unlink(missing_ok=True)
        return seconds([made, str(steps), *form, "right"], LD_PRELOAD=str(recorder), **{LOG: str(log)})

    def live(count: int) -> float:
        command = [sys.executable, "-m", "allocsim", "record", "ggml", "--live", "--"]
        return seconds([*command, made, str(count), *form, "right"])

    alone = least(lambda: seconds([made, str(steps), *form, "right"]))
    with_recorder = least(recorded)
    nbytes = log.stat().st_size // steps
    whole, start = least(lambda: live(steps)), least(lambda: live(1))
    return {
        "steps": steps,
        "ms_a_step": round(1e3 * alone / steps, 2),
        "recorded": round(with_recorder / alone, 2),
        "live": round(whole / alone, 2),
        "live less start": round((whole - start) / alone, 2),
        "start_seconds": round(start, 2),
        "log_bytes": nbytes,
    }


if __name__ == "__main__":
    sys.exit(main())
