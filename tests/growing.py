"""Costly files: a file of each kind that is right, grown by repeating and sharing what is legal in it.

A file is a tree: lists, dicts and leaves. A *step* changes one place of it: repeat a stretch of a list, as it is or with fresh names and
numbers where entries have their own; give all entries of a list one value; put what stands at one place at another; another number. In a
pickle what is repeated is one object, in a flatbuffer an entry refers to one table. A *recipe* is the steps in turn, so that it can be
played again with more repetitions. What a file costs is measured in a fork with limits, CPU seconds and bytes of memory beyond what the
process had; `Cost.share` is the larger part of what any file of 10 MB may take.
"""

import contextlib
import io
import json
import os
import pickle
import random
import re
import resource
import signal
import struct
import sys
import time
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from hostile import DATA, GIBIBYTE, KINDS, SECONDS, _copied, _record

from allocsim.errors import AllocsimError

MOST = 10_000_000
"""Bytes of a file for which there is a promise."""

Path_ = tuple[Any, ...]


# --- steps


@dataclass(frozen=True)
class Step:
    """One change of a tree."""

    way: str
    path: Path_
    """Keys from the root to a list, or to a number."""
    low: int = 0
    high: int = 0
    """The stretch of the list that is repeated."""
    times: int = 1
    other: Any = None
    """The column that is made equal, the path that is put there, or the number."""

    def __str__(self) -> str:
        """Say it in a few words."""
        place = ".".join(map(str, self.path)) or "all"
        if self.way in ("repeat", "fresh"):
            return f"{self.way} {place}[{self.low}:{self.high}] x {self.times}"
        return f"{self.way} {place} {self.other}"


Recipe = tuple[Step, ...]


def line_of(kind: str, file: int, recipe: Recipe, **told: Any) -> str:
    """Return a recipe as one line of JSON: the kind, which of its files is grown, the steps in turn, and what else is told of it."""
    steps = [[step.way, step.path, step.low, step.high, step.times, step.other] for step in recipe]
    return json.dumps({"kind": kind, "file": file, **told, "steps": steps})


def recipe_of(line: str) -> tuple[str, int, Recipe, dict[str, Any]]:
    """Return what a line tells: kind, file, recipe, and the rest."""
    told = json.loads(line)
    kind, file, steps = (told.pop(name) for name in ("kind", "file", "steps"))
    return kind, file, tuple(Step(*(tuple(x) if isinstance(x, list) else x for x in step)) for step in steps), told


def played(tree: Any, recipe: Recipe) -> Any:
    """Return a tree with the steps taken; LookupError, TypeError or ValueError where one does not fit."""
    for step in recipe:
        tree = _taken(tree, step.path, partial(WAYS[step.way], step, tree))
    return tree


def _taken(tree: Any, path: Path_, change: Callable[[Any], Any]) -> Any:
    """Return the tree with what stands at a path changed; what lies beside the path is shared."""
    if not path:
        return change(tree)
    made = dict(tree) if isinstance(tree, dict) else list(tree)
    made[path[0]] = _taken(tree[path[0]], path[1:], change)
    return made


def _repeat(step: Step, _: Any, node: Any) -> Any:
    part = node[step.low : step.high]
    return [*node[: step.high], *(part * step.times), *node[step.high :]]


def _fresh(step: Step, _: Any, node: Any) -> Any:
    part = node[step.low : step.high]
    advance = {path: found for path, found in _columns(part if len(part) > 1 else node) if found}
    more = [_renamed(row, (), turn, advance) for turn in range(1, step.times + 1) for row in part]
    return [*node[: step.high], *more, *node[step.high :]]


def _equal(step: Step, _: Any, node: Any) -> Any:
    first = node[0][step.other]
    return [{**row, step.other: first} if isinstance(row, dict) else _set(row, step.other, first) for row in node]


def _set(row: Any, key: Any, value: Any) -> Any:
    made = list(row)
    made[key] = value
    return made


def _put(step: Step, whole: Any, _: Any) -> Any:
    for key in step.other:
        whole = whole[key]
    return whole


WAYS: dict[str, Callable[[Step, Any, Any], Any]] = {
    "repeat": _repeat,
    "fresh": _fresh,
    "equal": _equal,
    "put": _put,
    "number": lambda step, _tree, _node: step.other,
}


