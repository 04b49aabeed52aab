"""Planners that are wrong in one hard corner each, and sound ones that look odd there: targets beside `broken_planners.py` and `unseen_planners.py`.

    allocsim fuzz corner_planners:operands_above_11_freed        # from this folder
    python benchmarks/planted.py --within --seeds 1 NAME...      # those of `CORNERS` and `CORNER_SOUND` are among its names

Each is the shelf's `greedy_by_size` but for its bug. Most are rows of a family: what is wrong is one way of being wrong (a read that
is not seen, a life a step short, another alignment, another size, a refusal, a planner that is moved by what it should not look
at), and each row says where. `CORNERS` names them by what the corner is.
"""

import os
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import numpy as np

sys.path.append(str(Path(__file__).parent))
sys.path.append(str(Path(__file__).parents[1] / "tests"))

from broken_planners import _above, _cached, _gaps_otherwise, _missing, _of_buffers, _over, _placed
from planted_planners import SHELF, _lifted, moved
from unseen_planners import _through

from allocsim.allocators import ALLOCATORS, Constraints, exact, pin_reads
from allocsim.errors import CapacityError
from allocsim.model import HOST_WRITE, Bools, Plan, Problem, Program

Planner = Callable[..., Any]
SEEN: Final[dict[str, Any]] = {}
TURNS: Final = ("greedy_by_size", "reference", "linear_scan", "best_fit", "greedy_by_breadth")

# ways of being wrong -------------------------------------------------------------------------------------------------------------


def _reads_missed(where: Callable[[Any, Any], Any]) -> Planner:
    """Reads are not seen where that holds of the operand's place and of how many there are."""

    def plan(program: Program, constraints: Constraints) -> Plan:
        many = np.diff(program.ops.operand_starts)
        return _missing(program, constraints, lambda step, place, _: where(place, many[step]))

    return plan


def _short(where: Callable[[Program, Problem], Any]) -> Planner:
    """Lives end a step early where that holds of the buffers."""

    def plan(program: Program, constraints: Constraints) -> Plan:
        problem = exact.believe(program, constraints)
        free = ~(constraints.pinned | program.buffers.persistent) & (problem.stop > problem.start + 1)
        return _placed(problem, constraints, stop=problem.stop - (free & np.asarray(where(program, problem))))

    return plan


def _aligned(changed: Callable[[Any, Any], Any]) -> Planner:
    """Buffers have another alignment, of that and of their bytes."""
    return lambda program, constraints: _of_buffers(
        program, constraints, alignment=changed(program.buffers.alignment, program.buffers.nbytes)
    )


def _sized(changed: Callable[[Any], Any]) -> Planner:
    """Buffers have other sizes."""
    return lambda program, constraints: _of_buffers(program, constraints, nbytes=changed(program.buffers.nbytes))


def _refuses(where: Callable[[Program, Constraints], Any]) -> Planner:
    """What that holds of is refused."""

    def plan(program: Program, constraints: Constraints) -> Plan:
        if where(program, constraints):
            raise CapacityError("it does not fit")
        return SHELF.plan(program, constraints)

    return plan


def _by(number: Callable[[Program], int]) -> Planner:
    """Another planner of the shelf for each number: each is sound and no worse, so that nothing else is wrong."""
    return lambda program, constraints: ALLOCATORS[TURNS[number(program) % len(TURNS)]].plan(program, constraints)


def _told(**changed: Callable[[Program, Constraints], Any]) -> Planner:
    """What is told is read otherwise."""

    def plan(program: Program, constraints: Constraints) -> Plan:
        read = replace(constraints, **{name: how(program, constraints) for name, how in changed.items()})
        return moved(made := SHELF.plan(program, read), made.offset)

    return plan


