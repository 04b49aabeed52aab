"""Mutants of beliefs: missed accesses, forbidden pairs, wrong sizes and lost pins.

Functions called `seen` in `allocsim.allocators.exact` take a program and return the first and last
access of each buffer as a mistaken liveness analysis sees them; the others are beliefs. Whatever
else they say is right.

What this module does not see: placements.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from allocsim.allocators import Constraints, exact, pin_all, pin_reads
from allocsim.fuzzing.features import of_strength, view_depth
from allocsim.model import BYTES, HOST_READ, VIEW, Bools, Problem, Program, Role
from allocsim.model.layout import Int64s
from allocsim.programs.access_steps import first_and_last, last_writes


@dataclass(frozen=True, slots=True, kw_only=True)
class Reads:
    """Every operand of every op but views: one row each."""

    program: Program
    step: Int64s
    value: Int64s
    position: Int64s
    """Which operand of its op."""

    @classmethod
    def of(cls, program: Program) -> "Reads":
        """Return the reads of a program in order."""
        ops = program.ops
        step = np.repeat(np.arange(len(ops), dtype=np.int64), np.diff(ops.operand_starts))
        acts = ~ops.is_kind(VIEW)[step]
        position = np.arange(len(ops.operands), dtype=np.int64) - ops.operand_starts[step]
        return cls(program=program, step=step[acts], value=ops.operands[acts].astype(np.int64), position=position[acts])

    @property
    def buffer(self) -> Int64s:
        """The buffer each reads."""
        found: Int64s = self.program.values.buffer[self.value].astype(np.int64)
        return found

    @property
    def of_host(self) -> Bools:
        """Which are reads by the host."""
        mask: Bools = self.program.ops.is_kind(HOST_READ)[self.step]
        return mask


def without(reads: Reads, missed: Bools) -> tuple[Int64s, Int64s]:
    """Return first and last access of each buffer if some reads are missed.

    What was only ever read so has its first access still.
    """
    program = reads.program
    first, _ = first_and_last(program)
    last = np.maximum(first, last_writes(program))
    left = ~missed
    np.maximum.at(last, reads.buffer[left], reads.step[left])
    return first, last


# accesses -----------------------------------------------------------------------------------------


def one_step_early(program: Program) -> tuple[Int64s, Int64s]:
    """Every life of more than a step ends a step early."""
    first, last = first_and_last(program)
    return first, np.where(last > first, last - 1, last)


def first_reader_only(program: Program) -> tuple[Int64s, Int64s]:
    """A buffer's second reader and all later ones are missed."""
    reads = Reads.of(program)
    missed = np.ones(len(reads.step), dtype=np.bool_)
    missed[np.unique(reads.buffer, return_index=True)[1]] = False
    return without(reads, missed)


def first_operand_only(program: Program) -> tuple[Int64s, Int64s]:
    """Only the first operand of an op is a read."""
    reads = Reads.of(program)
    return without(reads, reads.position > 0)


def third_operand_forgotten(program: Program) -> tuple[Int64s, Int64s]:
    """Only the first two operands of an op are reads."""
    reads = Reads.of(program)
    return without(reads, reads.position > 1)


def step_of_eight_bits(program: Program) -> tuple[Int64s, Int64s]:
    """No life goes on after step 255, the last of one byte."""
    first, last = first_and_last(program)
    return first, np.maximum(np.minimum(last, 255), first)


def unread_has_no_life(program: Program) -> tuple[Int64s, Int64s]:
    """What no op reads is given no life at all."""
    first, last = first_and_last(program)
    unread = np.ones(len(first), dtype=np.bool_)
    unread[program.values.buffer[program.ops.operands]] = False
    return first, np.where(unread & (last >= 0), first - 1, last)


def operands_die_before_results(program: Program) -> tuple[Int64s, Int64s]:
    """What dies at an op with several results is dead when they are born."""
    first, last = first_and_last(program)
    several = np.append(np.diff(program.ops.result_starts) > 1, False)
    return first, np.where((last > first) & several[last], last - 1, last)


def view_forgotten(program: Program) -> tuple[Int64s, Int64s]:
    """Reads of values that a view made are missed."""
    reads = Reads.of(program)
    return without(reads, view_depth(program)[reads.value] > 0)


