"""What it costs to record a ggml program, and to judge it while it runs, on training steps of 30 layers.

    python benchmarks/ggml_recording.py [--repeat 3] [--out FILE]

The program is `tests/data/ggml_host/thirty_layers.c` on one thread against the library `before`, with the graph kept or
made anew in each step, small and wide. CPU seconds: of the program alone, of the program with the recorder before it
(`recorded`), and of the program and the judge together (`live`: `allocsim record ggml --live`, from start to end, its
imports and the verdict at the end included; `live less start` without the CPU of a judge that has one step to judge).
Ratios are to the program alone; each figure is the least of `--repeat` runs. `log_bytes` is the size of the log for one step.
"""

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

from harness import DATA, Found, run, spent

from allocsim.systems.ggml.access.library import find
from allocsim.systems.ggml.host_record.host_recorder import LOG, build

SOURCE = DATA / "ggml_host" / "thirty_layers.c"

CASES: Final = {
    "small, kept": ("2000", "32", "16", "kept"),
    "small, anew": ("1000", "32", "16", "anew"),
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
    before = spent()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, env={**os.environ, **environment})
    return spent() - before


def measure(*, repeat: int = 3) -> Iterator[Found]:
    """Measure case by case."""
    result: Found = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        made, recorder = program(folder), build(folder)
        for case, (steps, *form) in CASES.items():
            result[case] = measured(made, recorder, folder / "log.jsonl", int(steps), form, repeat=repeat)
            yield result


def measured(made: str, recorder: Path, log: Path, steps: int, form: list[str], *, repeat: int) -> dict[str, Any]:
    """Return what one case costs."""

    def least(once: Callable[[], float]) -> float:
        return min(once() for _ in range(repeat))

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
    run(measure)
