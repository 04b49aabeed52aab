"""Planners with one bug each that only some programs, questions or processes show, and sound ones that look odd.

Each is a planner of the shelf but for its bug: targets for the fuzzer, never imported by a test itself. Those that a test asks in processes of
their own are `tlsf`, which is not compiled: each of a campaign's many processes would load numba, which takes thrice as long as all else.
"""

import os
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from zlib import crc32

import numpy as np

from allocsim.allocators import ALLOCATORS, exact, pin_all, pin_reads
from allocsim.errors import CapacityError
from allocsim.model import Plan

SHELF = ALLOCATORS["greedy_by_size"]
LIGHT = ALLOCATORS["tlsf"]
ASKED = [0]
LAST = {}


def believed(program, constraints, *, stop=None):
    """Place what is believed, with other ends of life where they are given."""
    problem = exact.believe(program, constraints)
    if stop is not None:
        problem = replace(
            problem,
            stop=np.maximum(np.minimum(problem.stop, stop), problem.start),
            may_share=np.empty((0, 2), np.int32),
        )
    return SHELF.place(problem)


def moved(plan, offset):
    """The plan with other offsets, without its belief."""
    return Plan(program=plan.program, arena=plan.arena, offset=offset, nbytes=plan.nbytes, source="planted")


# what is told -----------------------------------------------------------------------------------------------------------------


def own_for_everything(program, constraints):
    """Everything is answered with memory of its own, and believed to have been told so."""
    told = replace(constraints, own=np.ones(len(program.buffers), dtype=np.bool_), fixed={})
    return SHELF.plan(program, told)


def own_without_belief(program, constraints):
    """As above, without any belief."""
    plan = own_for_everything(program, constraints)
    return moved(plan, plan.offset)


def partial_pins_ignored(program, constraints):
    """Pins of all buffers are kept, those of some are not."""
    everything = np.array_equal(constraints.pinned, pin_all(program))
    return SHELF.plan(program, constraints if everything else replace(constraints, pinned=pin_reads(program)))


def fixed_ignored(program, constraints):
    """What offsets are decided is not looked at."""
    return SHELF.plan(program, replace(constraints, fixed={}))


def own_ignored(program, constraints):
    """Memory of its own is for parameters and states, whatever is told."""
    return SHELF.plan(program, replace(constraints, own=program.buffers.persistent))


# what programs have -----------------------------------------------------------------------------------------------------------


def third_operand_freed_early(program, constraints):
    """What an op reads as its third operand or a later one is free before it."""
    ops, home = program.ops, program.values.buffer
    step = np.repeat(np.arange(len(ops)), np.diff(ops.operand_starts))
    place = np.arange(len(ops.operands)) - ops.operand_starts[step]
    stop = np.full(len(program.buffers), len(ops), dtype=np.int64)
    last = np.zeros(len(program.buffers), dtype=np.int64)
    np.maximum.at(last, home[ops.operands], step + 1)
    late = (place >= 2) & (step + 1 == last[home[ops.operands]]) & ~ops.is_kind("host.read")[step]
    stop[home[ops.operands[late]]] = step[late]
    return believed(program, constraints, stop=stop)


def unknown_taken_for_may(program, constraints):
    """Of an op that declares nothing the result may lie where its one operand does, if that is read no more."""
    problem = exact.believe(program, constraints)
    home, last = program.values.buffer, {}
    for op in program.ops:
        last.update((int(home[value]), op.step) for value in op.operands)
    pairs = problem.may_share.tolist()
    for op in program.ops:
        if op.in_place is None and len(op.operands) == len(op.results) == 1:
            donor, recipient = int(home[op.operands[0]]), int(home[op.results[0]])
            alone = problem.stop[donor] == op.step + 1 and problem.start[recipient] == op.step
            if donor != recipient and alone and last[donor] == op.step and [donor, recipient] not in pairs:
                pairs.append([donor, recipient])
    return SHELF.place(replace(problem, may_share=np.array(pairs, dtype=np.int32).reshape(-1, 2)))


def _wrong_above(count):
    def plan(program, constraints):
        made = SHELF.plan(program, constraints)
        return made if len(program.buffers) <= count else moved(made, np.zeros_like(made.offset))

    return plan


wrong_above_16 = _wrong_above(16)
wrong_above_64 = _wrong_above(64)


def wrong_after_step_200(program, constraints):
    """What is born after step 200 dies at once."""
    problem = exact.believe(program, constraints)
    return believed(program, constraints, stop=np.where(problem.start > 200, problem.start + 1, problem.stop))


