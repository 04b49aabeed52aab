"""`allocsim diagnose FILE`: what the engine can find out about a document by running it: detectors
K, D and P with its own kernels.

    evidence, whys = examine_document(document, seed)

The kernels are the engine's, not those of whoever made the plan: what they show holds for these. A
program says which bytes are read and written, not what is computed; it can be run if the engine
knows every kind of op in it (`engine.runtime.documents`). Data are drawn from the seed.

* K measures the kernels of every program that runs, at its own shapes and at the audit's.
* D runs each plan beside the same program without reuse, bit for bit, up to the first difference.
  Runs of a session go over the same memory, if all are of one plan.
* P runs the first plan in guarded memory, twice where a session does.

What cannot be run is said: the letter of the detector, and why not.

What this module does not see: what the evidence means (`allocsim.verdict`).
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import Final

import msgspec

from allocsim.errors import AllocsimError, EngineError
from allocsim.files.sizes import in_bytes
from allocsim.model import HOST_WRITE, Document, Program, Run
from allocsim.p_sanitizer import Incident
from allocsim.verdict.evidence import Evidence, KernelRow, Origin
from engine.d_differential.execution import parting
from engine.k_audit import default_cases
from engine.k_audit.program_audit import measured
from engine.kernels import KERNELS
from engine.p_sanitizer import Sanitizer
from engine.runtime.documents import Playable, playable

MOST_BYTES: Final = 1 << 30
"""Bytes of buffers up to which a program is run here."""

SANITIZED_RUNS: Final = 2
"""Runs that P watches; the second names the op where the first left several suspects."""


def examine_document(document: Document, seed: int) -> tuple[Evidence, dict[str, str]]:
    """Return the evidence that running a document brings, and why a detector could not run."""
    whys: dict[str, str] = {}
    ready: dict[int, Playable] = {}
    try:
        for run in document.runs:
            if id(run.program) not in ready:
                ready[id(run.program)] = _ready(run.program, seed)
    except EngineError as error:
        return Evidence(document=document), dict.fromkeys("PDK", str(error))
    rows = tuple(row for given in ready.values() for row in _audited(given))
    audit = tuple(dict.fromkeys(rows))
    origins = incidents = None
    if any(run.program is not run.plan.program for run in document.runs):
        whys |= dict.fromkeys("PD", "a plan is laid beside another program than its own")
    elif document.session is not None and len({id(run.plan) for run in document.runs}) > 1:
        whys |= dict.fromkeys("PD", "runs of several plans share memory")
    else:
        try:
            origins = tuple(_parted(document, seed))
        except AllocsimError as error:
            whys["D"] = str(error)
        try:
            incidents = _sanitized(
                document.runs, ready[id(document.runs[0].program)], joined=document.session is not None
            )
        except AllocsimError as error:
            whys["P"] = str(error)
    evidence = Evidence(document=document)
    return msgspec.structs.replace(evidence, audit=audit, origins=origins, sanitizer=incidents), whys


def _ready(program: Program, seed: int) -> Playable:
    nbytes = sum(program.buffers.nbytes.tolist())
    if nbytes > MOST_BYTES:
        raise EngineError(
            f"program {program.name!r} has {in_bytes(nbytes)} of buffers; up to {in_bytes(MOST_BYTES)} are run here"
        )
    return playable(program, seed=seed)


def _audited(given: Playable) -> Iterator[KernelRow]:
    lowered = given.lowered
    used = {kind: KERNELS[kind] for kind in lowered.variants}
    standing = [replace(case, variant=lowered.variants[case.kind]) for case in default_cases(used)]
    yield from measured(lowered, more=standing)


def _parted(document: Document, seed: int) -> Iterator[Origin]:
    """Yield the first difference of a session, or of each plan's run."""
    if document.session is not None:
        groups = [(0, document.runs)]
    else:
        groups = [(number, (run,)) for number, run in enumerate(document.runs)]
    for first, runs in groups:
        found = parting(runs[0].plan, skips=[run.skip for run in runs], seed=seed)
        if found is not None:
            yield msgspec.structs.replace(found, run=found.run + first)


def _sanitized(runs: tuple[Run, ...], given: Playable, *, joined: bool) -> tuple[Incident, ...]:
    """Run the first plan in guarded memory."""
    program, tensors = given.lowered.program, given.lowered.tensors
    uploads = [op for op in program.ops if op.kind == HOST_WRITE]
    names = {op.step: tensors[op.step].name for op in uploads}
    if any(len(op.results) != 1 for op in uploads) or len(set(names.values())) < len(names):
        raise EngineError("an upload has several results, or a name that is not its own")
    inputs = {names[op.step]: given.uploads[op.step][0] for op in uploads}
    watched = runs[:SANITIZED_RUNS] if joined else runs[:1]
    with Sanitizer(given.lowered, watched[0].plan, parameters=given.parameters) as sanitizer:
        for run in watched:
            sanitizer.run(
                {name: inputs[name] for step, name in names.items() if step not in run.skip},
                skip=[names[s] for s in run.skip],
            )
        sanitizer.finish()
        return sanitizer.incidents
