"""The graphs that a program computes, captured when it computes them: for programs and bindings
that expose no graph (xllamacpp, llama.cpp, whisper.cpp, ggml-opt).

    with watch(adopt()) as seen:
        server.handle_completions(...)             # whatever computes graphs
    document = session(seen)

Contract
--------
* Inside `watch`, calls of the library to `HOOKS` (a scheduler or a backend computes a graph) pass
  through here (`allocsim.systems.ggml.access.call_slots`). When such a call has returned, the graph
  is walked (`allocsim.systems.ggml.capture.graph_rows`) with its addresses of that moment. Inner
  calls that compute its splits are part of it.
* `seen.graphs` has the rows of all different graphs, where addresses count too. `seen.runs` has the
  graph that each call computed. A graph that is computed again unchanged is one graph; a changed
  graph on an old plan is a graph of its own, at the addresses that it really has.
* `session(seen)` is one document: a program and plan for each graph, a run for each call, over one
  memory. Its `meta.ggml.graphs` has the rows of each program. Tensors in memory of their own are
  one buffer in all programs if they have one name and size; if only the sizes differ they are
  several buffers, and the later ones are renamed.
* One watch at a time in a process; a second one is refused.
* A graph that cannot be walked raises EngineError at the end of the block; the program runs on.

O(nodes x sources) a call. What this module does not see: a graph computed by a direct call from
ctypes of a function that calls no other (see `call_slots`), and the origin of the elements.
"""

import ctypes
import random
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from allocsim.errors import EngineError
from allocsim.model import Document, Run
from allocsim.systems.ggml.access.call_slots import redirected
from allocsim.systems.ggml.access.library import Library
from allocsim.systems.ggml.access.llama_model import LlamaModel
from allocsim.systems.ggml.capture.graph_document import GRAPHS, document, mapped
from allocsim.systems.ggml.capture.graph_rows import Rows, walk
from allocsim.systems.ggml.ggml_dump import GRAPH

HOOKS: Final = {
    "ggml_backend_sched_graph_compute_async": True,
    "ggml_backend_sched_graph_compute": True,
    "ggml_backend_graph_compute_async": False,
    "ggml_backend_graph_compute": False,
}
"""Function that computes a graph -> whether its first argument is a scheduler; else a backend."""

MOST_GRAPHS: Final = 256
"""The most different graphs that are kept; a program with more is refused."""

_COMPUTE: Final = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)


@dataclass(slots=True)
class ComputedGraphs:
    """The graphs that were computed, in order."""

    graphs: list[Rows] = field(default_factory=list)
    runs: list[int] = field(default_factory=list)
    """For each call, the index of its graph in `graphs`."""
    hooked: int = 0
    """The number of call slots in the libraries that are redirected here."""
    error: EngineError | None = None
    """The reason why a graph could not be walked; later graphs are not walked."""

    def add(self, rows: Rows) -> None:
        """Note that a graph was computed."""
        place = next((number for number, known in enumerate(self.graphs) if known == rows), len(self.graphs))
        if place == len(self.graphs):
            if place == MOST_GRAPHS:
                raise EngineError(f"more than {MOST_GRAPHS} different graphs were computed; watch fewer at a time")
            self.graphs.append(rows)
        self.runs.append(place)


@contextmanager
def watch(library: Library, *, meta: dict[str, Any] | None = None) -> Iterator[ComputedGraphs]:
    """Yield the graphs that the library computes while the block runs.

    Raises EngineError at the block's end if a graph could not be walked, and at its begin if
    another block of this process is still open.
    """
    if not _ONE_WATCH.acquire(blocking=False):
        raise EngineError("graphs are watched already in this process; end that watch first")
    try:
        yield from _watched(library, meta)
    finally:
        _ONE_WATCH.release()


_ONE_WATCH: Final = threading.Lock()
"""Permits one watch: of two that overlap, the last to end would restore the hooks of the other."""


def _watched(library: Library, meta: dict[str, Any] | None) -> Iterator[ComputedGraphs]:
    seen = ComputedGraphs()
    hooks = {name: _COMPUTE(_hook(library, name, seen, meta)) for name in HOOKS if library.address(name)}
    _KEPT.append(hooks)
    to = {name: ctypes.cast(hook, ctypes.c_void_p).value or 0 for name, hook in hooks.items()}
    with redirected(_parts(library), to) as seen.hooked:
        if not seen.hooked:
            raise EngineError(f"{library.path.name} computes graphs by no call that can be seen from outside")
        yield seen
    if seen.error is not None:
        raise seen.error