def alignment_capped(program, constraints):
    """No alignment is above 32."""
    buffers = replace(program.buffers, alignment=np.minimum(program.buffers.alignment, 32))
    problem = exact.believe(program, constraints)
    made = SHELF.place(replace(problem, program=replace(program, buffers=buffers)))
    return replace(made, program=program, problem=problem)


def offsets_wrapped(program, constraints):
    """Offsets have 32 bits."""
    made = SHELF.plan(program, constraints)
    return moved(made, made.offset % (1 << 32))


def _refuses(where):
    def plan(program, constraints):
        if where(program):
            raise CapacityError("it does not fit")
        return SHELF.plan(program, constraints)

    return plan


def _mixed(program):
    return len(set(program.buffers.alignment.tolist())) > 2


refuses_three_alignments = _refuses(_mixed)
refuses_the_empty = _refuses(lambda program: not len(program.buffers))
refuses_mixed_with_room = _refuses(
    lambda program: (
        _mixed(program)
        and any(arena.capacity and arena.capacity > 4 * program.buffers.nbytes.sum() for arena in program.arenas)
    )
)


# what the answer depends on ---------------------------------------------------------------------------------------------------


def _lifted(program, constraints, by):
    made = LIGHT.plan(program, replace(constraints, fixed={}))
    if any(arena.capacity is not None for arena in program.arenas) or constraints.fixed:
        return LIGHT.plan(program, constraints)
    return moved(made, made.offset + by * int(np.lcm.reduce(program.buffers.alignment, initial=1)))


def by_hash_seed(program, constraints):
    """Another place for each seed of hashes."""
    return _lifted(program, constraints, hash("where") % 7)


def by_folder(program, constraints):
    """Another place for each working directory."""
    return _lifted(program, constraints, 1 + crc32(bytes(Path.cwd())) % (1 << 20))


def by_hour(program, constraints):
    """Another place at each hour, as local time has it."""
    return _lifted(program, constraints, 1 + datetime.now().hour)  # noqa: DTZ005 - the zone of the machine


def by_hour_of_utc(program, constraints):
    """Another place before noon, as UTC has it."""
    return _lifted(program, constraints, int(time.gmtime().tm_hour < 12))


