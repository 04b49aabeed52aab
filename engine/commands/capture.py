"""`allocsim capture ggml`: read program and plan out of a running libggml, and check them.

A graph is built in the library with ggml's own ops, planned by its own allocator, and walked
(`engine.ggml`): the transformer of issue 1501 at a size of choice, or the recipe of a finding that
`allocsim fuzz` kept. In a program of your own use
`engine.ggml.capture.graph_document.capture(pointer, adopt())` on any planned `ggml_cgraph`.

Exit status 0 where the plan is clean, 1 where it has violations, 2 where the library is missing or
refused.

What this module does not see: how a graph is walked (`engine.ggml.capture.graph_rows`) and judged
(`allocsim.checks`).
"""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from allocsim.cli.check import outcome_entry
from allocsim.cli.output import print_json, print_line, show_path
from allocsim.document import write
from allocsim.errors import DocumentError
from allocsim.model import Document
from allocsim.outcomes import outcome_of
from allocsim.outcomes.telling import lines_of
from allocsim.plugins import service
from engine.ggml import child_tasks
from engine.ggml.access.probe import open_library
from engine.ggml.capture.graph_document import document
from engine.ggml.lora_training.transformer import TINY
from engine.ggml.random_graphs import graph_fuzzing

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
    layers: Annotated[int, typer.Option(min=1, max=1000, help="Layers of the transformer.")] = 30,
    graph: Annotated[CapturedPart, typer.Option(help="How much of a training step.")] = CapturedPart.SGD,
    mode: Annotated[FlaggedNodes, typer.Option(help="What is flagged as OUTPUT.")] = FlaggedNodes.DEFAULT,
    out: Annotated[str | None, typer.Option("-o", "--out", help="Write the native document here.")] = None,
    plot: Annotated[str | None, typer.Option(help="Draw the memory map here, PNG or SVG.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> int:
    """A planned graph of real ggml as a document: checked, and written or drawn if asked."""
    document, name = _captured(library, recipe, layers, graph, mode)
    outcome = outcome_of(f"{document.plans[0].source}, {name}", document, cures=True)
    if out is not None:
        write(document, out)
    if plot is not None:
        service("plot")(document, "map", plot, run=0)
    if as_json:
        entry = {key: value for key, value in outcome_entry(outcome).items() if key != "file"}
        print_json({"source": document.plans[0].source, "graph": name, **entry})
    else:
        for line in lines_of(outcome):
            print_line(line)
        for path in (out, plot):
            if path is not None:
                print_line(f"wrote {show_path(path)}")
    return outcome.status


def _captured(library: str, recipe: Path | None, layers: int, graph: CapturedPart, mode: FlaggedNodes) -> tuple[Document, str]:
    with open_library(library) as child:
        if recipe is None:
            rows = child.call(child_tasks.transformer_rows, TINY.deep(layers), kind=graph.value, mode=mode.value)
        elif mode in (FlaggedNodes.DEFAULT, FlaggedNodes.PINNED):
            rows = child.call(child_tasks.plan_rows, graph_fuzzing.load(recipe), mode=mode.value)
        else:
            raise DocumentError(str(recipe), "mode", f"{mode.value!r} needs a transformer; a recipe takes default or pinned")
    return document(rows), rows["meta"]["name"]
