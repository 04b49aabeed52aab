"""`allocsim record ggml -- PROGRAM ARGUMENTS...`: run a program, write down what its host does with
ggml, and judge that.

The program runs as it is, with a recorder before its libraries
(`allocsim.systems.ggml.host_record.host_recorder`); each process of it that calls ggml leaves a
log, an event a line. The logs become documents, a session for what shares compute memory
(`allocsim.systems.ggml.host_record.record_document`), and are judged like any other. `-o` keeps the
log, `--documents` what was judged; `--log LOG` judges a log that is there, also one of a program
that was killed. `--live` judges while the program runs (`allocsim.cli.record_live`), `--stop` ends
it at the first finding. Where the program runs llama.cpp, the cells of its caches are judged too
(`allocsim.systems.ggml.host_record.cache_cells`); `--documents` keeps them as events that
`allocsim trace` reads.

Exit status: 0 if nothing was found, 1 if something was, 2 where no graph was recorded, or the
program could not be run. The program's own exit status is said where it is not 0.

What this module does not see: what is recorded, and how it is judged.
"""

import shlex
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from allocsim.cli.check import outcome_entry, print_remarks
from allocsim.cli.output import print_error, print_json, print_line, show_path
from allocsim.cli.record_live import LiveJudge, judged_live
from allocsim.cli.record_malloc import malloc
from allocsim.cli.trace import record_of_recording, say_recording
from allocsim.document import dumps
from allocsim.errors import AllocsimError, OutputError
from allocsim.files.folders import replace_files
from allocsim.files.preloaded import log_at, logs_of
from allocsim.model import Document
from allocsim.outcomes import outcome_of
from allocsim.outcomes.telling import lines_of
from allocsim.recordings import JudgedRecording, judge
from allocsim.systems import remarks_on
from allocsim.systems.ggml.host_record.cache_cells import CellRecording, cell_recordings
from allocsim.systems.ggml.host_record.host_recorder import foreign_files, object_files, started
from allocsim.systems.ggml.host_record.record_document import documents_of
from allocsim.systems.ggml.host_record.record_log import read_log
from allocsim.systems.ggml.memory_answer import entries_of, memory_answer, sentences_of

app = typer.Typer(add_completion=False, rich_markup_mode=None, no_args_is_help=True)


@app.callback()
def record() -> None:
    """Run a program and judge what its host did."""


app.command()(malloc)


@app.command()
def ggml(
    program: Annotated[
        list[str] | None, typer.Argument(metavar="-- PROGRAM ARGUMENTS...", help="What is run.", show_default=False)
    ] = None,
    *,
    out: Annotated[Path | None, typer.Option("-o", "--out", metavar="LOG", help="Keep the log.")] = None,
    given: Annotated[Path | None, typer.Option("--log", metavar="LOG", help="Judge this log; nothing is run.")] = None,
    folder: Annotated[
        Path | None, typer.Option("--documents", metavar="DIR", help="Write the documents that are judged here.")
    ] = None,
    live: Annotated[bool, typer.Option("--live", help="Judge while it runs; say findings at once.")] = False,
    stop: Annotated[bool, typer.Option("--stop", help="With --live: end it at the first finding.")] = False,
    linked: Annotated[
        Path | None, typer.Option("--object", metavar="DIR", help="Write the recorder to link with a static ggml.")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="With --object: over files that are no recorder.")] = False,
    elements: Annotated[
        int,
        typer.Option("--elements", metavar="BYTES", min=0, help="Log what leafs up to this size hold, for K and D."),
    ] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> int:
    """A program that calls ggml: its uploads, runs and reads, recorded and judged.

    Example: allocsim record ggml -- ./program model.gguf
    """
    if [bool(program), given is not None, linked is not None].count(True) != 1:
        raise typer.BadParameter("give a program behind `--`, a log by --log, or a folder by --object")
    if linked is not None:
        if out or folder or live or stop or as_json:
            raise typer.BadParameter("--object records nothing, and takes no other option")
        if not force and (taken := foreign_files(linked)):
            raise OutputError(f"{show_path(linked / taken[0])}: is there, and is no recorder; --force writes over it")
        replace_files(linked, object_files())
        source, options = (f"{show_path(linked)}/allocsim_record{ending}" for ending in (".c", ".wrap"))
        print_line(f"link the program with {shlex.join([source, f'@{options}'])}")
        return 0
    if (live and given is not None) or (stop and not live) or force:
        raise typer.BadParameter("--live needs a program behind `--`, --stop needs --live, and --force --object")
    with log_at(given or out) as path:
        judging = _recorded(program, path, live=live, stop=stop, elements=elements) if program else None
        logs = [read_log(each) for each in (logs_of(path) if program else [path])]
    documents = judging.documents() if judging else [each for log in logs for each in documents_of(log)]
    cells = [one for log in logs for one in cell_recordings(log)]
    if not documents:
        raise AllocsimError(f"{program[0] if program else given}: no graph was computed by a ggml that could be seen")
    if folder is not None:
        files = {f"session-{number}.json": dumps(each) for number, each in enumerate(documents)}
        files |= {
            f"cells-{number}.jsonl": b"".join(msgspec.json.encode(event) + b"\n" for event in one.events)
            for number, one in enumerate(cells)
        }
        replace_files(folder, files)
    source = show_path(given) if given is not None else show_path((program or [""])[0])
    outcomes = [
        outcome_of(f"{source}, {_title(number, document)}", document, cures=True)
        for number, document in enumerate(documents)
    ]
    judged_cells = [(one, _judged(one)) for one in cells]
    if as_json:
        entries = [
            {
                **outcome_entry(outcome),
                **remarks_on(document, outcome.causes),
                "memory": entries_of(memory_answer(document)),
            }
            for outcome, document in zip(outcomes, documents, strict=True)
        ]
        told = [record_of_recording(f"{source}, cells of {one.name}", judged) for one, (judged, _) in judged_cells]
        print_json({"files": entries, **({"cells": told} if told else {})})
    else:
        for outcome, document in zip(outcomes, documents, strict=True):
            for line in lines_of(outcome):
                print_line(line)
            print_remarks({**remarks_on(document, outcome.causes), "memory": sentences_of(memory_answer(document))})
        for one, (judged, places) in judged_cells:
            say_recording(f"{source}, cells of {one.name}", judged, places)
    return max(
        *(outcome.status for outcome in outcomes), *(int(bool(judged.findings)) for _, (judged, _) in judged_cells), 0
    )


def _judged(cells: CellRecording) -> tuple[JudgedRecording, list[str]]:
    """Return what the judge says of cells, and the place of each finding."""
    judged = judge(cells.events)
    judged.assumed.update(cells.assumed)
    return judged, [cells.place(finding.event) for finding in judged.findings]


def _recorded(program: list[str], log: Path, *, live: bool, stop: bool, elements: int) -> LiveJudge | None:
    """Run a program; return who judged it meanwhile, where that was asked for."""
    with started(program, log, elements=elements) as process:
        judging = judged_live(show_path(program[0]), process, log, stop=stop) if live else None
        status = process.wait()
    _said(program[0], status)
    return judging


def _said(program: str, status: int) -> None:
    if status:
        how = f"was ended by signal {-status}" if status < 0 else f"ended with exit status {status}"
        print_error(f"{show_path(program)} {how}; what it did before is judged")


def _title(number: int, document: Document) -> str:
    said = document.meta["ggml"]["host"]["of"]
    return f"session {number}" if not said else f"session {number} ({said})"
