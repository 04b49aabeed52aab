"""Mutants: planners of the shelf with one known bug each, to measure what a campaign finds.

    allocsim fuzz allocsim.fuzzing.mutants:view_forgotten          # a target like any other
    killed_by(CampaignSpec(target=..., source="hypothesis"), name)        # what a campaign's own cases find against one (`exercised`)

A row names the bug, its class (C01 to C15, `docs/verdict.md`), the planner it sits in, and what is
wrong in a sentence; the class is that of real bugs of the same kind. Every mutant is right wherever
its bug does not show, so what finds it has exercised what its bug is about. The three with the bug
of a free list (`books`) keep the belief and the guarantees of `into`, and place by a plain first
fit with that bug instead. A mutant is an `Allocator`, found by `package.module:name` like a
stranger's.

What this module does not see: which property finds a mutant (`coverage`).
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from typing import Final

from allocsim.allocators import ALLOCATORS, Allocator, exact
from allocsim.allocators.driven_online import drive
from allocsim.fuzzing.mutants import books, placements, wrong_beliefs
from allocsim.model import Plan, Problem, Program
from allocsim.model.layout import Int64s


@dataclass(frozen=True, slots=True, kw_only=True)
class Mutant:
    """One known bug, planted."""

    name: str
    class_: str
    """Class of root causes, C01 to C15."""
    into: str
    """The planner of the shelf that it is planted into, with its belief and guarantees."""
    bug: str
    """What is wrong, in a sentence."""
    make: Callable[[str, Allocator], Allocator]
    """Name and sound planner -> planner with the bug."""

    def allocator(self) -> Allocator:
        """Return the planner with the bug."""
        return _allocator(self.name)


@cache
def _allocator(name: str) -> Allocator:
    row = MUTANTS[name]
    return row.make(name, ALLOCATORS[row.into])


def believing(belief: Callable[..., Problem]) -> Callable[[str, Allocator], Allocator]:
    """Plant a belief: the placement stays as it is."""
    return lambda name, sound: Allocator(name=name, belief=belief, placement=sound.placement, source=sound.source)


def mistaking(seen: Callable[[Program], tuple[Int64s, Int64s]]) -> Callable[[str, Allocator], Allocator]:
    """Plant a wrong idea of first and last accesses in the exact belief."""
    return believing(partial(exact.believe, seen=seen))


def placing(placement: Callable[..., Plan]) -> Callable[[str, Allocator], Allocator]:
    """Plant a placement, a function of the sound one and the problem: the belief stays as it is."""
    return lambda name, sound: Allocator(
        name=name, belief=sound.belief, placement=partial(placement, sound.placement), source=sound.source
    )


def booking(make: Callable[[int | None, int], books.Book]) -> Callable[[str, Allocator], Allocator]:
    """Plant a free list in place of the placement: a first fit with a bug.

    The belief stays as it is.
    """
    return lambda name, sound: Allocator(
        name=name, belief=sound.belief, placement=lambda problem: drive(name, problem, make), source=sound.source
    )


MUTANTS: Final[dict[str, Mutant]] = {
    name: Mutant(name=name, class_=class_, into=into, bug=bug, make=make)
    for name, class_, into, bug, make in (
        ("freed_one_step_early", "C01", "greedy_by_size", "half-open is read as inclusive: every life ends a step early", mistaking(wrong_beliefs.one_step_early)),
        ("first_reader_only", "C01", "linear_scan", "a life ends with the first op that reads the buffer", mistaking(wrong_beliefs.first_reader_only)),
        ("first_operand_only", "C01", "best_fit", "only an op's first operand counts as read", mistaking(wrong_beliefs.first_operand_only)),
        ("unread_has_no_life", "C01", "greedy_by_breadth", "what nobody reads is free before it is written", mistaking(wrong_beliefs.unread_has_no_life)),
        ("operands_die_before_results", "C01", "skyline_by_area", "an op with several results frees its operands before it allocates them", mistaking(wrong_beliefs.operands_die_before_results)),
        ("view_forgotten", "C02", "greedy_by_size", "reading a view is no use of the buffer it lies in", mistaking(wrong_beliefs.view_forgotten)),
        ("view_of_a_view_forgotten", "C02", "xla_best_fit", "a view of a view is followed to the first view only", mistaking(wrong_beliefs.view_of_a_view_forgotten)),
        ("mutation_is_a_new_buffer", "C02", "linear_scan", "what an op writes in place of its operand is not followed any further", mistaking(wrong_beliefs.mutation_forgotten)),
        ("in_place_before_the_last_reader", "C03", "slot_sharing", "a declared pair is taken although the donor is read again", believing(wrong_beliefs.in_place_before_the_last_reader)),
        ("in_place_over_two_operands", "C03", "greedy_by_size", "one declared operand in the donor is enough, whatever else the op reads there", believing(wrong_beliefs.in_place_over_two_operands)),
        ("in_place_undeclared", "C03", "ggml", "any dying operand of equal size is taken, declared or not", believing(wrong_beliefs.in_place_undeclared)),
        ("host_reads_forgotten", "C05", "tlsf", "a read by the host is no use", believing(wrong_beliefs.host_reads_forgotten)),
        ("pin_on_a_view_ignored", "C05", "greedy_by_size", "the host's read of a view does not keep the buffer", believing(wrong_beliefs.host_reads_of_views_forgotten)),
        ("told_pins_forgotten", "C05", "xla_best_fit", "of the pins, only those that reads by the host stand for are kept", believing(wrong_beliefs.told_pins_forgotten)),
        ("input_recycled", "C06", "best_fit", "an input is free after its first use", mistaking(wrong_beliefs.input_recycled)),
        ("state_recycled", "C07", "linear_scan", "parameters and states are temporaries of one run", believing(wrong_beliefs.state_recycled)),
        ("stale_plan", "C08", "greedy_by_size", "a plan is kept for the next program with as many buffers of the same sizes", placing(placements.stale)),
        ("other_streams_missed", "C09", "greedy_by_size", "a reader on another stream than the writer's is missed", mistaking(wrong_beliefs.other_streams_missed)),
        ("arenas_mixed", "C10", "best_fit", "two arenas share one book: all buffers are placed in the first", placing(placements.arenas_mixed)),
        ("alignment_dropped", "C12", "linear_scan", "offsets are not aligned", placing(placements.alignment_dropped)),
        ("own_alignment_ignored", "C12", "skyline_by_lifetime", "a buffer's own alignment gives way to the arena's", placing(placements.own_alignment_ignored)),
        ("tail_lost", "C12", "greedy_by_size", "sizes are rounded down to whole words", believing(wrong_beliefs.tail_lost)),
        ("capacity_without_offset", "C12", "linear_scan", "a size is compared with the capacity, not where the slot ends", placing(placements.capacity_without_offset)),
        ("coalesced_over_a_live_block", "C12", "tlsf", "first fit: a freed block is joined with the next free one, whatever lies between", booking(books.Joining)),
        ("gap_one_word_short", "C12", "best_fit", "first fit: a gap that lacks a word is taken", booking(books.Short)),
        ("larger_recipient", "C12", "greedy_by_size", "a pair is taken although the recipient is larger", believing(wrong_beliefs.larger_recipient)),
        ("empty_takes_its_twin_along", "C12", "linear_scan", "two buffers at one address are one: freeing an empty one frees the other", placing(placements.empty_takes_its_twin_along)),
        ("double_free", "C13", "buddy", "first fit: a freed block is entered in the free list twice", booking(books.Twice)),
        ("donor_freed_under_its_recipient", "C13", "ggml", "the bytes of a donor are freed although its recipient lies there", placing(placements.donor_freed)),
        ("third_operand_forgotten", "C01", "greedy_by_size", "an op reads two operands at most", mistaking(wrong_beliefs.third_operand_forgotten)),
        ("step_of_eight_bits", "C01", "best_fit", "no life goes on after step 255", mistaking(wrong_beliefs.step_of_eight_bits)),
        ("some_pins_forgotten", "C05", "greedy_by_size", "pins of some buffers, not of all, are not kept", believing(wrong_beliefs.some_pins_forgotten)),
        ("own_forgotten", "C12", "linear_scan", "memory of its own is for parameters and states, whatever is told", believing(wrong_beliefs.own_forgotten)),
        ("fixed_forgotten", "C12", "best_fit", "offsets that are decided are not looked at", believing(wrong_beliefs.fixed_forgotten)),
        ("alignment_of_a_mask", "C12", "xla_best_fit", "alignments are taken for powers of two", placing(placements.alignment_of_a_mask)),
        ("alignment_at_most_64", "C12", "greedy_by_size", "no alignment is above 64", placing(placements.alignment_at_most_64)),
        ("offsets_of_32_bits", "C12", "linear_scan", "offsets have 32 bits", placing(placements.offsets_of_32_bits)),
        ("table_of_64", "C12", "best_fit", "a table of blocks has 64 entries", placing(placements.table_of_64)),
        ("gap_is_the_end", "C12", "greedy_by_size", "a life ends with the first gap that is stated in it", placing(placements.gap_is_the_end)),
        ("same_ends_a_life", "C01", "greedy_by_size", "a `same` ends the life of what it hands on, whoever reads it later", believing(wrong_beliefs.same_ends_a_life)),
        ("strength_ignored", "C12", "greedy_by_size", "a pair that may share its first bytes is taken although the result is larger", believing(wrong_beliefs.strength_ignored)),
        ("moody", "C08", "best_fit", "the answer depends on what was asked before", placing(placements.moody)),
    )
}  # fmt: skip
"""Every mutant by name."""


def __getattr__(name: str) -> Allocator:
    """Give mutants by name, so that `allocsim.fuzzing.mutants:NAME` is a target."""
    if name in MUTANTS:
        return _allocator(name)
    raise AttributeError(name)


__all__ = ["MUTANTS", "Mutant"]
