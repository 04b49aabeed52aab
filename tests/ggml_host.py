"""The programs of C whose host errs, or looks as if it did (`tests/data/ggml_host`), compiled, recorded and judged."""

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from allocsim.document import dumps
from allocsim.model import Document
from allocsim.outcomes import Outcome, outcome_of
from allocsim.systems.ggml.access.library import find
from allocsim.systems.ggml.host_record import host_recorder
from allocsim.systems.ggml.host_record.followed_sessions import FollowedSessions
from allocsim.systems.ggml.host_record.host_recorder import RECORDER, object_files
from allocsim.systems.ggml.host_record.record_document import documents_of
from allocsim.systems.ggml.host_record.record_log import read_log
from tests.ggml_live import live

PROGRAMS = Path(__file__).parent / "data" / "ggml_host"


def compiled(name: str, folder: Path) -> str:
    """Compile a program, linked with the library `before`, into a folder; return its path."""
    libraries = find("before").parent
    linked = [str(next(libraries.glob(f"libggml-{part}-*.so*"))) for part in ("cpu", "base")]
    options = [f"-Wl,--disable-new-dtags,-rpath,{libraries}", "-Wl,--allow-shlib-undefined", "-lm"]
    source, made = str(PROGRAMS / f"{name}.c"), str(folder / name)
    subprocess.run([os.environ.get("CC", "cc"), "-O1", source, *linked, "-o", made, *options], check=True)
    return made


def programs(folder: Path) -> Path:
    """Compile the programs into a folder, and return it."""
    compiler = os.environ.get("CC", "cc")
    if shutil.which(compiler) is None:
        pytest.skip(f"there is no C compiler {compiler!r}")
    live("before")
    for name in ("host_programs", "scheduled_programs", "thirty_layers"):
        compiled(name, folder)
    return folder


def recorded(tmp_path: Path, command: list[str]) -> list[Document]:
    """Run a program under the recorder, and return what its log says."""
    log = tmp_path / "log.jsonl"
    host_recorder.record(command, log)
    return [document for path in host_recorder.logs_of(log) for document in documents_of(read_log(path))]


def judged(documents: list[Document]) -> list[Outcome]:
    """Judge what a log says."""
    return [outcome_of("record", document, cures=True) for document in documents]


def judged_as_it_came(log: Path) -> list[Outcome]:
    """Judge what is new behind each line, and hold the end to what the whole log says."""
    followed, outcomes = FollowedSessions("log"), list[Outcome]()
    for line in log.read_bytes().splitlines(keepends=True):
        followed.feed(line)
        outcomes += [outcome_of("record", document) for _, document in followed.news()]
    followed.end()
    assert [*map(dumps, followed.documents())] == [*map(dumps, documents_of(read_log(log)))]
    return outcomes


def named(outcomes: list[Outcome]) -> set[tuple[str, str]]:
    """Return class and party of each cause."""
    return {(cause.class_, cause.party) for outcome in outcomes for cause in outcome.causes}


FORWARDED = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#define FORWARD(name) __attribute__((used)) void * at_##name; \\
    __asm__(".text\\n.globl " #name "\\n.type " #name ", @function\\n" #name ": jmp *at_" #name "(%rip)\\n");
"""
"""A function for each of a library's, which goes there."""


def linked_program(folder: Path) -> Path:
    """Link the programs, and the recorder's object, with a static stand-in for ggml: a function for each that they call,
    which no loader sees, and which goes to one of a library that was opened by its path.
    """
    programs(folder)
    called = re.findall(r"\b(ggml_\w+)\(", (PROGRAMS / "ggml_api.h").read_text())
    asked = re.findall(r"(?:ASK\([^,]+|HAS\(|REAL\([^,]+)(?:, )?\b(ggml_\w+)", RECORDER.read_text())
    written = re.findall(
        r"^(?:WRITES|ENDS)\((ggml_\w+)\)|(?:COMPUTES|SCHEDULED)\((?:bool, )?(ggml_\w+)",
        RECORDER.read_text(),
        re.MULTILINE,
    )
    names = sorted({*called, *asked, *(name for pair in written for name in pair if name)})
    library = next(find("before").parent.glob("libggml-cpu-*.so*"))
    slots = "".join(f'    at_{name} = dlsym(library, "{name}");\n' for name in names)
    opened = f'    void * library = dlopen("{library}", RTLD_NOW | RTLD_LOCAL);\n    if (!library) {{ abort(); }}\n'
    stand_in = "".join(f"FORWARD({name})\n" for name in names)
    (folder / "stand_in.c").write_text(
        f"{FORWARDED}{stand_in}__attribute__((constructor)) static void open_it(void) {{\n{opened}{slots}}}\n"
    )
    for name, data in object_files().items():
        (folder / name).write_bytes(data)
    compiler, made = os.environ.get("CC", "cc"), folder / "linked_programs"
    for source in (folder / "stand_in.c", PROGRAMS / "host_programs.c"):
        subprocess.run([compiler, "-O1", "-c", str(source), "-o", str(folder / f"{source.stem}.o")], check=True)
    subprocess.run(["ar", "rcs", str(folder / "libggml.a"), str(folder / "stand_in.o")], check=True)
    parts = [str(folder / name) for name in ("host_programs.o", "allocsim_record.c", "libggml.a")]
    options = [f"@{folder / 'allocsim_record.wrap'}", "-Wl,--gc-sections", "-lm", "-ldl", "-lpthread"]
    subprocess.run([compiler, "-O1", *parts, *options, "-o", str(made)], check=True)
    return made
