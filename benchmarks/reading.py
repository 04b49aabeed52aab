"""How long it takes to read and to judge large files of other systems, in processor time of this process.

    BENCH_PEERS=python-with-jax-and-litert python benchmarks/reading.py [--rounds N] [--keep FOLDER] [--out FILE]

| file | made by | aim |
|---|---|---|
| the dump of a training step of 24 layers with LoRA | XLA, through `lora_jax.py` | 2 s |
| a `.tflite` of 1,000 tensors with an offline plan | `litert_models.py` | 1 s |
| a snapshot of PyTorch's caching allocator with 200,000 blocks | this script | 4 s |

A time is the least of the rounds, for `systems.load` and `check` together, after one round that is not counted (imports, compiled code). The first two
are made by the interpreter that BENCH_PEERS names; one that lacks what is needed leaves its row out, with the reason.
"""

import pickle
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from harness import HERE, PEERS, Found, cpu, run, took, why_not

from allocsim import systems
from allocsim.judge.fast import check

BASE: Final = 0x7F0000000000
BLOCK: Final = 512
LIVING: Final = 1000
"""Blocks of the snapshot that live at once."""

FILES: Final[dict[str, tuple[float, list[str], str]]] = {
    "XLA, 24 layers": (2.0, ["lora_jax.py", "24"], "*jit_step*buffer-assignment.txt"),
    "tflite, 1,000 tensors": (1.0, ["litert_models.py", "{}/model.tflite"], "model.tflite"),
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
    runs = [cpu(lambda: (one := systems.load(path), check(one))) for _ in range(rounds + 1)]
    seconds, (document, report) = [spent for spent, _ in runs], runs[-1][1]
    return {
        "ops": sum(len(program.ops) for program in document.programs),
        "buffers": sum(len(program.buffers) for program in document.programs),
        "violations": len(report.violations),
        "first_seconds": round(seconds[0], 3),
        "seconds": round(min(seconds[1:]), 3),
    }


def measure(*, rounds: int = 3, peers: str = PEERS, keep: str = "") -> Iterator[Found]:
    """Make the files that do not lie in `keep`, and measure."""
    rows: list[Found] = []
    with tempfile.TemporaryDirectory() as made:
        folder = Path(keep or made).absolute()
        folder.mkdir(parents=True, exist_ok=True)
        if not (folder / "snapshot.pickle").is_file():
            (folder / "snapshot.pickle").write_bytes(snapshot(200_000))
        for name, (aim, words, pattern) in FILES.items():
            row: Found = {"file": name, "aim": aim}
            if not list(folder.glob(pattern)):
                (script, *others), dumped = words, f"--xla_dump_to={folder} --xla_dump_hlo_as_text"
                made_by = [word.format(folder) for word in others]
                ran = took(peers, HERE / script, *made_by, PYTHONPATH="", XLA_FLAGS=dumped)
                row |= {"left_out": why_not(ran)} if ran["status"] else {}
            paths = sorted(folder.glob(pattern))
            rows.append(row | (measured(paths[0], rounds) if paths else {}))
            beyond = [row["file"] for row in rows if row.get("seconds", 0) > row["aim"]]
            yield {"rows": rows, "beyond their aims": beyond}


if __name__ == "__main__":
    run(measure, failed="beyond their aims")
