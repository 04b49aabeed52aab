"""Hostile files: for every kind of input one that is right, and mutants of it that are right behind the reader as well.

A kind knows how to make a file, how to change it, and how the command that reads it goes on with it: to judging, training or drawing. What
is JSON is changed as a tree (entries lost, doubled, exchanged, other numbers and types) and written again, with its digest made right where
it has one, so that what lies behind the first check is reached; what is binary is changed at its numbers, or anywhere.

A mutant is *read*, *refused* in one line of ours, or *bad*: any other exception, more than one line, too long, too much memory, or a file
beside it that was not there before.
"""

import json
import random
import resource
import shutil
import signal
import struct
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from allocsim.errors import AllocsimError

ROOT = Path(__file__).parents[1]
DATA = ROOT / "tests" / "data"
SECONDS = 10
GIBIBYTE = 1 << 30

ODD = (
    0, 1, -1, 2, 7, 255, 1 << 16, (1 << 31) - 1, 1 << 31, 1 << 32, 4_000_000_000, 1 << 53, 1 << 61, (1 << 62) - 1, (1 << 63) - 1, 1 << 63, 1 << 64,
    10**40, -(1 << 63), 0.5, 1e308, -0.0, "", "x", "evil:fn", "../../x", "\0", "é" * 40, "9" * 400, None, True, False, [], {}, [[]], {"": None}, [0, 1],
)  # fmt: skip
"""What takes the place of something."""


@dataclass(frozen=True)
class InputKind:
    """A kind of input."""

    make: Callable[[Path], Path]
    """Writes a file that is right into a folder; returns what is changed."""
    change: Callable[[bytes, random.Random], bytes]
    read: Callable[[Path], Any]
    """Does with the path what a command does."""


# --- changes


def tree(found: Any, generator: random.Random, times: int = 2) -> Any:
    """Return JSON with some of its nodes changed."""
    for _ in range(generator.randint(1, times)):
        places = list(_places(found))
        holder, key = generator.choice(places) if places else (None, None)
        if holder is None:
            return generator.choice(ODD)
        _change_at(holder, key, generator)
    return found


def _places(node: Any) -> Iterator[tuple[Any, Any]]:
    entries = node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ()
    for key, child in list(entries):
        yield node, key
        yield from _places(child)


def _change_at(holder: Any, key: Any, generator: random.Random) -> None:
    value = holder[key]
    way = generator.randrange(7)
    if way == 0:
        del holder[key]
    elif way == 1 and isinstance(holder, list):
        holder.insert(key, json.loads(json.dumps(value)))
    elif way == 2 and isinstance(value, int | float) and abs(value) < 1 << 60:
        holder[key] = value + generator.choice((-1, 1, 8, 1 << 20, -(1 << 20)))
    elif way == 3 and isinstance(holder, dict):
        holder[generator.choice(("x", "meta", "version", *holder))] = value
    elif way == 4 and isinstance(holder, list) and len(holder) > 1:
        other = generator.randrange(len(holder))
        holder[key], holder[other] = holder[other], holder[key]
    elif way == 5 and isinstance(value, list) and value:
        holder[key] = value * generator.choice((2, 3, 50))
    else:
        holder[key] = generator.choice(ODD)


def as_json(content: bytes, generator: random.Random) -> bytes:
    """Change JSON as a tree, now and then as bytes."""
    if generator.random() < 0.15:
        return as_bytes(content, generator)
    return json.dumps(tree(json.loads(content), generator)).encode()