def _columns(rows: list[Any]) -> Iterator[tuple[Path_, int]]:
    """Yield the leaves of rows of one shape that differ from row to row, with how far numbers go on from one stretch to the next."""
    for path in dict(_leaves(rows[0])) if rows else ():
        values = [dict(_leaves(row)).get(path) for row in rows[:50]]
        if all(type(value) is int for value in values):
            yield path, max(values) - min(values) + 1 if len({*values}) == len(values) else 0
        elif all(isinstance(value, str) for value in values):
            yield path, int(len({*values}) == len(values))


def _leaves(node: Any, path: Path_ = ()) -> Iterator[tuple[Path_, Any]]:
    entries = node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else None
    if entries is None:
        yield path, node
    else:
        for key, child in entries:
            yield from _leaves(child, (*path, key))


def _renamed(node: Any, path: Path_, turn: int, advance: dict[Path_, int]) -> Any:
    if isinstance(node, dict):
        return {key: _renamed(child, (*path, key), turn, advance) for key, child in node.items()}
    if isinstance(node, list):
        return [_renamed(child, (*path, key), turn, advance) for key, child in enumerate(node)]
    if path not in advance or isinstance(node, bool):
        return node
    if isinstance(node, int):
        return node + turn * advance[path]
    return (
        re.sub(r"\d+(?!.*\d)", lambda found: str(int(found[0]) + turn * 10_000), node)
        if re.search(r"\d", node)
        else f"{node}{turn}"
    )