def _gaps(many: int, changed: Callable[[Any, int], Any]) -> Planner:
    """Of a life with as many gaps or more, the gaps are read otherwise."""

    def plan(problem: Problem) -> Plan:
        which = np.array([len(problem.gaps.get(b, ())) >= many for b in range(len(problem.start))], dtype=np.bool_)
        return _gaps_otherwise(problem, which, lambda b, gaps: tuple(changed(sorted(gaps), int(problem.stop[b]))))

    plan.guarantees = ("sound", "deterministic")  # type: ignore[attr-defined]
    return plan


def _pairs(where: Callable[[Problem, Any, int, int, int], Any]) -> Planner:
    """A pair is taken where that holds, although its donor is read once more."""

    def plan(program: Program, constraints: Constraints) -> Plan:
        def fits(problem: Problem, op: Any, o: int, r: int, donor: int, _: int) -> bool:
            return bool(problem.stop[donor] > op.step + 1 and where(problem, op, o, r, donor))

        return _over(program, constraints, fits)

    return plan


# of buffers ----------------------------------------------------------------------------------------------------------------------


def _read_by(program: Program, ops: Bools) -> Bools:
    """Return which buffers an op of these reads."""
    mask = np.zeros(len(program.buffers), dtype=np.bool_)
    mask[program.values.buffer[program.ops.operands[np.repeat(ops, np.diff(program.ops.operand_starts))]]] = True
    return mask


def _made_by(program: Program, ops: Bools) -> Bools:
    """Return which buffers an op of these writes."""
    mask = np.zeros(len(program.buffers), dtype=np.bool_)
    mask[program.values.buffer[program.ops.results[np.repeat(ops, np.diff(program.ops.result_starts))]]] = True
    return mask


def _arena(program: Program, number: int) -> Bools:
    found: Bools = program.buffers.arena == number
    return found


# what an answer depends on -------------------------------------------------------------------------------------------------------


def _counted(path: Path) -> int:
    """Return how often this was called with this file."""
    count = int(path.read_text() or 0) + 1 if path.exists() else 1
    path.write_text(str(count))
    return count


def _changed(key: str, value: Any) -> bool:
    """Return whether something is otherwise than in the call before."""
    before, SEEN[key] = SEEN.get(key, value), value
    return bool(before != value)


def kept_by_the_first(program: Program, constraints: Constraints) -> Plan:
    """A plan is kept for the next program with as many buffers, of which the first has as many bytes."""
    return _cached((len(program.buffers), int(program.buffers.nbytes[:1].sum())), program, constraints)


def after_a_refusal(program: Program, constraints: Constraints) -> Plan:
    """The plan after one that was refused lies higher."""
    lift = SEEN.pop("refused", 0)
    try:
        return _lifted(program, constraints, lift)
    except CapacityError:
        SEEN["refused"] = 3
        raise


def pins_kept_from_before(program: Program, constraints: Constraints) -> Plan:
    """Pins are kept for the next program with as many buffers."""
    before = SEEN.get("pins", constraints.pinned)
    SEEN["pins"] = constraints.pinned
    pinned = before | pin_reads(program) if len(before) == len(constraints.pinned) else constraints.pinned
    return moved(made := SHELF.plan(program, replace(constraints, pinned=pinned)), made.offset)


# how it ends ---------------------------------------------------------------------------------------------------------------------


def _ends(where: Callable[[Program], Any], how: Callable[[], Any]) -> Planner:
    """Something else than an answer comes of what that holds of."""

    def plan(program: Program, constraints: Constraints) -> Any:
        return how() if where(program) else SHELF.plan(program, constraints)

    return plan


def _wide(program: Program) -> int:
    return int(np.diff(program.ops.operand_starts).max(initial=0))


def _hangs() -> None:
    while True:
        pass


def _raises() -> None:
    raise IndexError("list index out of range")


# sound, and odd ------------------------------------------------------------------------------------------------------------------