def as_bytes(content: bytes, generator: random.Random) -> bytes:
    """Change bytes: bits, pieces lost and doubled, numbers of 4 and 8 bytes, the end."""
    data = bytearray(content)
    for _ in range(generator.randint(1, 3)):
        at = generator.randrange(len(data) + 1)
        way = generator.randrange(6)
        if way == 0 and at < len(data):
            data[at] ^= 1 << generator.randrange(8)
        elif way == 1:
            del data[at : at + generator.randint(1, 64)]
        elif way == 2:
            data[at:at] = data[at : at + generator.randint(1, 64)]
        elif way == 3:
            number = generator.choice((0, 1, 1 << 31, (1 << 32) - 1, 4_000_000_000))
            data[at // 4 * 4 : at // 4 * 4 + 4] = struct.pack("<I", number)
        elif way == 4:
            data[at // 4 * 4 : at // 4 * 4 + 8] = struct.pack(
                "<Q", generator.choice((1 << 60, 1 << 63, (1 << 64) - 1, 4_000_000_000))
            )
        else:
            del data[at:]
        if not data:
            break
    return bytes(data)


def as_text(content: bytes, generator: random.Random) -> bytes:
    """Change lines and numbers of a text, now and then bytes."""
    if generator.random() < 0.2:
        return as_bytes(content, generator)
    lines = content.decode().splitlines()
    for _ in range(generator.randint(1, 3)):
        at = generator.randrange(len(lines))
        way = generator.randrange(4)
        if way == 0:
            del lines[at]
        elif way == 1:
            lines.insert(at, lines[generator.randrange(len(lines))])
        else:
            words = lines[at].replace("=", " = ").replace(",", " , ").split(" ")
            words[generator.randrange(len(words))] = str(generator.choice(ODD)).replace("None", "")
            lines[at] = " ".join(words)
        if not lines:
            break
    return "\n".join(lines).encode("utf-8", "replace")


def as_safetensors(content: bytes, generator: random.Random, *, digest: bool = False) -> bytes:
    """Change the header of a safetensors file as a tree, its metadata's JSON too, or the file as bytes."""
    if generator.random() < 0.3:
        return as_bytes(content, generator)
    (length,) = struct.unpack("<Q", content[:8])
    header, rest = json.loads(content[8 : 8 + length]), content[8 + length :]
    if digest:
        from engine.training import checkpoint  # noqa: PLC0415 - heavy

        said = tree(json.loads(header["__metadata__"][checkpoint.KEY]), generator)
        text = json.dumps(said)
        tensors = {
            name: np.frombuffer(rest[slice(*row["data_offsets"])], _dtype(row["dtype"])).reshape(row["shape"])
            for name, row in header.items()
            if name != "__metadata__"
        }
        if generator.random() < 0.3:  # another order, or other weights, with a digest that is right
            name = generator.choice(sorted(tensors))
            tensors[name] = np.roll(tensors[name], 1) if generator.random() < 0.5 else np.full_like(tensors[name], 7)
        from safetensors.numpy import save  # noqa: PLC0415 - heavy

        return save(tensors, metadata={checkpoint.KEY: text, checkpoint.DIGEST: checkpoint.digest(tensors, text)})
    encoded = json.dumps(tree(header, generator)).encode()
    return struct.pack("<Q", len(encoded)) + encoded + rest


def _dtype(name: str) -> str:
    return {"F32": "<f4", "F64": "<f8", "I64": "<i8", "I32": "<i4"}[name]


def as_npz(content: bytes, generator: random.Random) -> bytes:
    """Change an archive's bytes, or the header of an array in it, with checksums made right."""
    if generator.random() < 0.4:
        return as_bytes(content, generator)
    import io  # noqa: PLC0415 - as here alone
    import zipfile  # noqa: PLC0415 - as above

    out = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(content)) as archive, zipfile.ZipFile(out, "w") as other:
        for name in archive.namelist():
            data = archive.read(name)
            other.writestr(name, as_npy(data, generator) if generator.random() < 0.6 else data)
    return out.getvalue()


def as_npy(content: bytes, generator: random.Random) -> bytes:
    """Change what a header says of an array, or any byte."""
    if generator.random() < 0.3:
        return as_bytes(content, generator)
    (length,) = struct.unpack("<H", content[8:10])
    header = content[10 : 10 + length].decode("latin-1")
    words = header.replace("(", "( ").replace(",", " ,").split(" ")
    words[generator.randrange(len(words))] = str(
        generator.choice((*ODD, "'<f8'", "'|O'", "(1 << 40)", "__import__('os')"))
    )
    text = " ".join(words).encode("utf-8", "replace")
    return content[:8] + struct.pack("<H", len(text) % (1 << 16)) + text + content[10 + length :]