def view_of_a_view_forgotten(program: Program) -> tuple[Int64s, Int64s]:
    """Reads of views of views are missed."""
    reads = Reads.of(program)
    return without(reads, view_depth(program)[reads.value] > 1)


def mutation_forgotten(program: Program) -> tuple[Int64s, Int64s]:
    """Reads of what was written into the buffer of an operand are missed."""
    ops, of_value = program.ops, program.values.buffer
    mutated = np.zeros(len(program.values), dtype=np.bool_)
    for op in program.ops:
        taken = {int(of_value[operand]) for operand in op.operands} if op.kind != VIEW else set()
        mutated[[result for result in op.results if int(of_value[result]) in taken]] = True
    reads = Reads.of(program)
    return without(reads, mutated[reads.value] & ~ops.is_kind(HOST_READ)[reads.step])


def input_recycled(program: Program) -> tuple[Int64s, Int64s]:
    """Of an input, only the first reader is seen."""
    reads = Reads.of(program)
    missed = program.buffers.role[reads.buffer] == Role.INPUT
    missed[np.unique(reads.buffer, return_index=True)[1]] = False
    return without(reads, missed)


def other_streams_missed(program: Program) -> tuple[Int64s, Int64s]:
    """Readers on another stream than the op that made the value are missed."""
    reads = Reads.of(program)
    maker = program.producer[reads.value]
    return without(reads, (maker >= 0) & (program.ops.stream[maker] != program.ops.stream[reads.step]))


# beliefs ------------------------------------------------------------------------------------------


def host_reads_forgotten(program: Program, constraints: Constraints) -> Problem:
    """Reads by the host are missed, and so are the pins that stand for them."""
    reads = Reads.of(program)
    return _unpinned(reads, constraints, reads.of_host)


def host_reads_of_views_forgotten(program: Program, constraints: Constraints) -> Problem:
    """Reads of views by the host are missed, and so are the pins that stand for them."""
    reads = Reads.of(program)
    return _unpinned(reads, constraints, reads.of_host & (view_depth(program)[reads.value] > 0))


def fixed_forgotten(program: Program, constraints: Constraints) -> Problem:
    """What offsets are decided is not looked at."""
    return exact.believe(program, replace(constraints, fixed={}))


def own_forgotten(program: Program, constraints: Constraints) -> Problem:
    """Memory of its own is for parameters and states, whatever is told."""
    return exact.believe(program, replace(constraints, own=program.buffers.persistent))


def some_pins_forgotten(program: Program, constraints: Constraints) -> Problem:
    """Pins of all buffers are kept, of those of some the host's reads alone."""
    whole = np.array_equal(constraints.pinned, pin_all(program))
    return exact.believe(program, constraints if whole else replace(constraints, pinned=pin_reads(program)))


def told_pins_forgotten(program: Program, constraints: Constraints) -> Problem:
    """What the host reads in the program is kept, and no other buffer that is said to be pinned."""
    return exact.believe(program, replace(constraints, pinned=constraints.pinned & pin_reads(program)))


def _unpinned(reads: Reads, constraints: Constraints, missed: Bools) -> Problem:
    pinned = constraints.pinned.copy()
    pinned[reads.buffer[missed]] = False
    return exact.believe(reads.program, replace(constraints, pinned=pinned), seen=lambda _: without(reads, missed))


Pair = Callable[[Problem, int, int, int], bool]
"""(problem, step, donor, recipient) -> whether a mistaken planner takes the pair."""


def in_place_before_the_last_reader(program: Program, constraints: Constraints) -> Problem:
    """Declared pairs are offered and the donor's life ends with them, whoever reads it later."""
    return _with_pairs(
        exact.believe(program, constraints), lambda problem, step, donor, _: problem.stop[donor] > step + 1
    )


def in_place_over_two_operands(program: Program, constraints: Constraints) -> Problem:
    """Declared pairs of dying donors are offered, whatever the op reads of the donor besides."""
    return _with_pairs(
        exact.believe(program, constraints), lambda problem, step, donor, _: problem.stop[donor] == step + 1
    )


