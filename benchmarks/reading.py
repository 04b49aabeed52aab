"""How long it takes to read and to judge large files of other systems, in processor time of this process.

    BENCH_PEERS=python-with-jax-and-litert python benchmarks/reading.py [--rounds N] [--keep FOLDER] [--out FILE]

| file | made by | aim |
|---|---|---|
| the dump of a training step of 24 layers with LoRA | XLA, through `lora_jax.py` | 2 s |
| a `.tflite` of 1,000 tensors with an offline plan | `reading_models.py` | 1 s |
| a snapshot of PyTorch's caching allocator with 200,000 blocks | this script | 4 s |

A time is the least of the rounds, for `systems.load` and `check` together, after one round that is not counted (imports, compiled code). The first two
are made by the interpreter that BENCH_PEERS names; one that lacks what is needed leaves its row out, with the reason.
"""

import argparse
import json
import os
import pickle
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Final

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent))  # this checkout, installed or not

from allocsim import systems  # noqa: E402 - after the path above
from allocsim.judge.fast import check  # noqa: E402 - as above

BASE: Final = 0x7F0000000000
BLOCK: Final = 512
LIVING: Final = 1000
"""Blocks of the snapshot that live at once."""

FILES: Final[dict[str, tuple[float, list[str], str]]] = {
    "XLA, 24 layers": (2.0, ["lora_jax.py", "24"], "*jit_step*buffer-assignment.txt"),
    "tflite, 1,000 tensors": (1.0, ["reading_models.py", "{}/model.tflite"], "model.tflite"),
    "snapshot, 200,000 blocks": (4.0, [], "snapshot.pickle"),
}
"""File -> aim in seconds, script of the peers that makes it, pattern of its name."""


def snapshot(blocks: int) -> bytes:
    """Return a snapshot in which each block takes the place of the one given out `LIVING` before."""
    events = [
        {"action": "segment_alloc", "addr": BASE, "size": BLOCK * LIVING, "stream": 0, "time_us": 0, "frames": []}
    ]
    for number in range(blocks):
        row = {"addr": BASE + number % LIVING * BLOCK, "size": BLOCK, "stream": 0, "time_us": number + 1, "frames": []}
        if number >= LIVING:
            events += [row | {"action": "free_requested"}, row | {"action": "free_completed"}]
        events.append(row | {"action": "alloc"})
    return pickle.dumps({"segments": [], "device_traces": [events], "allocator_settings": {}}, protocol=4)


def measured(path: Path, rounds: int) -> dict[str, Any]:
    """Return what a file holds, and the processor time of reading and judging it."""
    seconds = []
    for _ in range(rounds + 1):
        begin = time.process_time()
        document = systems.load(path)
        report = check(document)
        seconds.append(time.process_time() - begin)
    return {
        "ops": sum(len(program.ops) for program in document.programs),
        "buffers": sum(len(program.buffers) for program in document.programs),
        "violations": len(report.violations),
        "first_seconds": round(seconds[0], 3),
        "seconds": round(min(seconds[1:]), 3),
    }


def main() -> int:
    """Make the files, measure, write; 1 where one misses its aim."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--peers", default=os.environ.get("BENCH_PEERS", sys.executable))
    parser.add_argument("--keep", type=Path, help="files that lie here are not made again")
    parser.add_argument("--out", type=Path, default=HERE / "results" / "reading.json")
    options = parser.parse_args()
    rows = []
    with tempfile.TemporaryDirectory() as made:
        folder = options.keep or Path(made)
        folder.mkdir(parents=True, exist_ok=True)
        if not (folder / "snapshot.pickle").is_file():
            (folder / "snapshot.pickle").write_bytes(snapshot(200_000))
        for name, (aim, words, pattern) in FILES.items():
            row: dict[str, Any] = {"file": name, "aim": aim}
            if not list(folder.glob(pattern)):
                command = [options.peers, str(HERE / words[0]), *(word.format(folder) for word in words[1:])]
                variables = {name: text for name, text in os.environ.items() if name != "PYTHONPATH"}
                variables["XLA_FLAGS"] = f"--xla_dump_to={folder} --xla_dump_hlo_as_text"
                ran = subprocess.run(command, check=False, capture_output=True, text=True, env=variables)
                row |= (
                    {"left_out": (ran.stderr.strip().splitlines() or ["no word"])[-1][:200]} if ran.returncode else {}
                )
            paths = sorted(folder.glob(pattern))
            rows.append(row | (measured(paths[0], options.rounds) if paths else {}))
            print(json.dumps(rows[-1]), flush=True)
    options.out.write_text(json.dumps({"rows": rows}, indent=1) + "\n", encoding="utf-8")
    return int(any(row.get("seconds", 0) > row["aim"] for row in rows))


if __name__ == "__main__":
    sys.exit(main())