def as_journal(content: bytes, generator: random.Random) -> bytes:
    """Change lines of a journal as trees, lose or double some, and make the digests right, or not."""
    if generator.random() < 0.3:
        return as_bytes(content, generator)
    from allocsim.files.journal import SEAL, _sealed_line  # noqa: PLC0415 - it is what is attacked

    rows = [json.loads(line) for line in content.splitlines()]
    for row in rows:
        row.pop(SEAL)
    at = generator.randrange(len(rows))
    way = generator.randrange(4)
    if way == 0 and len(rows) > 1:
        del rows[at]
    elif way == 1:
        rows.insert(at, json.loads(json.dumps(rows[at])))
    else:
        changed = tree(rows[at], generator)
        rows[at] = changed if isinstance(changed, dict) else {"x": changed}
    lines, last = [], ""
    for row in rows:
        line, last = _sealed_line(row, last)
        lines.append(line)
    return b"".join(lines)


def as_events(content: bytes, generator: random.Random) -> bytes:
    """Change lines of JSON as one tree, now and then as text."""
    if generator.random() < 0.2:
        return as_text(content, generator)
    rows = tree([json.loads(line) for line in content.splitlines()], generator)
    return b"".join(json.dumps(row).encode() + b"\n" for row in (rows if isinstance(rows, list) else [rows]))


# --- files that are right


def _copied(source: str, folder: Path) -> Path:
    return Path(shutil.copy(DATA / source, folder / Path(source).name))


def _dump(folder: Path) -> Path:
    found = min((DATA / "ggml").rglob("*.json"), key=lambda path: path.stat().st_size)
    return Path(shutil.copy(found, folder / "dump.json"))