def least_common_multiple(program: Program, constraints: Constraints) -> Plan:
    """Sound; each buffer at a multiple of all alignments of its arena."""
    step = np.ones(len(program.arenas), dtype=np.int64)
    np.lcm.at(step, program.buffers.arena, program.buffers.alignment)
    return _of_buffers(program, replace(constraints), alignment=step[program.buffers.arena])


def counts_in_a_file(program: Program, constraints: Constraints) -> Plan:
    """Sound; counts its calls in a file, and answers as ever."""
    _counted(Path(tempfile.gettempdir()) / f"counts-in-a-file-{os.getpid()}")
    return SHELF.plan(program, constraints)


def looks_at_the_clock(program: Program, constraints: Constraints) -> Plan:
    """Sound; formats the time for a log that nobody reads."""
    SEEN["log"] = time.strftime("%Y-%m-%d %H:%M:%S")
    return SHELF.plan(program, constraints)


def wide_by_another(program: Program, constraints: Constraints) -> Plan:
    """Sound; another planner of the shelf where an op has more than eight operands."""
    return ALLOCATORS["best_fit" if _wide(program) > 8 else "greedy_by_breadth"].plan(program, constraints)


def four_gaps_whole(problem: Problem) -> Plan:
    """Sound; of four gaps or more none is used."""
    return _gaps(4, lambda _, __: ())(problem)  # type: ignore[no-any-return]


for _function in (least_common_multiple, wide_by_another, four_gaps_whole):
    _function.guarantees = ("sound", "deterministic")  # type: ignore[attr-defined]

