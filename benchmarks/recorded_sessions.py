"""Random programs of C against a real ggml, recorded and judged: right ones must not be accused, and a planted fault
that changes a number must be.

    python benchmarks/recorded_sessions.py --sessions 1000 --faulty 200

`tests/data/ggml_host/random_sessions.c` draws each program from its seed: one or two graphs, planners shared or not,
uploads by call, in halves and by pointer, states carried in static memory and in the plan's, graphs made anew, a
backend scheduler, training steps. Its oracle is the same program with memory of its own for each tensor: where it
prints other numbers than under its plan, something is wrong. Needs `cc` and the library `before`.
"""

import os
import subprocess
import tempfile
import time
from collections import Counter
from pathlib import Path

from harness import DATA, Found, run

from allocsim.outcomes import outcome_of
from allocsim.systems.ggml.access.library import find
from allocsim.systems.ggml.host_record.host_recorder import LOG, build
from allocsim.systems.ggml.host_record.record_document import documents_of
from allocsim.systems.ggml.host_record.record_log import read_log

SOURCE = DATA / "ggml_host" / "random_sessions.c"
FAULTS = {1: "an upload left out", 2: "a read that nobody flagged", 3: "uploads for two graphs before both run"}


def program(folder: Path) -> Path:
    """Compile the program and return its path."""
    libraries = find("before").parent
    linked = [next(libraries.glob(f"libggml-{part}-*.so*")) for part in ("cpu", "base")]
    made = folder / "random_sessions"
    options = [f"-Wl,--disable-new-dtags,-rpath,{libraries}", "-Wl,--allow-shlib-undefined"]
    subprocess.run(
        [os.environ.get("CC", "cc"), "-O1", str(SOURCE), *map(str, linked), "-o", str(made), *options], check=True
    )
    return made


def printed(command: list[str], **environment: str) -> bytes:
    """Return what a program prints, and its exit status where that is not 0: what errs may crash."""
    done = subprocess.run(command, check=False, capture_output=True, env={**os.environ, **environment})
    return done.stdout + (f"{done.returncode}".encode() if done.returncode else b"")


def accused(command: list[str], recorder: Path, folder: Path) -> tuple[list[str], bool, bytes]:
    """Return what is named in a recorded session, whether uploads were assumed, and its numbers."""
    log = folder / "log.jsonl"
    log.unlink(missing_ok=True)
    said = printed(command, LD_PRELOAD=str(recorder), **{LOG: str(log)})
    documents = documents_of(read_log(log))
    assert documents
    causes = [cause for document in documents for cause in outcome_of("record", document).causes]
    trusted = any(document.meta["ggml"]["host"]["assumed"] for document in documents)
    return sorted({f"{cause.class_} {cause.party}" for cause in causes}), trusted, said


def measure(*, sessions: int = 1000, faulty: int = 200, seed: int = 0) -> Found:
    """Run right programs, and so many with each fault."""
    started = time.process_time()
    result: Found = {"right": sessions, "seed": seed, "accused": {}, "faults": {}}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        made, recorder = str(program(folder)), build(folder)
        for each in range(seed, seed + sessions):
            named, _, said = accused([made, str(each), "0", "planned"], recorder, folder)
            assert said == printed([made, str(each), "0", "apart"]), f"seed {each} is no right program"
            if named:
                result["accused"][each] = named
        for fault, words in FAULTS.items():
            counts: Counter[str] = Counter()
            missed: list[int] = []
            assumed: list[int] = []
            idle: list[int] = []
            for each in range(seed, seed + faulty):
                named, trusted, said = accused([made, str(each), str(fault), "planned"], recorder, folder)
                wrong = said != printed([made, str(each), str(fault), "apart"])
                counts.update(named if wrong else ())
                (assumed if trusted else missed).extend([each] if wrong and not named else [])
                idle += [each] if named and not wrong else []
            result["faults"][words] = {
                "named": dict(counts),
                "wrong, not named, said to be assumed": assumed,
                "wrong and not named": missed,
                "named and not wrong": idle,
            }
    return result | {"cpu_seconds": round(time.process_time() - started, 1)}


if __name__ == "__main__":
    run(measure, failed="accused")