def more_than_apart(program, constraints):
    """Everything lies far up, where there is room."""
    free = not constraints.fixed and all(arena.capacity is None for arena in program.arenas)
    made = LIGHT.plan(program, constraints)
    unit = int(np.lcm.reduce(program.buffers.alignment, initial=1))
    return moved(made, made.offset + (1 << 60) // unit * unit) if free and len(program.buffers) < 20 else made


def told_of_nothing(program):
    """Sound; it takes no constraints."""
    return LIGHT.plan(program)


def two_of_three_alike(program, constraints):
    """Every third answer is another."""
    ASKED[0] += 1
    return _lifted(program, constraints, int(ASKED[0] % 3 == 0))


def by_minute(program, constraints):
    """Another place in each minute of an hour."""
    return _lifted(program, constraints, time.localtime().tm_min)


def by_month(program, constraints):
    """Another place in each month."""
    return _lifted(program, constraints, time.localtime().tm_mon)


def by_year(program, constraints):
    """Another place in each year."""
    return _lifted(program, constraints, time.localtime().tm_year % 7)


def by_thread(program, constraints):
    """Another place where it is called from a thread that is not the first."""
    return _lifted(program, constraints, int(threading.current_thread() is not threading.main_thread()))


def by_time(program, constraints):
    """Another place in each second."""
    return _lifted(program, constraints, int(time.time()) % 5)


def by_history(program, constraints):
    """Another place once a hundred were asked for."""
    ASKED[0] += 1
    return _lifted(program, constraints, ASKED[0] > 100)


def keeps_state(program, constraints):
    """The offsets of the last program with as many buffers, once more."""
    made = LIGHT.plan(program, constraints)
    kept = LAST.get(len(program.buffers))
    LAST[len(program.buffers)] = made.offset
    return made if kept is None else moved(made, kept)


# what it does to its process --------------------------------------------------------------------------------------------------


def forks_once(program, constraints):
    """Sound; its first call leaves a copy of the process that answers as well."""
    ASKED[0] += 1
    if ASKED[0] == 1:
        os.fork()
    return LIGHT.plan(program, constraints)


def forks_always(program, constraints):
    """Sound; every call leaves a copy of the process that waits for ever."""
    if os.fork() == 0:
        while True:
            time.sleep(1000)
    return LIGHT.plan(program, constraints)


def sleeps(program, constraints):
    """Never answers, and takes no CPU time."""
    threading.Event().wait()


# sound, and odd ---------------------------------------------------------------------------------------------------------------


def _apart(program, constraints, gap, step):
    """Every buffer after the one before it, a gap between, at multiples of `step`."""
    buffers = program.buffers
    offset, ends = np.zeros(len(buffers), dtype=np.int64), [0] * len(program.arenas)
    for buffer in constraints.fixed:
        arena = int(buffers.arena[buffer])
        offset[buffer] = constraints.fixed[buffer]
        ends[arena] = max(ends[arena], int(offset[buffer] + buffers.nbytes[buffer]))
    for buffer in range(len(buffers)):
        arena = int(buffers.arena[buffer])
        if buffer in constraints.fixed or constraints.own[buffer]:
            continue
        unit = int(np.lcm(buffers.alignment[buffer], step))
        offset[buffer] = -(-(ends[arena] + gap) // unit) * unit
        ends[arena] = int(offset[buffer] + buffers.nbytes[buffer])
    if any(arena.capacity is not None for arena in program.arenas):
        return LIGHT.plan(program, constraints)
    return Plan(
        program=program,
        arena=np.where(constraints.own, -1, buffers.arena).astype(np.int32),
        offset=np.where(constraints.own, 0, offset),
        nbytes=np.where(constraints.own, 0, buffers.nbytes),
        source="planted",
    )


def large_gaps(program, constraints):
    """Sound, with a megabyte between any two buffers."""
    return _apart(program, constraints, 1 << 20, 1)


def pages(program, constraints):
    """Sound, everything at a multiple of 4,096."""
    return _apart(program, constraints, 0, 4096)


def in_a_thread(program, constraints):
    """Sound, planned by a thread; what it refuses, it refuses here."""
    with ThreadPoolExecutor(max_workers=1) as threads:
        return threads.submit(LIGHT.plan, program, constraints).result()


large_gaps.guarantees = pages.guarantees = ("sound", "deterministic")


# beside the answers -----------------------------------------------------------------------------------------------------------

HELD = []


def keeps_memory(program, constraints):
    """Sound; every call keeps half a megabyte for ever."""
    HELD.append(np.ones(1 << 16))
    return LIGHT.plan(program, constraints)


def keeps_all(program, constraints):
    """Sound; every call keeps sixteen megabytes for ever, so that it soon has no more memory."""
    HELD.append(np.ones(1 << 21))
    return LIGHT.plan(program, constraints)


def starves_once_asked(program, constraints):
    """Keeps nothing, and has no memory for any other program after it was asked for one of five ops."""
    if HELD and len(program.ops) != 5:
        raise MemoryError
    if len(program.ops) == 5:
        HELD.append(None)
    return LIGHT.plan(program, constraints)


def writes_files(program, constraints):
    """Sound; every call leaves a file where it is run."""
    ASKED[0] += 1
    Path(f"plan{ASKED[0]}.txt").write_text("planned", encoding="utf-8")
    return LIGHT.plan(program, constraints)


def bursts(program, constraints):
    """Begins processes without end in one call."""
    while True:
        if os.fork() == 0:
            time.sleep(600)


# laws on pairs: each keeps all but one ---------------------------------------------------------------------------------------


def _either(problem, reuse):
    """Without any reuse, or with it: both are sound."""
    return (SHELF if reuse else ALLOCATORS["reference"]).place(problem)


def by_name(problem):
    """What comes first by its name lies first."""
    names = problem.program.buffers.names
    order = np.array(sorted(range(len(names)), key=names.__getitem__), dtype=problem.order.dtype)
    return ALLOCATORS["linear_scan"].place(replace(problem, order=order))


def by_number(problem):
    """Bytes are used again where the largest buffer has an even number."""
    return _either(problem, len(problem.nbytes) and int(np.argmax(problem.nbytes)) % 2 == 0)


def by_all_arenas(problem):
    """Bytes are used again where all arenas together have an even number of kibibytes, or of less."""
    return _either(problem, (int(problem.nbytes.sum()) & -int(problem.nbytes.sum())).bit_length() % 2)


def by_pins(problem):
    """Bytes are used again where something is pinned that the host does not read."""
    return _either(problem, (problem.pinned & ~pin_reads(problem.program)).any())


def by_bytes(problem):
    """Bytes are used again of many bytes."""
    return _either(problem, int(problem.nbytes.max(initial=0)) % 16 == 0)


def by_life(problem):
    """Bytes are used again of lives that are long when added up."""
    return _either(problem, int((problem.stop - problem.start).sum()) % 2)


LAWLESS = {
    "rename": by_name, "permute": by_number, "split_arena": by_all_arenas, "add_pin": by_pins, "enlarge": by_bytes,
    "monotone": by_life,
}  # fmt: skip
"""Law -> the planner that breaks it."""