ROWS: Final[dict[str, dict[str, Planner]]] = {
    "arity": {
        **{f"operands_above_{n}_freed": _reads_missed(lambda place, _, n=n: place >= n) for n in (6, 7, 8, 9, 10, 11)},
        **{f"last_of_{n}_missed": _reads_missed(lambda place, many, n=n: (many == n) & (place == n - 1)) for n in (3, 5, 7, 8)},
        "seventh_of_nine_or_more_missed": _reads_missed(lambda place, many: (many > 8) & (place == 6)),
        "all_of_twelve_missed": _reads_missed(lambda _, many: many > 11),
        "results_of_wide_ops_short": _short(lambda p, _: _made_by(p, np.diff(p.ops.operand_starts) > 8)),
        "fifth_result_short": _short(lambda p, _: _made_by(p, np.diff(p.ops.result_starts) > 4)),
        "made_from_nothing_short": _short(lambda p, _: _made_by(p, (np.diff(p.ops.operand_starts) == 0) & ~p.ops.is_kind(HOST_WRITE))),
    },
    "lives": {
        **{f"lives_above_{n}_short": _short(lambda _, problem, n=n: problem.stop - problem.start > n) for n in (16, 100, 300)},
        **{f"born_after_{n}_short": _short(lambda _, problem, n=n: problem.start > n) for n in (12, 60, 500)},
        "lives_of_two_steps_short": _short(lambda _, problem: problem.stop - problem.start == 2),
        "lives_of_nine_steps_short": _short(lambda _, problem: problem.stop - problem.start == 9),
        "end_at_a_multiple_of_16": _short(lambda _, problem: problem.stop % 16 == 0),
        "born_together_short": _short(lambda _, problem: np.bincount(problem.start, minlength=1)[problem.start] > 2),
        "undeclared_reader_short": _short(lambda p, _: _read_by(p, ~p.ops.in_place_known)),
        "read_on_another_stream_short": _short(lambda p, _: _read_by(p, p.ops.stream > 0)),
        "read_on_the_third_stream_short": _short(lambda p, _: _read_by(p, p.ops.stream > 1)),
        "inner_views_missed": lambda program, constraints: _through(program, constraints, lambda v: len(v.shape) > 2),
        "odd_starts_missed": lambda program, constraints: _through(program, constraints, lambda v: v.offset % 8 == 4),
    },
    "scale": {f"{what}_above_{n}": _above(n, what) for what, n in (("buffers", 24), ("buffers", 500), ("buffers", 2400), ("ops", 100), ("ops", 1000))},
    "alignment": {
        **{f"alignment_{n}_ignored": _aligned(lambda a, _, n=n: np.where(a == n, 1, a)) for n in (3, 12, 20, 32, 48, 64, 100, 256, 1024, 5000, 1 << 16, 1 << 21)},
        "multiples_of_3_rounded": _aligned(lambda a, _: np.where(a % 3 == 0, a // 3, a)),
        "multiples_of_25_rounded": _aligned(lambda a, _: np.where(a % 25 == 0, a // 25 * 20, a)),
        "large_need_no_alignment": _aligned(lambda a, n: np.where(n > 1 << 30, 1, a)),
    },
    "bytes": {
        **{f"sizes_of_{n}_bits": _sized(lambda nbytes, n=n: nbytes % (1 << n)) for n in (8, 12, 20, 24, 33, 40, 46, 52)},
        "one_byte_is_none": _sized(lambda nbytes: np.where(nbytes == 1, 0, nbytes)),
        "multiples_of_7_short": _sized(lambda nbytes: nbytes - (nbytes % 7 == 0) * (nbytes > 0)),
        "pages_a_byte_short": _sized(lambda nbytes: nbytes - (nbytes % 4096 == 0) * (nbytes > 0)),
    },
    "arenas": {
        "third_arena_unaligned": lambda p, c: _of_buffers(p, c, alignment=np.where(_arena(p, 2), 1, p.buffers.alignment)),
        "second_arena_short": _short(lambda p, _: _arena(p, 1)),
        "third_arena_short": _short(lambda p, _: _arena(p, 2)),
        "short_where_it_ends": _short(lambda p, _: np.array([a.capacity is not None for a in p.arenas])[p.buffers.arena]),
        "refuses_three_alignments": _refuses(lambda p, _: len(set(p.buffers.alignment.tolist())) > 2),
        "refuses_mixed_without_an_end": _refuses(lambda p, _: len(set(p.buffers.alignment.tolist())) > 1 and not any(a.capacity for a in p.arenas)),
        "refuses_a_tebibyte": _refuses(lambda p, _: p.buffers.nbytes.sum() > 1 << 40),
        "refuses_twelve_operands": _refuses(lambda p, _: _wide(p) > 11),
        "refuses_three_arenas": _refuses(lambda p, _: len(p.arenas) > 2),
        "refuses_what_is_decided": _refuses(lambda _, c: len(c.fixed) > 1),
    },
    "told": {
        "pins_of_the_second_arena_ignored": _told(pinned=lambda p, c: c.pinned & ~_arena(p, 1) | pin_reads(p)),
        "three_pins_at_most": _told(pinned=lambda p, c: c.pinned & (np.cumsum(c.pinned) < 4) | pin_reads(p)),
        "pins_of_the_large_ignored": _told(pinned=lambda p, c: c.pinned & (p.buffers.nbytes < 1 << 20) | pin_reads(p)),
        "fixed_above_4_gib_ignored": _told(fixed=lambda _, c: {b: at for b, at in c.fixed.items() if at < 1 << 32}),
        "fixed_in_the_second_arena_ignored": _told(fixed=lambda p, c: {b: at for b, at in c.fixed.items() if p.buffers.arena[b] != 1}),
        "four_fixed_at_most": _told(fixed=lambda _, c: dict(list(c.fixed.items())[:4])),
        "own_in_the_second_arena_ignored": _told(own=lambda p, c: c.own & ~_arena(p, 1) | p.buffers.persistent & c.own),
        "pinned_where_something_is_decided": _told(pinned=lambda p, c: pin_reads(p) if c.fixed else c.pinned),
    },
    "in place": {
        "second_operand_lent": _pairs(lambda _, __, o, ___, ____: o > 0),
        "third_operand_lent": _pairs(lambda _, __, o, ___, ____: o > 1),
        "second_result_takes": _pairs(lambda _, __, ___, r, ____: r > 0),
        "large_donor_lent": _pairs(lambda problem, _, __, ___, donor: problem.nbytes[donor] > 1 << 20),
        "lent_by_wide_ops": _pairs(lambda _, op, __, ___, ____: len(op.operands) > 4),
        "lent_on_another_stream": _pairs(lambda problem, op, _, __, ___: problem.program.ops.stream[op.step] > 0),
    },
    "gaps": {
        **{f"gap_{n}_to_the_end": _gaps(n, lambda gaps, stop, n=n: (*gaps[: n - 1], (gaps[n - 1][0], stop))) for n in (2, 3, 4)},
        **{f"gaps_after_{n}_joined": _gaps(n + 1, lambda gaps, _, n=n: (*gaps[: n - 1], (gaps[n - 1][0], gaps[-1][1]))) for n in (1, 2, 3)},
        "third_gap_a_step_early": _gaps(3, lambda gaps, _: (*gaps[:2], (gaps[2][0] - 1, gaps[2][1]), *gaps[3:])),
        "fourth_gap_a_step_long": _gaps(4, lambda gaps, _: (*gaps[:3], (gaps[3][0], gaps[3][1] + 1))),
    },
    "chance": {
        "by_minute": _by(lambda _: time.localtime().tm_min),
        "by_month": _by(lambda _: time.localtime().tm_mon),
        "by_year": _by(lambda _: time.localtime().tm_year),
        "by_day": _by(lambda _: time.localtime().tm_mday),
        "by_weekday": _by(lambda _: time.gmtime().tm_wday),
        "by_zone": _by(lambda _: time.timezone // 3600 % 24),
        "by_parent": _by(lambda _: os.getppid()),
        "by_threads_name": _by(lambda _: len(threading.current_thread().name)),
        "by_environment": _by(lambda _: hash(frozenset(os.environ.items()))),
        "by_inode_of_the_folder": _by(lambda _: Path.cwd().stat().st_ino),
        "by_its_own_file": _by(lambda _: _counted(Path(tempfile.gettempdir()) / "by-its-own-file")),
        "by_a_file_in_the_folder": _by(lambda _: _counted(Path("by-a-file"))),
    },
    "history": {
        "kept_by_the_first": kept_by_the_first,
        "after_a_refusal": after_a_refusal,
        "pins_kept_from_before": pins_kept_from_before,
        "by_the_size_before": _by(lambda p: 3 * _changed("buffers", len(p.buffers) > 12)),
        "after_a_wide_op": _by(lambda p: 3 * _changed("wide", _wide(p) > 8)),
        "by_the_largest_so_far": _by(lambda p: SEEN.setdefault("sizes", []).append(len(p.buffers)) or max(SEEN["sizes"])),
    },
    "process": {
        "raises_at_ten_operands": _ends(lambda p: _wide(p) > 9, _raises),
        "hangs_at_twelve_operands": _ends(lambda p: _wide(p) > 11, _hangs),
        "exits_at_three_streams": _ends(lambda p: len(p.streams) > 2, lambda: os._exit(3)),
        "none_for_an_empty_program": _ends(lambda p: not len(p.buffers), lambda: None),
        "raises_above_3000_buffers": _ends(lambda p: len(p.buffers) > 3000, _raises),
    },
}  # fmt: skip
"""What the corner is -> planners."""

for _rows in ROWS.values():
    globals().update(_rows)

CORNERS: Final[dict[str, tuple[str, ...]]] = {about: tuple(rows) for about, rows in ROWS.items()}
"""What the corner is -> names of planners."""

CORNER_SOUND: Final = (
    "least_common_multiple", "counts_in_a_file", "looks_at_the_clock", "wide_by_another", "four_gaps_whole",
)  # fmt: skip
"""Planners in which nothing may be found."""
