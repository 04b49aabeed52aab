"""`allocsim merge MODEL ADAPTER --out DIR`: adapters added into the weights of their model.

DIR gets `config.json` and `model.safetensors`, as transformers writes them: a model without
adapters that computes the same but for rounding. What this module does not see: how they are added
(`engine.models.adapters`).
"""

from pathlib import Path
from typing import Annotated

import typer

from allocsim.cli.output import print_line
from allocsim.errors import OutputError
from allocsim.files.folders import replace_files, working_in
from engine.models import adapters, model_files
from engine.models.model_files import MODEL_FILES
from engine.models.weights import read_llama


def merge(
    model: Annotated[Path, typer.Argument(metavar="MODEL", help="GGUF file, or a folder with config.json.")],
    adapter: Annotated[Path, typer.Argument(metavar="ADAPTER", help="PEFT's folder or a GGUF file.")],
    *,
    out: Annotated[Path, typer.Option(metavar="DIR", help="Folder of the merged model.")],
) -> int:
    """Exit status: 0 merged, 2 bad input.

    Example: allocsim merge out/text out/lora --out out/merged
    """
    for given in (model, adapter):
        if given.resolve() in (out.resolve(), out.resolve() / given.name):
            raise OutputError(f"{out}: holds what is merged; --out takes another folder")
    with working_in(out):  # first of all: what a killed command had begun to put there is put there whole
        if there := next((name for name in MODEL_FILES if (out / name).exists()), None):
            raise OutputError(f"{out}: holds {there} already; --out takes another folder")
        found = read_llama(model)
        read = adapters.read(adapter, found.config)
        config, weights = adapters.merged(read.config, {**found.weights, **read.weights})
        replace_files(out, model_files.files(config, weights))
    targets = ", ".join(read.config.targets)
    print_line(f"{out}: {config.layers} layers, adapters of rank {read.config.rank} on {targets} merged")
    return 0
