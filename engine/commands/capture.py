"""`allocsim capture ggml`: read program and plan out of a running libggml, and say what is wrong.

A graph is built in the library with ggml's own ops, planned by its own allocator, and walked
(`allocsim.systems.ggml`): the transformer of issue 1501 at a size of choice, or the recipe of a
finding that `allocsim fuzz` kept. In a program of your own use
`allocsim.systems.ggml.capture.graph_document.capture(pointer, adopt())` on any planned
`ggml_cgraph`, or `allocsim.systems.ggml.capture.computed_graphs.watch(adopt())` around whatever
computes graphs.

With `--gguf FILE` llama.cpp, which the library must have inside, loads the file, decodes a prompt
of drawn tokens and `--decode` tokens after it; the graphs that it computed, each where it really
lay, are judged as one session.

S, L and R judge the plan; K measures the pairs that it shares and D runs the graph, both on the
library that planned it (`allocsim.systems.ggml.capture_evidence`). What did not run is said with
its reason.

Exit status 0 where nothing was found, 1 where something was, 2 where the library is missing or
refused.

What this module does not see: how a graph is walked (`allocsim.systems.ggml.capture.graph_rows`),
and what evidence means (`allocsim.verdict`).
"""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from allocsim.cli.check import outcome_entry, print_remarks
from allocsim.cli.output import print_json, print_line, show_path
from allocsim.document import write
from allocsim.errors import DocumentError
from allocsim.files import write_atomic
from allocsim.model import Document
from allocsim.outcomes import outcome_of
from allocsim.outcomes.telling import lines_of
from allocsim.plugins import service
from allocsim.systems.ggml.access.child import TIMEOUT, Child
from allocsim.systems.ggml.access.probe import open_library
from allocsim.systems.ggml.capture.computed_graphs import decoded, session
from allocsim.systems.ggml.capture.graph_document import document
from allocsim.systems.ggml.capture_evidence import examine
from allocsim.systems.ggml.dumper import DUMPER
from allocsim.systems.ggml.lora_training.plan_modes import transformer_rows
from allocsim.systems.ggml.lora_training.transformer import TINY
from allocsim.systems.ggml.memory_answer import entries_of, memory_answer, sentences_of
from allocsim.systems.ggml.random_graphs import graph_fuzzing, graph_recipes
from allocsim.systems.ggml.remarks import remarks_on
from allocsim.verdict.evidence import save
from engine.models.gguf_header import check_header

app = typer.Typer(add_completion=False, rich_markup_mode=None, no_args_is_help=True)


class CapturedPart(StrEnum):
    """How much of a training step is captured."""

    FORWARD = "forward"
    TRAIN = "train"
    SGD = "train+sgd"


class FlaggedNodes(StrEnum):
    """What is flagged as OUTPUT before the plan is made."""

    DEFAULT = "default"
    PINNED = "pinned"
    BACKWARD = "backward"
    GRADIENTS = "gradients"


@app.callback()
def capture() -> None:
    """Capture a plan out of a live real system."""


@app.command()
def ggml(
    *,
    library: Annotated[str, typer.Option("--ggml", help="before, after, or the path of a libggml.")] = "after",
    recipe: Annotated[Path | None, typer.Option(help="A finding of the fuzzer, instead of the transformer.")] = None,
    gguf: Annotated[Path | None, typer.Option(help="A model that llama.cpp runs, instead of the transformer.")] = None,
    prompt: Annotated[int, typer.Option(min=1, help="Tokens of the prompt of --gguf.")] = 8,
    decode: Annotated[int, typer.Option(min=0, help="Tokens decoded after it, one at a time.")] = 3,
    timeout: Annotated[float, typer.Option(min=1, help="Seconds that llama.cpp may take with --gguf.")] = TIMEOUT,
    layers: Annotated[int, typer.Option(min=1, max=1000, help="Layers of the transformer.")] = 30,
    graph: Annotated[CapturedPart, typer.Option(help="How much of a training step.")] = CapturedPart.SGD,
    mode: Annotated[FlaggedNodes, typer.Option(help="What is flagged as OUTPUT.")] = FlaggedNodes.DEFAULT,
    out: Annotated[str | None, typer.Option("-o", "--out", help="Write the native document here.")] = None,
    plot: Annotated[str | None, typer.Option(help="Draw the memory map here, PNG, SVG or PDF.")] = None,
    folder: Annotated[
        Path | None, typer.Option("--evidence", metavar="DIR", help="Write document and evidence here.")
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the elements that K and D draw.")] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> int:
    """A planned graph of real ggml as a document: examined, and written or drawn if asked.

    Example: allocsim capture ggml -o plan.json
    """
    if recipe is not None and gguf is not None:
        raise typer.BadParameter("--recipe and --gguf are two graphs; give one")
    with open_library(library) as child:
        if gguf is not None:
            found = _decoded(child, gguf, prompt=prompt, steps=decode, seed=seed, timeout=timeout)
        else:
            found = _planned(child, recipe, layers, graph, mode)
        evidence, whys, by = examine(found, child=child, seed=seed)
    source, name = found.plans[0].source, found.meta["ggml"]["name"]
    outcome = outcome_of(f"{source}, {name}", evidence, cures=True, whys=whys, executed_by=by)
    if out is not None:
        write(found, out)
    if folder is not None:
        save(evidence, folder)
    if plot is not None:
        service("plot")(found, "map", plot, run=0)
    remarks, memory = remarks_on(found), memory_answer(found)
    if as_json:
        entry = {key: value for key, value in outcome_entry(outcome).items() if key != "file"}
        print_json({"source": source, "graph": name, **entry, "hints": [], **remarks, "memory": entries_of(memory)})
    else:
        for line in lines_of(outcome):
            print_line(line)
        print_remarks({**remarks, "memory": sentences_of(memory)})
        for path in (out, folder, plot):
            if path is not None:
                print_line(f"wrote {show_path(path)}")
    return outcome.status


@app.command()
def dumper(
    *, out: Annotated[Path, typer.Option("-o", "--out", help="Where to write it.")] = Path("allocsim_dump.c")
) -> int:
    """The C file with which a C or C++ program dumps its planned graph.

    Example: allocsim capture dumper
    """
    write_atomic(out, DUMPER.read_bytes())
    print_line(
        f"wrote {show_path(out)}: compile it with your program and call allocsim_dump(graph, path); its head says how"
    )
    return 0


def _planned(child: Child, recipe: Path | None, layers: int, graph: CapturedPart, mode: FlaggedNodes) -> Document:
    """Return the document of the transformer, or of a recipe."""
    if recipe is None:
        rows = child.call(transformer_rows, TINY.deep(layers), kind=graph.value, mode=mode.value)
    elif mode in (FlaggedNodes.DEFAULT, FlaggedNodes.PINNED):
        rows = child.call(graph_recipes.plan_rows, graph_fuzzing.load(recipe), mode=mode.value)
    else:
        raise DocumentError(
            str(recipe), "mode", f"{mode.value!r} needs a transformer; a recipe takes default or pinned"
        )
    return document(rows)


def _decoded(child: Child, gguf: Path, *, prompt: int, steps: int, seed: int, timeout: float) -> Document:
    """Return what llama.cpp computed of a model as one session."""
    if not gguf.is_file():
        raise DocumentError(str(gguf), "", "there is no such file")
    check_header(gguf)
    found = child.call(decoded, str(gguf.resolve()), prompt=prompt, steps=steps, seed=seed, timeout=timeout)
    return session(found)
