"""Terms and certificates as text: words and whole numbers, separated by blanks.

    terms        "allocsim-terms" 2 "programs" list(program) "plans" list(list(slot)) "session" memory list(run) "end"
    program      list(buffer) list(value) list(op)
    buffer       nbytes name
    value        buffer width offset bit_offset list(count stride)
    op           kind stream list(after) list(operand) list(result) list(operand result strength)
    slot         "at" arena offset | "own"
    memory       "shared" | "fresh"
    run          program plan list(skip) waits read_after
    waits        "all" | "these" list(run)
    certificate  "allocsim-certificate" 2 "depth" N "claims" list(list(list(piece))) "clocks" list(clock) "end"
    piece        start length node result shift
    clock        chain list(node) list(chain node)

A list is its length, then its items. Programs, plans, runs, buffers, values, ops, streams, arenas
and names are counted from 1, and 0 is none; positions in a promise are from 0. The lists of claims
and clocks have an item for each node, in order; there are no clocks where all nodes are on one
chain. `terms` and `claims` say what each number means. `proof/main.ml` reads this.

What this module does not see: what any of it means.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

from allocsim.certificates.claims import Certificate, Clock
from allocsim.certificates.terms import OpTerm, ProgramTerm, RunTerm, Terms, ValueTerm

Item = TypeVar("Item")


def terms_text(terms: Terms) -> str:
    """Return terms as text."""
    lines = ["allocsim-terms 2", f"programs {len(terms.programs)}", *map(_program, terms.programs)]
    lines += [f"plans {len(terms.plans)}", *(_list(_slot, slots) for slots in terms.plans)]
    lines += [f"session {'shared' if terms.shared else 'fresh'} {len(terms.session)}", *map(_run, terms.session)]
    return "\n".join([*lines, "end", ""])


def certificate_text(certificate: Certificate) -> str:
    """Return a certificate as text."""
    lines = ["allocsim-certificate 2", f"depth {certificate.depth}", f"claims {len(certificate.claims)}"]
    lines += [_list(lambda pieces: _list(_numbers, pieces), node) for node in certificate.claims]
    lines += [f"clocks {len(certificate.clocks)}", *map(_clock, certificate.clocks)]
    return "\n".join([*lines, "end", ""])


def _list(write: Callable[[Item], str], items: Sequence[Item]) -> str:
    return " ".join([str(len(items)), *map(write, items)])


def _numbers(items: Iterable[int]) -> str:
    return " ".join(map(str, items))


def _position(index: int | None) -> str:
    return "0" if index is None else str(index + 1)


def _program(program: ProgramTerm) -> str:
    buffers = _list(lambda buffer: f"{buffer.nbytes} {_position(buffer.name)}", program.buffers)
    return "\n".join([buffers, _list(_value, program.values), str(len(program.ops)), *map(_op, program.ops)])


def _value(value: ValueTerm) -> str:
    return f"{_position(value.buffer)} {_numbers(value[1:4])} {_list(_numbers, value.dims)}"


def _op(op: OpTerm) -> str:
    lists = " ".join(_list(_position, positions) for positions in (op.after, op.operands, op.results))
    return f"{op.kind} {_position(op.stream)} {lists} {_list(lambda promise: ' '.join(map(str, promise)), op.promises)}"


def _slot(slot: tuple[int, int] | None) -> str:
    return "own" if slot is None else f"at {_position(slot[0])} {slot[1]}"


def _run(run: RunTerm) -> str:
    waits = "all" if run.waits is None else f"these {_list(_position, run.waits)}"
    skip = _list(_position, run.skip)
    return f"{_position(run.program)} {_position(run.plan)} {skip} {waits} {_position(run.read_after)}"


def _clock(clock: Clock) -> str:
    return f"{clock.chain} {_list(str, clock.earlier)} {_list(_numbers, clock.ends)}"