def _events(folder: Path) -> Path:
    lines = [
        {"event": "alloc", "block": "a", "address": 4096, "nbytes": 128},
        {"event": "use", "kind": "host.write", "writes": ["a"]},
        {"event": "alloc", "block": "b", "address": 4224, "nbytes": 64, "stream": 1, "meta": {"layer": 0}},
        {"event": "record", "mark": "laid"},
        {"event": "wait", "mark": "laid", "stream": 1},
        {"event": "record_stream", "block": "a", "stream": 1},
        {"event": "use", "kind": "copy", "reads": [{"block": "a", "nbytes": 64}], "writes": ["b"], "stream": 1},
        {"event": "free", "block": "a"},
        {"event": "returned", "block": "a"},
        {"event": "synchronize", "stream": 1},
        {"event": "use", "kind": "host.read", "reads": ["b"], "stream": 1},
        {"event": "free", "block": "b"},
    ]
    (folder / "e.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return folder / "e.jsonl"


XLA_PROTO = "plans/xla/live/module_0006.jit_f.cpu_after_optimizations"


def _xla(folder: Path, dump: str, which: str) -> Path:
    for source in (DATA / "plans" / "xla" / dump).glob("*.txt"):
        shutil.copy(source, folder / source.name)
    return next(folder.glob(f"*{which}.txt"))


def _instance(folder: Path) -> Path:
    path = folder / "i.csv"
    path.write_text("id,lower,upper,size,offset\na,0,4,64,0\nb,1,3,32,64\nc,4,9,64,0\n")
    return path


TOML = """[model]
kind = "mlp"
sizes = [2, 4, 2]
seed = 1
[data]
kind = "moons"
points = 20
noise = 0.1
[training]
epochs = 1
batch = 5
validation = 0.2
planner = "ggml"
[schedule]
kind = "cosine"
alpha = 0.01
warmup = 1
"""


def _toml(folder: Path) -> Path:
    (folder / "t.toml").write_text(TOML)
    return folder / "t.toml"


def _npz(folder: Path) -> Path:
    np.savez(folder / "d.npz", data=np.ones((6, 2), np.float32), labels=np.arange(6, dtype=np.int32))
    return folder / "d.npz"


def _npy(folder: Path) -> Path:
    np.save(folder / "t.npy", np.arange(40, dtype=np.uint16))
    return folder / "t.npy"


def _llama() -> tuple[Any, dict[str, Any]]:
    from engine.models.llama import LlamaConfig, init_parameters  # noqa: PLC0415 - heavy

    config = LlamaConfig(
        layers=1, hidden=32, ffn=32, heads=2, kv_heads=1, vocab=32, seq=4, rope_theta=1e4, eps=1e-5, rank=2, alpha=4.0,
        targets=("q", "v"), full=True,
    )  # fmt: skip
    arrays = {
        name: array
        for name, array in init_parameters(config, seed=3).items()
        if name != "sgd.hp" and ".lora_" not in name
    }
    return config, arrays


def _gguf(folder: Path) -> Path:
    import gguf  # noqa: PLC0415 - an extra

    config, arrays = _llama()
    writer = gguf.GGUFWriter(folder / "m.gguf", "llama")
    writer.add_block_count(config.layers)
    writer.add_embedding_length(config.hidden)
    writer.add_feed_forward_length(config.ffn)
    writer.add_head_count(config.heads)
    writer.add_head_count_kv(config.kv_heads)
    writer.add_layer_norm_rms_eps(config.eps)
    writer.add_rope_freq_base(config.rope_theta)
    writer.add_array("tokenizer.ggml.tokens", ["a", "b", "c"])
    for name, array in arrays.items():
        stored = name.replace("layer.", "blk.")
        writer.add_tensor(stored if stored.endswith(".weight") else f"{stored}.weight", array)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return folder / "m.gguf"


def _gpt2(folder: Path, which: str) -> Path:
    from safetensors.numpy import save  # noqa: PLC0415 - an extra

    c, vocab = 8, 16
    shapes = {
        "wte.weight": (vocab, c), "wpe.weight": (4, c), "ln_f.weight": (c,), "ln_f.bias": (c,),
        "h.0.ln_1.weight": (c,), "h.0.ln_1.bias": (c,), "h.0.ln_2.weight": (c,), "h.0.ln_2.bias": (c,),
        "h.0.attn.c_attn.weight": (c, 3 * c), "h.0.attn.c_attn.bias": (3 * c,),
        "h.0.attn.c_proj.weight": (c, c), "h.0.attn.c_proj.bias": (c,),
        "h.0.mlp.c_fc.weight": (c, 4 * c), "h.0.mlp.c_fc.bias": (4 * c,),
        "h.0.mlp.c_proj.weight": (4 * c, c), "h.0.mlp.c_proj.bias": (c,),
    }  # fmt: skip
    said = {
        "model_type": "gpt2",
        "n_layer": 1,
        "n_head": 2,
        "n_embd": c,
        "n_ctx": 4,
        "vocab_size": vocab,
        "layer_norm_epsilon": 1e-5,
    }
    (folder / "config.json").write_text(json.dumps(said))
    (folder / "model.safetensors").write_bytes(
        save({name: np.ones(shape, np.float32) for name, shape in shapes.items()})
    )
    return folder / which


def _checkpoint(folder: Path) -> Path:
    from engine.training import fit  # noqa: PLC0415 - heavy

    model, data, settings = _course()
    fit(model, data, settings, save=folder / "c.safetensors", stop_after=3)
    return folder / "c.safetensors"


def _course() -> tuple[Any, Any, Any]:
    from engine.models.mlp import mlp  # noqa: PLC0415 - heavy
    from engine.training import Settings  # noqa: PLC0415 - heavy
    from engine.training.data import moons  # noqa: PLC0415 - heavy

    settings = Settings(epochs=2, batch=5, validation=0.2, hyper={"alpha": 0.02}, seed=7)
    return mlp((2, 4, 2), activation="tanh", seed=1), moons(20, seed=3), settings


IDENTITY = {"target": "t", "seed": 1}


def _corpus(folder: Path) -> Path:
    from allocsim.fuzzing.corpus import Corpus  # noqa: PLC0415 - heavy
    from allocsim.fuzzing.tally import Tally  # noqa: PLC0415 - heavy

    corpus = Corpus(folder, IDENTITY)
    for chunk in range(3):
        tally = Tally()
        tally.programs, tally.plans = 4, 9
        tally.judged.update(overlaps=4)
        tally.features.update({5: 2, 9: 1})
        corpus.note(chunk, {**tally.as_json(), "count": 4})
    return folder / "journal.jsonl"


def _replay(folder: Path) -> Path:
    from allocsim.cli.replay import ReplayRow  # noqa: PLC0415 - heavy
    from allocsim.files.journal import Journal  # noqa: PLC0415 - heavy

    journal = Journal(folder / "replay.jsonl", IDENTITY, ReplayRow, what="replay")
    for number in range(3):
        said = {"status": "clean", "count": 0, "class": None, "fault": None, "kind": None, "run": None, "message": None}
        journal.add({
            "case": f"c{number}", "group": "session", "promised": True, "fits": True, "fingerprint": "f", "peak_bytes": 64,
            "S": said, "D": {"status": "equal", "why": None, "first": None},
        })  # fmt: skip
    return folder / "replay.jsonl"


def _evidence(folder: Path) -> Path:
    for name in ("evidence.json", "session.json"):
        shutil.copy(DATA / "cases" / "plan-and-kernel-KD" / name, folder / name)
    return folder / "evidence.json"


def _baseline(folder: Path) -> Path:
    known = {"fingerprint": "ab12", "kind": "Overlap", "class": "C12", "fault": "plan", "cause": None, "message": "m"}
    (folder / "b.json").write_text(json.dumps({"format": "allocsim-baseline", "version": 1, "known": [known]}))
    return folder / "b.json"


def _table(folder: Path) -> Path:
    rows = {
        "add": [{"pair": [0, 0], "says": "safe", "strength": "exact", "source": "x"}],
        "matmul": {"pair": [0, 0], "says": "unsafe"},
    }
    (folder / "k.json").write_text(json.dumps({"kinds": rows}))
    return folder / "k.json"


def _record(folder: Path) -> Path:
    gradient = {"step": 1, "layer": 0, "tensor": "w", "ratio": 1.0, "cosine": 1.0}
    row = {
        "step": 1, "layer": 0, "stage": "forward", "tensors": 2, "differing": 1, "ulp": 3, "relative": 0.1, "tensor": "w", "error": 0.1,
        "reference_error": 0.0, "bound": 0.0, "nature": "corruption",
    }  # fmt: skip
    first = {
        "step": 1, "op": 2, "name": "n", "kind": "k", "layer": 0, "stage": None, "tensor": None, "what": None, "relative": 0.5,
    }  # fmt: skip
    record = {
        "scenario": "s", "matches": True, "expected": {"class": "C01", "fault": "plan"},
        "modes": {"default": {"arena_bytes": 64, "loss": [1.0, None, 0.5], "gradients": [gradient], "first_difference": 1}},
        "differential": [{"mode": "tape", "dtype": "f32", "nature": "corruption", "first_step": 1, "first": first, "rows": [row]}],
    }  # fmt: skip
    (folder / "report.json").write_text(json.dumps(record))
    return folder / "report.json"


# --- what commands do with them


def _judged(document: Any) -> None:
    from allocsim.judge.fast import check  # noqa: PLC0415 - heavy
    from allocsim.verdict import judge  # noqa: PLC0415 - heavy
    from allocsim.verdict.evidence import Evidence  # noqa: PLC0415 - heavy

    check(document)
    if document.runs:
        judge(Evidence(document=document))


def _loaded(path: Path) -> None:
    from allocsim import systems  # noqa: PLC0415 - heavy

    _judged(systems.load(path))


def _traced(path: Path) -> None:
    from allocsim.cli.trace import read  # noqa: PLC0415 - heavy

    _judged(read(str(path)))


def _dumped(path: Path) -> None:
    _loaded(path.parent)


def _configured(path: Path) -> None:
    from engine.training import config  # noqa: PLC0415 - heavy

    said = config.read(path)
    config.schedule(said)
    if said.model.__class__.__name__.lower().startswith("mlp") and max((1, *getattr(said.model, "sizes", ()))) <= 64:
        said.model.made(path.parent)
        said.data.made(path.parent)


def _columns(path: Path) -> None:
    from engine.training.data import arrays  # noqa: PLC0415 - heavy

    arrays(path)


def _tokens(path: Path) -> None:
    from engine.training.data import tokens  # noqa: PLC0415 - heavy

    tokens(path, seq=8)


def _weights(path: Path) -> None:
    from engine.models import weights  # noqa: PLC0415 - heavy

    weights.read(path if path.suffix == ".gguf" else path.parent)


def _resumed(path: Path) -> None:
    from engine.training import fit  # noqa: PLC0415 - heavy

    model, data, settings = _course()
    fit(model, data, settings, save=path, resume=True, stop_after=4)


def _opened(path: Path) -> None:
    from allocsim.fuzzing.corpus import Corpus  # noqa: PLC0415 - heavy
    from allocsim.fuzzing.tally import Tally  # noqa: PLC0415 - heavy

    total = Tally()
    for row in Corpus(path.parent, IDENTITY).done.values():
        total += Tally.of(row)


def _replayed(path: Path) -> None:
    from allocsim.cli.replay import ReplayRow, _print  # noqa: PLC0415 - heavy
    from allocsim.files.journal import Journal  # noqa: PLC0415 - heavy

    rows = Journal(path, IDENTITY, ReplayRow, what="replay").rows
    _print("t", {"planner": None, "fingerprint": "f", "kernels": "none"}, rows)


def _evident(path: Path) -> None:
    from allocsim.verdict import judge  # noqa: PLC0415 - heavy
    from allocsim.verdict.evidence import load  # noqa: PLC0415 - heavy

    judge(load(path.parent))


def _known(path: Path) -> None:
    from allocsim.outcomes import baseline  # noqa: PLC0415 - heavy

    baseline.read(path)


def _tabled(path: Path) -> None:
    from allocsim.cli.check import kinds_table  # noqa: PLC0415 - heavy

    kinds_table(path)


def _reported(path: Path) -> None:
    from reports import run_record  # noqa: PLC0415 - heavy
    from reports.folder import pictures  # noqa: PLC0415 - heavy
    from reports.mode_rows import as_csv, telling_step  # noqa: PLC0415 - heavy
    from reports.page import measured, said  # noqa: PLC0415 - heavy

    record = run_record.read(path)
    said(record)
    measured(record)
    telling_step(record.get("differential") or [])
    as_csv(record.get("differential") or [])
    pictures(record, None)


KINDS: dict[str, InputKind] = {
    "document": InputKind(partial(_copied, "cases/loop-swap.json"), as_json, _loaded),
    "session": InputKind(partial(_copied, "cases/kv-pages.json"), as_json, _loaded),
    "ggml dump": InputKind(_dump, as_json, _loaded),
    "instance (csv)": InputKind(_instance, as_text, _loaded),
    "ExecuTorch .pte": InputKind(partial(_copied, "plans/executorch/cond.pte"), as_bytes, _loaded),
    ".tflite": InputKind(partial(_copied, "plans/tflite/while_offline.tflite"), as_bytes, _loaded),
    "tflite pointers": InputKind(partial(_copied, "plans/tflite/reshape_add.json"), as_json, _loaded),
    "Inductor wrapper": InputKind(partial(_copied, "plans/inductor/forward.txt"), as_text, _loaded),
    "Inductor wrapper in C++": InputKind(partial(_copied, "plans/inductor/pooled_cpp.txt"), as_text, _loaded),
    "torch snapshot": InputKind(partial(_copied, "plans/torch/mm_out.json"), as_json, _loaded),
    "tinygrad schedule": InputKind(partial(_copied, "plans/tinygrad/lora.json"), as_json, _loaded),
    "TVM module": InputKind(partial(_copied, "plans/tvm/layer.txt"), as_text, _loaded),
    "IREE stream": InputKind(partial(_copied, "plans/iree/loop.txt"), as_text, _loaded),
    "XLA assignment": InputKind(partial(_xla, dump="while", which="assignment"), as_text, _dumped),
    "XLA module": InputKind(partial(_xla, dump="while", which="optimizations"), as_text, _dumped),
    "XLA live ranges": InputKind(partial(_xla, dump="live", which="live-range"), as_text, _dumped),
    "XLA proto": InputKind(partial(_copied, f"{XLA_PROTO}.hlo.pb"), as_bytes, _loaded),
    "allocator events": InputKind(_events, as_events, _traced),
    "training TOML": InputKind(_toml, as_text, _configured),
    ".npz": InputKind(_npz, as_npz, _columns),
    ".npy": InputKind(_npy, as_npy, _tokens),
    "safetensors": InputKind(partial(_gpt2, which="model.safetensors"), as_safetensors, _weights),
    "config.json": InputKind(partial(_gpt2, which="config.json"), as_json, _weights),
    "GGUF": InputKind(_gguf, as_bytes, _weights),
    "checkpoint": InputKind(_checkpoint, partial(as_safetensors, digest=True), _resumed),
    "corpus journal": InputKind(_corpus, as_journal, _opened),
    "replay journal": InputKind(_replay, as_journal, _replayed),
    "evidence": InputKind(_evidence, as_json, _evident),
    "baseline": InputKind(_baseline, as_json, _known),
    "table of kinds": InputKind(_table, as_json, _tabled),
    "report.json": InputKind(_record, as_json, _reported),
}
"""Every kind of file that is read."""


# --- one mutant


@dataclass(frozen=True)
class Mutated:
    """What became of a mutant."""

    answer: str
    """read, refused or bad."""
    seconds: float
    """CPU."""
    nbytes: int
    """By which the process's memory grew beyond what it ever was."""
    words: str = ""


class TooLong(Exception):  # noqa: N818 - it is raised by a clock
    """The time is over."""


@contextmanager
def at_most(seconds: float) -> Iterator[None]:
    """Raise TooLong after so many seconds of CPU time."""

    def over(*_: Any) -> None:
        raise TooLong

    before = signal.signal(signal.SIGVTALRM, over)
    signal.setitimer(signal.ITIMER_VIRTUAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)


def answer(kind: InputKind, path: Path) -> Mutated:
    """Read a file as its command does, and say what became of it."""
    there = {entry.name for entry in path.parent.iterdir()}
    grown, begun = _most(), time.process_time()
    said, words = "read", ""
    try:
        with at_most(SECONDS):
            kind.read(path)
    except AllocsimError as error:
        words = str(error)
        said = "bad" if "\n" in words or not words else "refused"
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt):
            raise
        said, words = "bad", f"{type(error).__name__}: {error}"
    found = Mutated(said, time.process_time() - begun, _most() - grown, words)
    more = {entry.name for entry in path.parent.iterdir()} - there - {"findings"}
    if more or found.nbytes > GIBIBYTE:
        return Mutated("bad", found.seconds, found.nbytes, f"left {sorted(more)}, grew by {found.nbytes}")
    return found


def _most() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def mutants(name: str, folder: Path, count: int, seed: int) -> Iterator[tuple[int, bytes, Mutated]]:
    """Yield number, content and answer of mutants of one kind, each with a seed of its own; first the file as it is, number -1."""
    kind = KINDS[name]
    path = kind.make(folder)
    content = path.read_bytes()
    others = {entry: entry.read_bytes() for entry in folder.iterdir() if entry.is_file()}
    yield -1, content, answer(kind, path)
    for number in range(count):
        for place, held in others.items():
            place.write_bytes(held)
        changed = kind.change(content, random.Random(f"{name} {seed} {number}"))
        path.write_bytes(changed)
        yield number, changed, answer(kind, path)
