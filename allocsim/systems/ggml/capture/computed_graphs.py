"""Capture graphs at the moment when a program computes them.

Captures at that moment are needed for programs and bindings that expose no graph (xllamacpp,
llama.cpp, whisper.cpp, ggml-opt).

    with watch(adopt()) as seen:
        server.handle_completions(...)             # whatever computes graphs
    document = session(seen)

Contract
--------
* Inside a `watch` block, the library's calls of the functions in `HOOKS` are redirected to this
  module (`allocsim.systems.ggml.access.call_slots`). Each function in `HOOKS` computes a graph on a
  scheduler or a backend. After the call, the graph is walked with the addresses that its tensors
  then have (`allocsim.systems.ggml.capture.graph_rows`). Inner calls that compute the splits of the
  graph are not captured separately.
* `seen.graphs` has the rows of all different graphs; two graphs also differ if an address differs.
  `seen.runs` has, for each call, the index of the computed graph. If an unchanged graph is computed
  again, the graph is listed only once. If a changed graph is computed on an old plan, it is listed
  as a new graph with the addresses that its tensors really have.
* `session(seen)` returns one document with a program and a plan for each graph and a run for each
  call. All runs use the same memory. `meta.ggml.graphs` of the document has the rows of each
  program. A tensor outside the compute buffers is one buffer in all programs that have a tensor of
  its name and size. If the sizes differ, these are several buffers, and the later ones are renamed.
* A process can have at most one open watch; a second watch is refused.
* If a graph cannot be walked, EngineError is raised at the end of the block. The program itself
  runs on.

A call costs O(nodes x sources). A graph is not captured if ctypes calls its compute function
directly, unless this function calls one of `HOOKS` through a slot (see `call_slots`). The module
does not record where the elements came from.
"""

import ctypes
import random
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count
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
"""Function that computes a graph -> whether its first argument is a scheduler, not a backend."""

MOST_GRAPHS: Final = 256
"""The most different graphs that one watch keeps; a further graph is an error."""

_COMPUTE: Final = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)


@dataclass(slots=True)
class ComputedGraphs:
    """The graphs that were computed inside a `watch` block."""

    graphs: list[Rows] = field(default_factory=list)
    """The rows of each different graph, in the order of their first computation."""
    runs: list[int] = field(default_factory=list)
    """For each call, the index of its graph in `graphs`."""
    hooked: int = 0
    """The number of call slots that were redirected to this module."""
    error: EngineError | None = None
    """The reason why a graph could not be walked, or None. After an error no graph is walked."""

    def add(self, rows: Rows) -> None:
        """Record that a graph was computed; raise EngineError if there are too many graphs."""
        place = next((number for number, known in enumerate(self.graphs) if known == rows), len(self.graphs))
        if place == len(self.graphs):
            if place == MOST_GRAPHS:
                raise EngineError(f"more than {MOST_GRAPHS} different graphs were computed; watch fewer at a time")
            self.graphs.append(rows)
        self.runs.append(place)


@contextmanager
def watch(library: Library, *, meta: dict[str, Any] | None = None) -> Iterator[ComputedGraphs]:
    """Yield the graphs that the library computes while the block runs. Raises EngineError at the
    end of the block if a graph could not be walked. Raises EngineError at the start of the block if
    another watch of this process is open, or if the library computes graphs through no slot.
    """
    if not _ONE_WATCH.acquire(blocking=False):
        raise EngineError("graphs are watched already in this process; end that watch first")
    try:
        yield from _watched(library, meta)
    finally:
        _ONE_WATCH.release()


_ONE_WATCH: Final = threading.Lock()
"""Permits one open watch: if two overlapped, the last to end would restore the other's hooks."""


def _watched(library: Library, meta: dict[str, Any] | None) -> Iterator[ComputedGraphs]:
    seen = ComputedGraphs()
    hooks = {name: _COMPUTE(_hook(library, name, seen, meta)) for name in HOOKS if library.address(name)}
    _KEPT.append(hooks)
    to = {name: ctypes.cast(hook, ctypes.c_void_p).value or 0 for name, hook in hooks.items()}
    with redirected(_parts(library), to) as seen.hooked:
        if not seen.hooked:
            raise EngineError(
                f"{library.path.name} computes graphs through no call slot, so its graphs cannot be captured"
            )
        yield seen
    if seen.error is not None:
        raise seen.error


_KEPT: Final[list[dict[str, Any]]] = []
"""The hooks of all watches, kept alive: a thread may still run a hook after its block has ended."""


def _parts(library: Library) -> list[Path]:
    """Return the files that may call this library: its own, and those of `mapped` in its folder."""
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
            except BaseException as error:  # noqa: BLE001 - ctypes would print the error and return 0
                seen.error = EngineError(f"a computed graph could not be walked: {type(error).__name__}: {error}")
        return status

    return computed


_DEPTH: Final = threading.local()
"""`calls`: the number of nested calls of `HOOKS` in which the thread is."""


def session(seen: ComputedGraphs, source: str = "capture") -> Document:
    """Return the computed graphs as one document, which the docstring of the module describes.

    Raises EngineError if no graph was computed, and DocumentError if the graphs are not in the same
    compute buffers.
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
    """Load a model from a GGUF file, decode tokens, and return the graphs that were computed.
    `prompt` random tokens, drawn from the seed, are decoded at once. Then `steps` tokens are
    decoded one at a time; each is the most likely token after the tokens before. The graphs of
    llama.cpp's warm-up at loading are not included. This function is a task of a child process.
    Raises EngineError if the library has no llama.cpp, llama.cpp cannot run the file, or the tokens
    do not fit in the context.
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
    """Return the rows with an external leaf renamed if an earlier leaf has its name and another
    size. Leaves of one name and one size get one name. Each further size of a leaf `w` gets the
    first name of `w [1]`, `w [2]`, ... that no leaf has.
    """
    taken = {row["name"] for rows in graphs for row in rows["leafs"]}
    first: dict[str, int] = {}
    names: dict[tuple[str, int], str] = {}

    def renamed(row: dict[str, Any]) -> dict[str, Any]:
        name, nbytes = row["name"], row["nbytes"]
        if not row["external"] or first.setdefault(name, nbytes) == nbytes:
            return row
        if (name, nbytes) not in names:
            names[name, nbytes] = next(new for n in count(1) if (new := f"{name} [{n}]") not in taken)
            taken.add(names[name, nbytes])
        return {**row, "name": names[name, nbytes]}

    return [{**rows, "leafs": [renamed(row) for row in rows["leafs"]]} for rows in graphs]
