"""Planners that go wrong in one way each: targets for the fuzzer, never imported by a test itself."""

import ctypes
import os
import signal
import sys
import time
from threading import Event

CALLS = [0]
COMPILED = []


def good(program):
    """Every buffer after the one before it in its arena."""
    offsets, ends = [], [0] * len(program.arenas)
    buffers = program.buffers
    columns = (buffers.nbytes, buffers.alignment, buffers.arena, buffers.persistent)
    for nbytes, alignment, arena, keep in zip(*(column.tolist() for column in columns), strict=True):
        offsets.append(None if keep else -(-ends[arena] // alignment) * alignment)
        ends[arena] = ends[arena] if keep else offsets[-1] + nbytes
    return offsets


def _forever(_):
    """Compute without end; `_waiting` is as late and costs no processor time."""
    while True:
        pass


def _waiting(_):
    Event().wait()


def _greedily(_):
    held = []
    while True:
        held.append(bytearray(1 << 24))


def _raise(_):
    raise KeyError("no such buffer")


def moody(program):
    """Another answer each time."""
    CALLS[0] += 1
    return [None if offset is None else offset + 64 * (CALLS[0] % 2) for offset in good(program)]


def _with_words(_):
    os.write(1, b"so far so good\n")
    os.write(2, b"about to abort\n")
    os.kill(os.getpid(), signal.SIGABRT)


def _kill_parent(_):
    os.kill(os.getppid(), signal.SIGKILL)
    signal.pause()


WAYS = {
    "hangs": _forever,
    "eats": _greedily,
    "raises": _raise,
    "segfaults": lambda _: ctypes.string_at(0),
    "exits": lambda _: os._exit(3),
    "exits_well": lambda _: os._exit(0),
    "kills_its_parent": _kill_parent,
    "leaves": lambda _: sys.exit(4),
    "aborts": _with_words,
    "rubbish": lambda _: "here and there",
    "short": lambda program: good(program)[1:],
    "moody": moody,
    "scribbles": lambda program: program.buffers.nbytes.fill(0),
}


def by_name(program):
    """Good, but for programs called by the name of a way to be bad."""
    return WAYS.get(program.name, good)(program)


def raises(program):
    """Good with less than three ops."""
    return good(program) if len(program.ops) < 3 else _raise(program)


def quits(program):
    """Good with less than three ops, else the end of its process, with a good exit status."""
    return good(program) if len(program.ops) < 3 else os._exit(0)


def compiles(program):
    """Good; in each process the first program of more than three ops takes a second of work first."""
    if len(program.ops) > 3 and not COMPILED:
        begun = time.process_time()
        while time.process_time() < begun + 1:
            pass
        COMPILED.append(program)
    return good(program)


def stuck(program):
    """Good but for programs of more than three ops."""
    return good(program) if len(program.ops) < 4 else _waiting(program)


def stuck_after(program):
    """Good until it was asked for a program of more than three ops before."""
    if COMPILED:
        _waiting(program)
    if len(program.ops) > 3:
        COMPILED.append(program)
    return good(program)


def overlaps(program):
    """Everything at 0."""
    return [None if keep else 0 for keep in program.buffers.persistent.tolist()]


def forgets_views(program):
    """First fit over lifetimes that end where a buffer is last read as itself: what is read through a view later is lost."""
    ops, values = program.ops, program.values
    first, last = {}, {}
    seen_as = {}
    for op in ops:
        if op.kind == "view":
            continue
        for value in (*op.operands, *op.results):
            buffer = int(values.buffer[value])
            whole = values[value].offset == 0 and values.hulls[value][1] == program.buffers.nbytes[buffer]
            first.setdefault(buffer, op.step)
            if whole or value in op.results or op.kind == "host.read":
                last[buffer] = len(ops) if op.kind == "host.read" else op.step
            seen_as[buffer] = value
    placed, offsets = [], [None] * len(program.buffers)
    for buffer in sorted(first, key=first.get):
        if program.buffers.persistent[buffer]:
            continue
        size, step = int(program.buffers.nbytes[buffer]), int(program.buffers.alignment[buffer])
        at = 0
        mine = (first[buffer], last.get(buffer, first[buffer]))
        beside = sorted(
            (offsets[o], offsets[o] + int(program.buffers.nbytes[o]))
            for o in placed
            if program.buffers.arena[o] == program.buffers.arena[buffer]
            and first[o] <= mine[1]
            and mine[0] <= last.get(o, first[o])
        )
        for low, high in beside:
            if at + size <= low:
                break
            at = max(at, -(-high // step) * step)
        offsets[buffer] = at
        placed.append(buffer)
    return [
        0 if offset is None and not keep else offset
        for offset, keep in zip(offsets, program.buffers.persistent.tolist(), strict=True)
    ]
