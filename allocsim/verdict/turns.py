"""Join the causes of one fault that shows in several turns of a loop or on several program paths.

A flattened program has an op for each turn of a loop, and a document has a program for each path
(*way*) through the original. So one wrong slot of the original is several changes here. The
importer states which ops are turns of one op, in the `meta` of each op: `{"turn_of": "add.3"}`, the
name without the turn. A name is unique only within one call (`allocsim.verdict.calls`), since two
loops may each have an op `add.3`. Ways are programs with the same name and different `path`. Ops of
two ways are one op if they have the same name, and the name is unique in each program. The same
rule applies to buffers. A buffer first written by an op with `turn_of` is identified by that op
instead of by its own name.

Causes are joined if class, party, evidence and change are equal except for turns and ways. Turns
must belong to one program and one plan. If ways were planned several times, the first plan of one
way is matched with the first plan of each other way, and so on. The earliest cause represents the
joined causes. Each cause keeps its change, and a cure makes all these changes.

Complexity: O(ops + results), once for each program that a change names.

This module does not examine violations, and what a change does.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import cache

from allocsim.cure.changes import program_of
from allocsim.model import Document, Program
from allocsim.verdict.calls import OUTERMOST, calls, is_label
from allocsim.verdict.records import Cause
from allocsim.verdict.saying import wrong_bytes

Name = tuple[str | int, ...]


def by_turns(document: Document, causes: Sequence[Cause]) -> list[Cause]:
    """Return the causes in the given order; causes that differ only in turn or way are joined."""
    names: Callable[[int], _Names] = cache(lambda number: _Names(document.programs[number]))
    index = {id(program): number for number, program in enumerate(document.programs)}
    ways = _numbered((program.name, program.path) for program in document.programs)
    plans = _numbered(id(plan.program) for plan in document.plans)
    problems = _numbered(id(problem.program) for problem in document.problems)
    found: dict[object, list[Cause]] = defaultdict(list)
    for cause in causes:
        number, change = index[id(program_of(cause.change, document))], cause.change
        program = document.programs[number]
        way = (program.name, ways[number]) if program.path else number
        made = None if change.plan is None else plans[change.plan]
        believed = None if change.problem is None else problems[change.problem]
        key = _key(names(number), cause)
        found[id(cause) if key is None else (way, made, believed, *key)].append(cause)
    return [_joined(rows) for rows in found.values()]


def _numbered(things: Iterable[object]) -> list[int]:
    """Return for each item the number of equal items before it."""
    count: Counter[object] = Counter()
    found = []
    for thing in things:
        found.append(count[thing])
        count[thing] += 1
    return found


def _joined(rows: list[Cause]) -> Cause:
    if len(rows) == 1:
        return rows[0]
    turns = tuple(sorted(rows, key=lambda cause: (cause.first.run or 0, cause.first.step or 0)))
    violations = tuple({id(v): v for cause in turns for v in cause.violations}.values())
    return replace(
        turns[0], places=len(violations), violations=violations, wrong_bytes=wrong_bytes(violations), turns=turns
    )


def _key(names: "_Names", cause: Cause) -> tuple[object, ...] | None:
    """Return a key that is equal for causes to join; None if an op or buffer has no unique name."""
    change = cause.change
    ops = [names.op(step) for step in (change.op, change.after) if step is not None]
    buffers = [names.buffer(buffer) for buffer in (change.buffer, change.other) if buffer is not None]
    if None in ops or None in buffers or not (ops or buffers):
        return None
    rest = (change.kind, change.op_kind, change.operand, change.result)
    return cause.class_, cause.party, cause.evidence, rest, tuple(ops), tuple(buffers)


class _Names:
    """Names for the ops and buffers of a program that are equal in all turns and ways."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self._calls = calls(program)
        self._ops, self._buffers = Counter(program.ops.names), Counter(program.buffers.names)
        self._in_call = Counter((self._calls.get(step), name) for step, name in enumerate(program.ops.names))
        self._made: dict[int, Name] = {}
        """For each buffer, the name of the op that first writes it, and the result's position
        there."""
        for step in sorted(program.ops.meta):
            turn = self._turn(step)
            if turn is not None:
                for place, value in enumerate(program.ops[step].results):
                    self._made.setdefault(int(program.values.buffer[value]), (*turn, place))

    def op(self, step: int) -> Name | None:
        """Return the name of an op without its turn, or None without a unique name."""
        if not 0 <= step < len(self.program.ops):
            return None
        turn = self._turn(step)
        return self._own(self._ops, self.program.ops.names[step]) if turn is None else turn

    def buffer(self, buffer: int) -> Name | None:
        """Return the name of a buffer without turns, or None without a unique name."""
        return self._made.get(buffer) or self._own(self._buffers, self.program.buffers.names[buffer])

    def _turn(self, step: int) -> Name | None:
        """Return the op's call and its `turn_of` name. Return None if its `meta` has no `turn_of`,
        or if its own name differs from `turn_of` and is not unique in its call.
        """
        said, name = self.program.ops.meta.get(step, {}).get("turn_of"), self.program.ops.names[step]
        if not is_label(said) or (said != name and self._in_call[self._calls.get(step), name] > 1):
            return None
        return *self._calls.get(step, OUTERMOST), said

    def _own(self, count: Counter[str], name: str) -> Name | None:
        return (name,) if self.program.path and count[name] == 1 else None