def drawn(tree: Any, generator: random.Random, most: int) -> Step | None:
    """Return a step that fits a tree and repeats at most so many entries."""
    places = list(_lists(tree, ()))
    if not places:
        return None
    by_shape: dict[Path_, list[tuple[Path_, list[Any]]]] = {}
    for path, node in places:
        by_shape.setdefault(tuple("*" if isinstance(key, int) else key for key in path), []).append((path, node))
    path, node = generator.choice(by_shape[generator.choice(sorted(by_shape, key=str))])
    way = generator.choice(("repeat", "repeat", "repeat", "fresh", "fresh", "equal", "put", "number"))
    if way in ("repeat", "fresh"):
        low = generator.randrange(len(node))
        high = generator.choice((low + 1, len(node), generator.randint(low + 1, len(node))))
        return Step(way, path, low, high, max(1, min(most, 2 ** generator.randint(2, 13)) // (high - low)))
    if way == "equal":
        keys = [path[0] for path, _ in _leaves(node[0]) if len(path) == 1] if isinstance(node[0], dict | list) else []
        return Step(way, path, other=generator.choice(keys)) if keys else None
    if way == "put":
        like = [
            other for other, _ in by_shape[tuple("*" if isinstance(key, int) else key for key in path)] if other != path
        ]
        return Step(way, path, other=generator.choice(like)) if like else None
    numbers = [(*path, *leaf) for leaf, value in _leaves(node[:8]) if type(value) is int]
    return (
        Step(way, generator.choice(numbers), other=2 ** generator.choice((0, 4, 8, 12, 16, 20, 31, 40)))
        if numbers
        else None
    )


def _lists(node: Any, path: Path_) -> Iterator[tuple[Path_, list[Any]]]:
    if isinstance(node, dict):
        for key, child in node.items():
            yield from _lists(child, (*path, key))
    elif isinstance(node, list):
        if node:
            yield path, node
        for key, child in enumerate(node[:40]):
            yield from _lists(child, (*path, key))


# --- files as trees


@dataclass(frozen=True)
class Codec:
    """How the bytes of a kind are a tree."""

    tree: Callable[[bytes], Any]
    data: Callable[[Any], bytes]


def _text_tree(data: bytes) -> Any:
    """Lines, each cut at its commas."""
    return [line.split(",") for line in data.decode().split("\n")]


def _compact(tree: Any) -> bytes:
    return json.dumps(tree, separators=(",", ":")).encode()


def _sealed(rows: Any) -> bytes:
    from allocsim.files.journal import _sealed_line  # noqa: PLC0415 - it is what is attacked

    lines, last = [], ""
    for row in rows:
        line, last = _sealed_line({key: value for key, value in row.items() if key != "digest"}, last)
        lines.append(line)
    return b"".join(lines)


def _wire(data: bytes) -> list[list[Any]] | None:
    """Return a message of protobuf as [field, type, value] in turn, None where it is none."""
    at, rows = 0, []
    while at < len(data):
        key, at = _varint(data, at)
        kind = key & 7
        if key >> 3 == 0 or at > len(data) or kind not in (0, 1, 2, 5):
            return None
        if kind == 0:
            value, at = _varint(data, at)
        else:
            size, at = _varint(data, at) if kind == 2 else (8 if kind == 1 else 4, at)
            value, at = data[at : at + size], at + size
            if kind == 2 and size > 2:
                inner = _wire(value)
                value = value if inner is None else inner
        if at > len(data):
            return None
        rows.append([key >> 3, kind, value])
    return rows


def _varint(data: bytes, at: int) -> tuple[int, int]:
    found = shift = 0
    while at < len(data) and shift < 64:
        found |= (data[at] & 127) << shift
        at, shift = at + 1, shift + 7
        if data[at - 1] < 128:
            return found, at
    return 0, len(data) + 1


def _of_wire(rows: Any) -> bytes:
    made = bytearray()
    for field, kind, value in rows:
        made += _as_varint(field << 3 | kind)
        if kind == 0:
            made += _as_varint(value)
        else:
            inner = _of_wire(value) if isinstance(value, list) else value
            made += (_as_varint(len(inner)) if kind == 2 else b"") + inner
    return bytes(made)


def _as_varint(number: int) -> bytes:
    made = bytearray()
    while number > 127:
        made.append(number & 127 | 128)
        number >>= 7
    return bytes([*made, number])


JSON = Codec(json.loads, _compact)
LINES = Codec(
    lambda data: [json.loads(line) for line in data.splitlines()],
    lambda rows: b"".join(_compact(row) + b"\n" for row in rows),
)
JOURNAL = Codec(LINES.tree, _sealed)
TEXT = Codec(_text_tree, lambda rows: "\n".join(map(",".join, rows)).encode())
PICKLE = Codec(pickle.loads, partial(pickle.dumps, protocol=4))
PROTOBUF = Codec(_wire, _of_wire)


def _safetensors_tree(data: bytes) -> Any:
    (length,) = struct.unpack("<Q", data[:8])
    return [[list(row) for row in json.loads(data[8 : 8 + length]).items()], data[8 + length :]]


def _safetensors_data(tree: Any) -> bytes:
    header = json.dumps(dict(tree[0])).encode()
    return struct.pack("<Q", len(header)) + header + tree[1]


SAFETENSORS = Codec(_safetensors_tree, _safetensors_data)


# --- flatbuffers: vectors grow where they lie


def _flat_tree(read: Callable[[bytes], Any], data: bytes) -> Any:
    """Return a flatbuffer as pieces of bytes and vectors of offsets and numbers, as its reader follows them."""
    links, vectors = _followed(read, data)
    return {"data": data, "links": sorted(links), "vectors": [[at, [*range(count)]] for (at, count) in sorted(vectors)]}


def _followed(read: Callable[[bytes], Any], data: bytes) -> tuple[set[tuple[int, int, bool]], set[tuple[int, int]]]:
    """Return where a reader finds distances (place, target, whether it is to a vtable) and vectors of tables (place, entries)."""
    from allocsim.formats import flatbuffer  # noqa: PLC0415 - it is what is watched

    links: set[tuple[int, int, bool]] = {(0, struct.unpack_from("<I", data)[0], False)}
    vectors: set[tuple[int, int, int]] = set()
    real = {name: getattr(flatbuffer.Table, name) for name in ("_field", "_follow", "_vector")}

    def field(self: Any, slot: int, name: str) -> Any:
        links.add((self.at, self.at - struct.unpack_from("<i", data, self.at)[0], True))
        return real["_field"](self, slot, name)

    def follow(self: Any, at: int, place: str) -> Any:
        found = real["_follow"](self, at, place)
        links.add((at, found.at, False))
        return found

    def vector(self: Any, slot: int, name: str, width: int) -> Any:
        found = real["_vector"](self, slot, name, width)
        at = real["_field"](self, slot, name)
        if at is not None:
            links.add((at, found[0] - 4, False))
            vectors.add((found[0] - 4, found[1], width))
        return found

    for name, watched in (("_field", field), ("_follow", follow), ("_vector", vector)):
        setattr(flatbuffer.Table, name, watched)
    try:
        read(data)
    finally:
        for name, method in real.items():
            setattr(flatbuffer.Table, name, method)
    return links, {(at, count) for at, count, width in vectors if width == 4 and count}


def _flat_data(tree: Any) -> bytes:
    """Return the file with its vectors at their new lengths; an entry that is repeated refers to, or is, what the first one was."""
    data, links = tree["data"], tree["links"]
    made, moved, last = bytearray(), [], 0
    grown = [(at, entries, struct.unpack_from("<I", data, at)[0]) for at, entries in tree["vectors"]]
    pieces: list[tuple[int, int]] = []
    for at, entries, count in grown:
        made += data[last:at]
        pieces.append((at, len(made)))
        made += struct.pack("<I", len(entries))
        for entry in entries:
            moved.append((at + 4 + 4 * entry, len(made)))
            made += data[at + 4 + 4 * entry : at + 8 + 4 * entry]
        pad = -(len(entries) - count) * 4 % 16
        made += bytes(pad)
        last = at + 4 + 4 * count
        pieces.append((last, len(made)))
    made += data[last:]

    olds = [old for old, _ in pieces]

    def place(old: int) -> int:
        piece = bisect_right(olds, old) - 1
        return old if piece < 0 else pieces[piece][1] + old - pieces[piece][0]

    entries_at: dict[int, list[int]] = {}
    for old, new in moved:
        entries_at.setdefault(old, []).append(new)
    for at, target, backward in links:
        for new in entries_at.get(at, [place(at)]):
            distance = new - place(target) if backward else place(target) - new
            struct.pack_into("<i", made, new, distance)
    return bytes(made)


def _pte(data: bytes) -> Any:
    from allocsim.systems.executorch import pte_program  # noqa: PLC0415 - heavy

    return pte_program.loads(data, "f")


def _tflite(data: bytes) -> Any:
    from allocsim.systems.litert import tflite  # noqa: PLC0415 - heavy

    return tflite.loads(data, "f")


# --- kinds


@dataclass(frozen=True)
class GrownKind:
    """A kind of file that is grown."""

    codec: Codec
    make: tuple[Callable[[Path], Path], ...]
    """Each writes a file that is right into a folder; returns what is grown."""
    run: Callable[[Path], Any]
    """Does with the path what a command does."""


def command(*words: str, of: Callable[[Path], Path] = lambda path: path) -> Callable[[Path], None]:
    """Return what runs a command of a path; AllocsimError where the exit status is 2."""

    def run(path: Path) -> None:
        from allocsim.cli import main  # noqa: PLC0415 - heavy

        if main([word.replace("FILE", str(of(path))) for word in words]) == 2:
            raise AllocsimError("refused")

    return run


CHECK = command("check", "FILE")


def _files(*names: str) -> tuple[Callable[[Path], Path], ...]:
    return tuple(partial(_copied, name) for name in names)


def _as_said(
    name: str, codec: Codec, run: Callable[[Path], Any] | None = None, *more: Callable[[Path], Path]
) -> GrownKind:
    kind = KINDS[name]
    return GrownKind(codec, (kind.make, *more), run or kind.read)


def _claims(folder: Path) -> Path:
    from allocsim.cli import main  # noqa: PLC0415 - heavy

    main(["check", str(DATA / "cases/kv-pages.json"), "--certificate", str(folder / "c.txt")])
    return folder / "c.txt"


FOLDER = partial(command, of=lambda path: path.parent)

GROWN: dict[str, GrownKind] = {
    "document 1": GrownKind(
        JSON, _files("cases/loop-swap.json", "cases/missed-reader.json", "cases/nibbles.json"), CHECK
    ),
    "document 2": GrownKind(
        JSON,
        _files("cases/swap-one-by-one.json", "cases/screen-miss.json", "cases/format-md-parallel-carry.json"),
        CHECK,
    ),
    "session": GrownKind(JSON, _files("cases/kv-pages.json", "cases/kv-page-reused.json"), CHECK),
    "ggml dump": _as_said("ggml dump", JSON, CHECK),
    "instance (csv)": _as_said("instance (csv)", TEXT, CHECK),
    "ExecuTorch .pte": GrownKind(
        Codec(partial(_flat_tree, _pte), _flat_data),
        _files(*(f"plans/executorch/{n}.pte" for n in ("cond", "map", "cache"))),
        CHECK,
    ),
    ".tflite": GrownKind(
        Codec(partial(_flat_tree, _tflite), _flat_data),
        _files("plans/tflite/while_offline.tflite", "plans/tflite/rand7_offline.tflite"),
        CHECK,
    ),
    "tflite pointers": _as_said("tflite pointers", JSON, CHECK, *_files("plans/tflite/rand7_plan.json")),
    "Inductor wrapper": _as_said("Inductor wrapper", TEXT, CHECK, *_files("plans/inductor/pooled.txt")),
    "Inductor wrapper in C++": _as_said(
        "Inductor wrapper in C++", TEXT, CHECK, *_files("plans/inductor/wrapper_cpp.txt")
    ),
    "torch snapshot": GrownKind(
        PICKLE, _files("plans/torch/snapshot.pickle", "plans/torch/snapshot_kept.pickle"), CHECK
    ),
    "torch recording": _as_said("torch snapshot", JSON, CHECK),
    "tinygrad schedule": _as_said("tinygrad schedule", JSON, CHECK),
    "TVM module": _as_said("TVM module", TEXT, CHECK),
    "IREE stream": _as_said("IREE stream", TEXT, CHECK, *_files("plans/iree/returned.txt")),
    "XLA assignment": _as_said("XLA assignment", TEXT, FOLDER("check", "FILE")),
    "XLA module": _as_said("XLA module", TEXT, FOLDER("check", "FILE")),
    "XLA live ranges": _as_said("XLA live ranges", TEXT, FOLDER("check", "FILE")),
    "XLA proto": _as_said("XLA proto", PROTOBUF, CHECK),
    "allocator events": _as_said("allocator events", LINES, command("trace", "FILE", "-o", "FILE.made")),
    "certificate": GrownKind(
        TEXT, (_claims,), command("certify", str(DATA / "cases/kv-pages.json"), "--certificate", "FILE")
    ),
    "training TOML": _as_said("training TOML", TEXT),
    "safetensors": _as_said("safetensors", SAFETENSORS),
    "config.json": _as_said("config.json", JSON),
    "corpus journal": _as_said("corpus journal", JOURNAL),
    "replay journal": _as_said("replay journal", JOURNAL),
    "evidence": _as_said("evidence", JSON, FOLDER("verdict", "FILE")),
    "baseline": _as_said("baseline", JSON),
    "table of kinds": _as_said(
        "table of kinds", JSON, command("check", str(DATA / "cases/kv-pages.json"), "--kinds", "FILE")
    ),
    "report.json": GrownKind(JSON, (_record,), KINDS["report.json"].read),
}
"""Every kind of file whose parts can be repeated."""


# --- what one costs


@dataclass(frozen=True)
class Cost:
    """What became of a file."""

    answer: str
    """read, refused, stopped at its limit of CPU seconds, or bad: a traceback, another signal."""
    nbytes: int
    seconds: float
    memory: int

    @property
    def share(self) -> float:
        """Return the larger part of 10 CPU seconds and of a gibibyte."""
        return max(self.seconds / SECONDS, self.memory / GIBIBYTE)

    @property
    def worth(self) -> float:
        """Return the share for each byte, of which 4,096 are free."""
        return self.share / max(self.nbytes, 4096)


def cost(run: Callable[[Path], Any], path: Path, most: int = 2 * SECONDS) -> Cost:
    """Run in a fork that may take so many CPU seconds and 3 GiB; its memory counts from what it begins with."""
    sys.stdout.flush()
    child = os.fork()
    if child == 0:
        status = 3
        try:
            begun = _resident()
            resource.setrlimit(resource.RLIMIT_CPU, (most, most))
            resource.setrlimit(resource.RLIMIT_AS, (_mapped() + 3 * GIBIBYTE,) * 2)
            with Path(os.devnull).open("w") as nothing:
                os.dup2(nothing.fileno(), 1)
                os.dup2(nothing.fileno(), 2)
            Path("/proc/self/clear_refs").write_text("5")
            try:
                run(path)
                status = 0
            except AllocsimError:
                status = 1
            grown = max(0, _peak() - begun) >> 20
            Path(f"{path}.cost").write_text(str(grown))
        finally:
            os._exit(status)
    _, status, used = os.wait4(child, 0)
    told = Path(f"{path}.cost")
    grown = int(told.read_text()) << 20 if told.exists() else 0
    told.unlink(missing_ok=True)
    ended = os.waitstatus_to_exitcode(status)
    answer = {0: "read", 1: "refused", -signal.SIGXCPU: "stopped", -signal.SIGKILL: "stopped"}.get(ended, "bad")
    return Cost(answer, path.stat().st_size, used.ru_utime + used.ru_stime, grown)


def _resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


def _mapped() -> int:
    return int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()


def _peak() -> int:
    return next(
        int(line.split()[1]) << 10
        for line in Path("/proc/self/status").read_text().splitlines()
        if line.startswith("VmHWM")
    )


# --- the search

Measured = Callable[[Callable[[Path], Any], Path, int], Cost]
"""What measures: `cost`, or a part of it that is the same on any machine."""


@dataclass(frozen=True)
class Found:
    """A file and what it costs."""

    seed: int
    """Which of the kind's files is grown."""
    recipe: Recipe
    cost: Cost


@dataclass(frozen=True)
class _Bench:
    """What a file is made of, who reads it, and what measures that."""

    kind: GrownKind
    seeds: list[Any]
    measured: Measured


def search(
    kind: GrownKind,
    folder: Path,
    seconds: float,
    generator: random.Random,
    *,
    small: int = 40_000,
    large: int = MOST,
    turns: int = 1_000_000,
    measured: Measured = cost,
    kept: Sequence[tuple[int, Recipe]] = (),
) -> tuple[list[Found], list[Found]]:
    """Return the files tried, worst first, as many as so many CPU seconds allow, and what those that were `kept` cost now.

    The kept ones, each as which file and recipe, are measured first, in time of their own, and grow with the others.
    Half of the time, or for so many turns, small files are changed step by step, those that cost most for each byte most often; then the
    worst of them grow, each time by the repetition that adds most to what a byte costs.
    """
    seeds = [_seed(kind, make, folder / str(number)) for number, make in enumerate(kind.make)]
    with contextlib.redirect_stdout(io.StringIO()):
        for number, make in enumerate(kind.make):  # what is imported is imported now; a claim on a folder is its own
            kind.run(_seed(kind, make, folder / f"first {number}")[0])
    bench = _Bench(kind, seeds, measured)
    again = [one for file, recipe in kept if (one := _tried(bench, file, recipe, large)) is not None]
    begun = time.process_time()
    first = [Found(number, (), measured(kind.run, path, 2 * SECONDS)) for number, (path, _, _) in enumerate(seeds)]
    pool = sorted([*first, *again], key=lambda one: -one.cost.worth)
    tried = list(first)

    def used() -> float:
        return time.process_time() - begun + sum(found.cost.seconds for found in tried)

    for turn in range(turns):
        if used() > seconds / 2:
            break
        parent = generator.choice(pool[:8] if turn % 3 else pool)
        found = _child(bench, parent, generator, small)
        if found is not None:
            tried.append(found)
            pool.append(found)
            pool.sort(key=lambda one: -one.cost.worth)
            del pool[40:]
    for begin in [found for found in pool if found.recipe][:6]:
        found = begin
        while (
            used() < seconds and found.cost.share < 1 and found.cost.answer != "bad" and found.cost.nbytes < large / 2
        ):
            larger = [_tried(bench, found.seed, recipe, large) for recipe in _longer(found.recipe)]
            larger = [one for one in larger if one is not None and one.cost.nbytes > found.cost.nbytes]
            if not larger:
                break
            tried += larger
            found = max(larger, key=lambda one: one.cost.worth)
    return sorted([*again, *tried], key=lambda one: -one.cost.share), again


def _seed(kind: GrownKind, make: Callable[[Path], Path], folder: Path) -> tuple[Path, bytes, Any]:
    folder.mkdir(parents=True)
    path = make(folder)
    data = path.read_bytes()
    return path, data, kind.codec.tree(data)


def _child(bench: _Bench, parent: Found, generator: random.Random, small: int) -> Found | None:
    try:
        step = drawn(played(bench.seeds[parent.seed][2], parent.recipe), generator, 4000)
    except (LookupError, TypeError, ValueError):
        return None
    if step is None or len(parent.recipe) > 5:
        return None
    return _tried(bench, parent.seed, (*parent.recipe, step), small, limit=SECONDS // 2)


def _longer(recipe: Recipe) -> list[Recipe]:
    """Return the recipe once for each of its repetitions, with that one five times as long.

    What costs may be the product of two: the one that was drawn last need not be the one that tells.
    """
    return [
        tuple(replace(step, times=5 * step.times) if number == last else step for number, step in enumerate(recipe))
        for last, grown in enumerate(recipe)
        if grown.way in ("repeat", "fresh")
    ]


def _tried(bench: _Bench, seed: int, recipe: Recipe, most: int, *, limit: int = 2 * SECONDS) -> Found | None:
    path, data, tree = bench.seeds[seed]
    try:
        made = bench.kind.codec.data(played(tree, recipe))
    except (LookupError, TypeError, ValueError, AttributeError, struct.error, OverflowError):
        return None
    if len(made) > most:
        return None
    path.write_bytes(made)
    try:
        return Found(seed, recipe, bench.measured(bench.kind.run, path, limit))
    finally:
        path.write_bytes(data)
