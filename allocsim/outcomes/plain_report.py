"""The plain judge's report of a document in memory.

What this module does not see: files, sentences and causes.
"""

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from allocsim.document import dumps
from allocsim.judge import plain
from allocsim.judge.violations import Report
from allocsim.model import Document, Program


def plain_report(document: Document, *, limit: int, kinds: Mapping[str, Any] | None, strict: bool) -> Report:
    """Return the plain judge's report (`allocsim.judge.plain.judge`) of a document.

    `meta` is left out: no judge reads it, and in a document from memory it may be no JSON.
    """
    record = plain.read(json.loads(dumps(_bare(document))))
    return plain.judge(record, limit=limit, kinds=None if kinds is None else dict(kinds), strict=strict)


def _bare(document: Document) -> Document:
    bare = document.with_parts(
        programs=[_bare_program(program) for program in document.programs],
        problems=[replace(problem, meta={}) for problem in document.problems],
        plans=[replace(plan, meta={}, slot_meta={}) for plan in document.plans],
    )
    session = bare.session and tuple(replace(run, meta={}) for run in bare.session)
    return replace(bare, session=session, meta={})


def _bare_program(program: Program) -> Program:
    arenas = tuple(replace(arena, meta={}) for arena in program.arenas)
    tables: dict[str, Any] = {name: replace(getattr(program, name), meta={}) for name in ("buffers", "values", "ops")}
    return replace(program, arenas=arenas, meta={}, **tables)
