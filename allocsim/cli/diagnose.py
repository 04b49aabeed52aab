"""`allocsim diagnose X`: the one door for whoever does not know which command: everything that can
be run on X, and one answer.

X is a document, a captured graph, any other supported format, or a folder of evidence; or a model
of one's own, as `package.module:attribute` or a training file (`.toml`). A model is trained three
ways, by default, pinned and by the reference, and asked about by every detector (the service
`diagnose_named`); such a name runs code, so only a person gives it. Of a file S, L and H
judge it; where the engine has a kernel for every op, K, D and P run it with the engine's kernels
(the service `examine_document`), which are not those of whoever made the plan, and the answer says
so. A captured graph of ggml is run by K and D with the kernels of the library it came from (the
service `examine_capture`): an installed one of its version, or the one of `--ggml`. Causes come
with cure and price, the first with its story, and what was not examined with the reason.

Exit status: 0 if nothing was found, 1 if something was, 2 for what cannot be judged: it cannot be
read, has no plan, or lacks a detector that `--require` names.

What this module does not see: how anything is found, and what the evidence means
(`allocsim.outcomes`, `allocsim.verdict`).
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Final

import typer

from allocsim.cli import BAD_INPUT
from allocsim.cli.check import (
    Kinds,
    Required,
    Strict,
    Unbounded,
    kinds_table,
    letters_of,
    outcome_entry,
    print_explained,
    print_remarks,
)
from allocsim.cli.output import print_error, print_json, print_line, show_path
from allocsim.errors import AllocsimError
from allocsim.outcomes import JudgeRules, Outcome, outcome_of, read_evidence
from allocsim.outcomes.examined import NO_PLAN, NOT_RUN
from allocsim.outcomes.telling import lines_of, wrapped
from allocsim.plugins import service
from allocsim.systems import remarks_on
from allocsim.verdict.evidence import Evidence

NAME: Final = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_][\w.]*")
"""A `package.module:attribute`."""


def diagnose(
    target: Annotated[
        Path,
        typer.Argument(
            metavar="X",
            help="A document, a captured graph, a folder of evidence, a model as package.module:attribute (runs its code), or a training file.",
        ),
    ],
    *,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
    explain: Annotated[int, typer.Option(min=0, metavar="N", help="Tell the story of the first N violations.")] = 1,
    require: Required = "",
    strict: Strict = False,
    kinds: Kinds = None,
    unbounded: Unbounded = False,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the data that kernels are run on.")] = 0,
    ggml: Annotated[
        str | None, typer.Option(help="For a captured graph: before, after, or the path of a libggml.")
    ] = None,
    data: Annotated[
        str | None, typer.Option(metavar="NAME", help="Of a model: another batch, as package.module:attribute.")
    ] = None,
    loss: Annotated[str | None, typer.Option(help="Of a model: its loss.", show_default="cross_entropy")] = None,
    optimizer: Annotated[str | None, typer.Option(help="Of a model: its optimizer.", show_default="sgd")] = None,
    steps: Annotated[int | None, typer.Option(min=1, help="Of a model: training steps.", show_default="5")] = None,
    allocator: Annotated[
        str | None,
        typer.Option(
            help="Of a model: the planner under test, a name or package.module:function.", show_default="ggml"
        ),
    ] = None,
    online: Annotated[
        str | None,
        typer.Option(metavar="TARGET", help="Of a model: who gives out memory while steps run, as of `fuzz --online`."),
    ] = None,
    modes: Annotated[
        str | None, typer.Option(metavar="MODE,...", help="Of a model: compare these too, as `repro run` does.")
    ] = None,
    pin_leafs: Annotated[bool, typer.Option("--pin-leafs", help="Of a model: the pinned run pins inputs too.")] = False,
    threads: Annotated[
        int | None, typer.Option(min=1, help="Of a model: threads of the matrix products.", show_default="1")
    ] = None,
    out: Annotated[Path | None, typer.Option(metavar="DIR", help="Of a model: write the report here.")] = None,
) -> int:
    """Exit status: 0 nothing found, 1 found, 2 it cannot be judged.

    Example: allocsim diagnose plan.json
    """
    asked = {
        "data": data, "loss": loss, "optimizer": optimizer, "steps": steps, "allocator": allocator, "online": online,
        "modes": None if modes is None else tuple(filter(None, modes.split(","))),
        "pin_leafs": pin_leafs or None, "threads": threads,
    }  # fmt: skip
    given = {key: value for key, value in asked.items() if value is not None}
    if allocator is not None and online is not None:
        raise typer.BadParameter(
            f"--allocator {allocator} plans before a step, --online {online} answers while it runs"
        )
    if is_model(target):
        for_files = {
            "--explain": explain != 1,
            "--require": require,
            "--strict": strict,
            "--kinds": kinds,
            "--unbounded": unbounded,
            "--seed": seed,
            "--ggml": ggml,
        }
        _refuse(target, "is a model; of files", [option for option, value in for_files.items() if value])
        return service("diagnose_named")(str(target), given, out, as_json=as_json)  # type: ignore[no-any-return]
    options = [*given, *([] if out is None else ["out"])]
    _refuse(target, "is no model; of models", [f"--{key.replace('_', '-')}" for key in options])
    required = letters_of(require)
    rules = JudgeRules(strict=strict, kinds=kinds_table(kinds), unbounded=unbounded)
    evidence, whys, by = _evidence(target, seed, ggml)
    outcome = outcome_of(str(target), evidence, rules=rules, cures=True, whys=whys, executed_by=by, required=required)
    if as_json:
        print_json({"files": [{**outcome_entry(outcome), **remarks_on(evidence.document, outcome.causes)}]})
    elif evidence.document.runs or outcome.causes:
        for line in lines_of(outcome):
            print_line(line)
        print_remarks(remarks_on(evidence.document, outcome.causes))
        print_explained(evidence.document, outcome, explain)
        for text in _next(outcome):
            for line in wrapped(text):
                print_line(line)
    if evidence.document.runs:
        return outcome.status
    print_error(f"{show_path(target)}: {NO_PLAN}")
    return BAD_INPUT


def is_model(target: Path) -> bool:
    """Return whether X names a model: `package.module:attribute` where no file is called that, or
    a training file.
    """
    return target.suffix == ".toml" or (NAME.fullmatch(str(target)) is not None and not target.exists())


def _refuse(target: Path, what: str, options: list[str]) -> None:
    if options:
        raise typer.BadParameter(f"{show_path(target)} {what} alone: {', '.join(options)}")


def _evidence(target: Path, seed: int, library: str | None) -> tuple[Evidence, dict[str, str], str]:
    """Return all evidence there is or that can be had, why some cannot, and whose kernels were
    run.
    """
    found = read_evidence(target)
    document = found.document
    if target.is_dir() or not any(len(program.ops) for program in document.programs) or not document.runs:
        _refuse_library(target, library)
        return found, {}, ""
    try:
        captured = service("examine_capture")(document, seed, library)
    except AllocsimError as error:
        return found, dict.fromkeys("PDK", str(error)), ""
    if captured is not None:
        return captured  # type: ignore[no-any-return]
    _refuse_library(target, library)
    try:
        evidence, whys = service("examine_document")(document, seed)
    except AllocsimError as error:
        return found, dict.fromkeys("PDK", str(error)), ""
    return evidence, whys, f"the engine's kernels on data of seed {seed}"


def _refuse_library(target: Path, library: str | None) -> None:
    if library is not None:
        raise AllocsimError(f"--ggml {library}: {show_path(target)} is no captured graph that could be run")


def _next(outcome: Outcome) -> Iterator[str]:
    """Yield which commands say more."""
    path = show_path(outcome.file)
    if Path(outcome.file).is_dir():
        return
    if outcome.findings:  # a kernel's fault under a legal plan is not reduced
        yield from ("", f"`allocsim bisect {path}` finds the smallest program with the fault")
    elif not outcome.causes and outcome.examined["R"].state == NOT_RUN:
        yield from ("", f"`allocsim replay {path}` tries second runs, left-out inputs and single pins")


__all__ = ["diagnose", "is_model"]
