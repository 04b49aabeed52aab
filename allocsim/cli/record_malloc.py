"""`allocsim record malloc -- PROGRAM ARGUMENTS...`: run a program, write down what it asks of its
malloc and of C++'s operators new and delete, and judge what it got.

Exit status: 0 if nothing was found, 1 if something was, 2 where nothing was recorded, or the
program could not be run. The program's own exit status is said where it is not 0.

What this module does not see: what is recorded, and how it is judged
(`allocsim.recordings.malloc_log`).
"""

from pathlib import Path
from typing import Annotated

import typer

from allocsim.cli.output import print_error, print_json, print_line, show_path
from allocsim.errors import AllocsimError
from allocsim.files.preloaded import log_at, logs_of
from allocsim.files.signals import how_ended
from allocsim.recordings.malloc_log import RECORDS, ROOM, JudgedMalloc, as_entry, cut, judge
from allocsim.recordings.malloc_recorder import started

SHOWN = 20
"""Faults of a process that are printed."""


def malloc(
    program: Annotated[
        list[str] | None, typer.Argument(metavar="-- PROGRAM ARGUMENTS...", help="What is run.", show_default=False)
    ] = None,
    *,
    out: Annotated[Path | None, typer.Option("-o", "--out", metavar="LOG", help="Keep the log.")] = None,
    given: Annotated[Path | None, typer.Option("--log", metavar="LOG", help="Judge this log; nothing is run.")] = None,
    behind: Annotated[
        list[str] | None, typer.Option("--with", metavar="LIBRARY", help="A malloc to run it with.", show_default=False)
    ] = None,
    records: Annotated[
        int, typer.Option("--records", min=1, max=ROOM, help="Records that a log has room for.")
    ] = RECORDS,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> int:
    """A program's malloc: what it gives out and takes back, recorded and judged.

    Example: allocsim record malloc --with libjemalloc.so.2 -- python3 -m json.tool file.json
    """
    if bool(program) == (given is not None):
        raise typer.BadParameter("give a program behind `--`, or a log by --log")
    source = show_path(given) if given is not None else show_path((program or [""])[0])
    with log_at(given or out) as log:
        if program:
            with started(program, log, behind=behind or [], records=records) as process:
                status = process.wait()
            if status:
                print_error(f"{show_path(program[0])}: {how_ended(status)}; what it did before is judged")
        logs = logs_of(log)
        if program:
            logs = [each for each in logs if cut(each)]
        judged = [judge(each) for each in logs]
    if not judged:
        raise AllocsimError(f"{source}: no malloc was called that could be seen")
    found = {Path(one.allocator).name for one in judged}
    if program and behind and not found & {Path(one).name for one in behind}:
        raise AllocsimError(f"{source}: ran with the malloc of {', '.join(sorted(found))}, not of {', '.join(behind)}")
    if as_json:
        print_json({"source": source, "processes": [as_entry(one) for one in judged]})
    else:
        for number, one in enumerate(judged):
            _say(f"{source}, process {number}" if len(judged) > 1 else source, one)
    return int(any(one.faults for one in judged))


def _say(source: str, judged: JudgedMalloc) -> None:
    many = len(judged.faults) + judged.more
    found = f"{many} finding{'s'[: many != 1]}" if many else "nothing found"
    print_line(f"{source}: {found} in {judged.records} records of {judged.allocator}; at most {judged.most} bytes held")
    for number, fault in enumerate(judged.faults[:SHOWN], 1):
        print_line(f"{number}. {fault.class_} {fault.party}: {fault.text}")
        print_line(f"   cure: {fault.cure}")
    if many > SHOWN:
        print_line(f"   and {many - SHOWN} more")
    for text, count in judged.assumed.items():
        print_line(f"assumed: {text} ({count})")
    if judged.unjudged:
        print_line(f"not judged: {judged.unjudged} records more, for which there was no room, or that are not whole")
