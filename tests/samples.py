"""A clean, a convicted and a damaged sample of every format: files of real systems, changed where a fault is planted.

A planted fault is a change that people can read: what stands in the clean file, and what stands there instead. Most damaged
samples are the beginning of a clean one. `tests/data/plans/README.md` and `tests/data/ggml/README.md` say where files come from.
"""

import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Final

DATA: Final = Path(__file__).parent / "data"


@dataclass(frozen=True, kw_only=True)
class Sample:
    """A file or a folder of a system, as it is, changed, or cut short."""

    path: str
    """Under `tests/data`."""
    member: str = ""
    """The file of a folder that is changed."""
    old: bytes = b""
    """What stands there once."""
    new: bytes = b""
    """What stands there instead."""
    keep: float = 1.0
    """How much of the file is left."""


@dataclass(frozen=True, kw_only=True)
class Samples:
    """What a format must show."""

    clean: Sample
    convicted: Sample
    cause: tuple[str, str]
    """Class and party of every cause in `convicted`."""
    damaged: Sample


def change(path: str, old: bytes, new: bytes) -> Sample:
    """Return a file with a fault planted."""
    return Sample(path=path, old=old, new=new)


def cut(path: str, keep: float = 0.6, member: str = "") -> Sample:
    """Return the beginning of a file."""
    return Sample(path=path, keep=keep, member=member)


def made(sample: Sample, folder: Path) -> Path:
    """Return the path of a sample: where it lies, or in `folder` if it is changed or cut."""
    source = DATA / sample.path
    if not sample.old and sample.keep == 1.0:
        return source
    target = folder / source.name
    (shutil.copytree if source.is_dir() else shutil.copyfile)(source, target)
    changed = target / sample.member if sample.member else target
    data = changed.read_bytes()
    if sample.old:
        assert data.count(sample.old) == 1, f"{sample.path} has {sample.old!r} {data.count(sample.old)} times"
        data = data.replace(sample.old, sample.new)
    changed.write_bytes(data[: int(len(data) * sample.keep)])
    return target


ROW = b'"nb": [4, 256, 2048, 2048], "nbytes": 2048, "off": %d, "external": false, "flags": 16, "view_src": null, "view_offs": 0, "src": ["L0", "L1"]'
NUMBER = b'{"id":42,"size":8,"dtype":"dtypes.uint","device":"NULL","first":42,"last":45,"held":false,"copy_lane":false,"arena":0,"offset":%d'
TENSOR = b'R.memory.alloc_tensor(%s, 0, R.shape([32, 256]), R.dtype("float32"), 0)\n        cls.add(matmul'

SAMPLES: Final = {
    "native": Samples(
        clean=Sample(path="cases/kv-pages.json"),
        convicted=Sample(path="cases/two-slots-overlap.json"),
        cause=("C12", "plan"),
        damaged=cut("cases/kv-pages.json"),
    ),
    "ggml": Samples(
        clean=Sample(path="ggml/fwd_2L_none.json"),
        convicted=change("ggml/fwd_2L_none.json", ROW % 3392, ROW % 512),
        cause=("C12", "plan"),
        damaged=cut("ggml/fwd_2L_none.json"),
    ),
    "executorch": Samples(
        clean=Sample(path="plans/executorch/cond.pte"),
        convicted=Sample(path="plans/executorch/cond_bug.pte"),
        cause=("C15", "plan"),
        damaged=cut("plans/executorch/cond.pte"),
    ),
    "xla": Samples(
        clean=Sample(path="plans/xla/while"),
        convicted=Sample(path="plans/xla/shifted"),
        cause=("C03", "plan"),
        damaged=cut("plans/xla/while", member="module_0004.jit_wh.cpu_after_optimizations-buffer-assignment.txt"),
    ),
    "tflite": Samples(
        clean=Sample(path="plans/tflite/rand7_offline.tflite"),
        convicted=change(
            "plans/tflite/rand7_offline.tflite",
            b"\x00\x00\x00\x00\x00\x03\x00\x00",  # tensor 1 from byte 768 to byte 1280 of the arena
            b"\x00\x00\x00\x00\x00\x05\x00\x00",
        ),
        cause=("C03", "plan"),
        damaged=cut("plans/tflite/rand7_offline.tflite"),
    ),
    "litert": Samples(
        clean=Sample(path="plans/tflite/rand0_plan.json"),
        convicted=Sample(path="plans/tflite/reshape_add.json"),
        cause=("C01", "plan"),
        damaged=cut("plans/tflite/rand0_plan.json"),
    ),
    "inductor": Samples(
        clean=Sample(path="plans/inductor/pooled.txt"),
        convicted=change(
            "plans/inductor/pooled.txt", b"buf4 = alloc_from_pool(pool1, 1152,", b"buf4 = alloc_from_pool(pool1, 64,"
        ),
        cause=("C12", "plan"),
        damaged=cut("plans/inductor/pooled.txt"),
    ),
    "inductor-cpp": Samples(
        clean=Sample(path="plans/inductor/wrapper_cpp.txt"),
        convicted=change(
            "plans/inductor/pooled_cpp.txt", b"alloc_from_pool(pool4, 512L,", b"alloc_from_pool(pool4, 0L,"
        ),
        cause=("C03", "plan"),
        damaged=cut("plans/inductor/wrapper_cpp.txt"),
    ),
    "torch-snapshot": Samples(
        clean=Sample(path="plans/torch/snapshot.pickle"),
        convicted=Sample(path="plans/torch/snapshot_kept.pickle"),
        cause=("C12", "plan"),
        damaged=cut("plans/torch/snapshot.pickle"),
    ),
    "tinygrad": Samples(
        clean=Sample(path="plans/tinygrad/layer.json"),
        convicted=change("plans/tinygrad/layer.json", NUMBER % 0, NUMBER % 256),
        cause=("C01", "plan"),
        damaged=cut("plans/tinygrad/layer.json"),
    ),
    "tvm": Samples(
        clean=Sample(path="plans/tvm/layer.txt"),
        convicted=change("plans/tvm/layer.txt", TENSOR % b"storage1", TENSOR % b"storage2"),
        cause=("C12", "plan"),
        damaged=cut("plans/tvm/layer.txt"),
    ),
    "iree": Samples(
        clean=Sample(path="plans/iree/layers.txt"),
        convicted=Sample(path="plans/iree/returned.txt"),
        cause=("C11", "plan"),
        damaged=cut("plans/iree/layers.txt"),
    ),
    "triton": Samples(
        clean=Sample(path="plans/triton/matmul_sm80.ttgir"),
        convicted=change(
            "plans/triton/matmul_sm80.ttgir",
            b"    ttg.barrier local\n    %87 = ttg.async_copy",
            b"    %87 = ttg.async_copy",
        ),
        cause=("C09", "schedule"),
        damaged=cut("plans/triton/matmul_sm80.ttgir"),
    ),
    "minimalloc": Samples(
        clean=Sample(path="plans/minimalloc/three.csv"),
        convicted=change("plans/minimalloc/three.csv", b"b,2,6,64,64", b"b,2,6,64,32"),
        cause=("C12", "plan"),
        damaged=change("plans/minimalloc/three.csv", b"a,0,4,64,0", b"a,0,four,64,0"),
    ),
}
"""Format -> its samples."""