def larger_recipient(program: Program, constraints: Constraints) -> Problem:
    """A dying operand is offered to a larger result, and the pair shares the donor's size."""
    problem = exact.believe(program, constraints)

    def fits(problem: Problem, step: int, donor: int, recipient: int) -> bool:
        return bool(problem.stop[donor] == step + 1 and problem.nbytes[donor] < problem.nbytes[recipient])

    return _no_larger(_with_pairs(problem, fits, declared=False))


def in_place_undeclared(program: Program, constraints: Constraints) -> Problem:
    """Any operand that dies is offered to a result of equal size."""

    def fits(problem: Problem, step: int, donor: int, recipient: int) -> bool:
        return bool(problem.stop[donor] == step + 1 and problem.nbytes[donor] == problem.nbytes[recipient])

    return _with_pairs(exact.believe(program, constraints), fits, declared=False)


def same_ends_a_life(program: Program, constraints: Constraints) -> Problem:
    """What a `same` hands on lies where it was, and the operand's life ends there, whoever reads it
    later.
    """
    same = program.same_ops

    def fits(problem: Problem, step: int, donor: int, recipient: int) -> bool:
        return bool(same[step] and problem.nbytes[donor] == problem.nbytes[recipient])

    return _with_pairs(exact.believe(program, constraints), fits, declared=False)


def strength_ignored(program: Program, constraints: Constraints) -> Problem:
    """A pair that may share its first bytes is taken to overlap in any way: the result is larger,
    and counts as no more bytes than the donor's.
    """
    problem = exact.believe(program, constraints)
    lent = of_strength(program, BYTES)

    def fits(problem: Problem, step: int, donor: int, recipient: int) -> bool:
        dies, grows = problem.stop[donor] == step + 1, problem.nbytes[donor] < problem.nbytes[recipient]
        return bool(lent[step] and dies and grows)

    return _no_larger(_with_pairs(problem, fits))


def state_recycled(program: Program, constraints: Constraints) -> Problem:
    """Parameters and states are placed among the others and live from their first access to their
    last.
    """
    problem = exact.believe(program, replace(constraints, own=np.zeros_like(constraints.own)))
    first, last = first_and_last(program)
    kept = program.buffers.persistent & (last >= 0)
    return replace(problem, start=np.where(kept, first, problem.start), stop=np.where(kept, last + 1, problem.stop))


def tail_lost(program: Program, constraints: Constraints) -> Problem:
    """Sizes are rounded down to eight bytes."""
    problem = exact.believe(program, constraints)
    return replace(problem, nbytes=problem.nbytes // 8 * 8)


def _no_larger(problem: Problem) -> Problem:
    """Return the problem with no recipient of a pair larger than its donor."""
    nbytes = problem.nbytes.copy()
    for donor, recipient in problem.may_share.tolist():
        nbytes[recipient] = min(nbytes[donor], nbytes[recipient])
    return replace(problem, nbytes=nbytes)


def _with_pairs(problem: Problem, fits: Pair, *, declared: bool = True) -> Problem:
    """Return the problem with more pairs, in one arena and born at the op, as `fits` says."""
    program, of_value = problem.program, problem.program.values.buffer.tolist()
    apart = (problem.own | problem.pinned).tolist()
    arena, start, nbytes = program.buffers.arena.tolist(), problem.start.tolist(), problem.nbytes.tolist()
    stop = problem.stop.copy()
    pairs = dict.fromkeys(map(tuple, problem.may_share.tolist()))
    for op in program.ops:
        if op.kind == VIEW:
            continue
        every = [(o, r) for o in range(len(op.operands)) for r in range(len(op.results))]
        for o, r in (op.in_place or ()) if declared else every:
            donor, recipient = of_value[op.operands[o]], of_value[op.results[r]]
            fine = (
                donor != recipient
                and not apart[donor]
                and not problem.own[recipient]
                and arena[donor] == arena[recipient]
            )
            fine = fine and start[recipient] == op.step and start[donor] < op.step and nbytes[donor] > 0
            if fine and fits(problem, op.step, donor, recipient):
                pairs[donor, recipient] = None
                stop[donor] = op.step + 1
    may_share = np.array(list(pairs), dtype=np.int32).reshape(-1, 2)
    return replace(problem, may_share=may_share, stop=stop)