_KEPT: Final[list[dict[str, Any]]] = []
"""The hooks of every watch, kept: a thread may still be inside one after its block has ended."""


def _parts(library: Library) -> list[Path]:
    """Return the mapped libraries that may call this library: itself, and those in its folder."""
    beside = [path for path in mapped() if path.parent == library.path.parent]
    return list(dict.fromkeys([library.path, *beside]))


def _hook(library: Library, name: str, seen: ComputedGraphs, meta: dict[str, Any] | None) -> Callable[[int, int], int]:
    compute = _COMPUTE(library.address(name))

    def computed(whose: int, graph: int) -> int:
        depth = getattr(_DEPTH, "calls", 0)
        _DEPTH.calls = depth + 1
        try:
            status = int(compute(whose, graph))
        finally:
            _DEPTH.calls = depth
        if depth == 0 and seen.error is None:
            try:
                seen.add(walk(library, graph, scheduler=whose if HOOKS[name] else 0, meta=meta))
            except EngineError as error:
                seen.error = error
            except BaseException as error:  # noqa: BLE001 - ctypes would print it and return 0 for it
                seen.error = EngineError(f"a computed graph could not be walked: {type(error).__name__}: {error}")
        return status

    return computed


_DEPTH: Final = threading.local()
"""`calls`: how many nested calls of these functions the thread is in."""


def session(seen: ComputedGraphs, source: str = "capture") -> Document:
    """Return the computed graphs as one document; see the module.

    Raises EngineError if no graph was computed, and DocumentError if the graphs do not lie in the
    same compute buffers.
    """
    if not seen.runs:
        raise EngineError("no graph was computed")
    parts = [document(rows, source) for rows in named_apart(seen.graphs)]
    if len(parts) == 1:
        (only,) = parts
        return Document(
            programs=only.programs, problems=only.problems, plans=only.plans, meta=only.meta,
            session=tuple(Run.of(only.plans[0]) for _ in seen.runs),
        )  # fmt: skip
    abouts = [part.meta["ggml"] for part in parts]
    shared = {key: value for key, value in abouts[0].items() if key != GRAPH}
    return Document(
        programs=tuple(part.programs[0] for part in parts),
        problems=tuple(problem for part in parts for problem in part.problems),
        plans=tuple(part.plans[0] for part in parts),
        session=tuple(Run.of(parts[number].plans[0]) for number in seen.runs),
        meta={"ggml": {**shared, GRAPHS: abouts}},
    )


def decoded(library: Library, path: str, *, prompt: int, steps: int, seed: int = 0, threads: int = 1) -> ComputedGraphs:
    """Task: load a model from a GGUF file, decode `prompt` tokens, drawn from the seed, at once and
    then `steps` more, one at a time, each the likeliest after those before; return the graphs that
    this computed. A warm-up by llama.cpp while it loads is not among them.

    Raises EngineError where the library has no llama.cpp, the file is no model that it can run, or
    the tokens do not fit in its context.
    """
    name = Path(path).name
    with LlamaModel(library, Path(path), threads=threads) as model:
        if prompt + steps > model.room:
            raise EngineError(f"{prompt} tokens and {steps} more do not fit in a context of {model.room}")
        drawn = random.Random(f"tokens {seed}")  # noqa: S311 - reproducible, not secret
        tokens = [drawn.randrange(model.vocabulary) for _ in range(prompt)]
        with watch(library, meta={"name": f"{name}, prefill of {prompt}, {steps} steps"}) as seen:
            model.decode(tokens)
            for _ in range(steps):
                model.decode([model.next_token()])
        return seen


def named_apart(graphs: Sequence[Rows]) -> list[Rows]:
    """Return the rows, with a tensor in memory of its own renamed if an earlier graph has one of
    that name and another size.
    """
    sizes: dict[str, int] = {}

    def renamed(number: int, row: dict[str, Any]) -> dict[str, Any]:
        if not row["external"] or sizes.setdefault(row["name"], row["nbytes"]) == row["nbytes"]:
            return row
        return {**row, "name": f"{row['name']} [{number}]"}

    return [{**rows, "leafs": [renamed(number, row) for row in rows["leafs"]]} for number, rows in enumerate(graphs)]
