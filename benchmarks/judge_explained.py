"""Mutants of the judge that no test can kill, each with the reason: it is the source in other words, or changes only how fast it is."""

from typing import Final

ONE_LENGTH: Final = (
    "both are made with one length, row by row of the same: that they have it is asked for whoever changes this"
)

WITHIN: Final = (
    "the walk ends at no node that is not within what is asked or marked: one more look or mark there is the same"
)

EXPLAINED: Final[dict[tuple[str, str, str], str]] = {
    (
        "allocsim/judge/fast/h_sessions.py",
        "for step, (stream, late) in enumerate(zip(ops.stream.tolist(), is_late.tolist(), strict=True)):",
        "True -> False",
    ): ONE_LENGTH,
    (
        "allocsim/judge/fast/h_sessions.py",
        "self.place = [np.full(len(trial.program.ops), -1, dtype=np.int64) for trial in trials]",
        "1 -> 2",
    ): "each op gets its place; what stands there before is not read",
    (
        "allocsim/judge/fast/h_sessions.py",
        "held = last.get(stream, -1)",
        "1 -> 2",
    ): "none before is any number below 0",
    (
        "allocsim/judge/fast/h_sessions.py",
        "self._tips[behind.index].append(self._lay((run, step), -1, waits))",
        "1 -> 2",
    ): "none before is any number below 0",
    (
        "allocsim/judge/fast/h_sessions.py",
        "last[stream] = self._lay((run, step), held, [*self._within(trial, step), *([] if held >= 0 else start)])",
        "held >= 0 -> held > 0",
    ): "node 0 is of the first run, which waits for none: its start is empty",
    (
        "allocsim/judge/fast/intervals.py",
        "width = len(points) + 1",
        "len(points) + 1 -> len(points) - 1",
    ): "the last end has the number len(points) - 1, and an end is not within",
    (
        "allocsim/judge/fast/s_apart.py",
        "if all(len(move.cut) <= FEW_STRETCHES for move in found):",
        "len(move.cut) <= FEW_STRETCHES -> len(move.cut) < FEW_STRETCHES",
    ): "whether moves are kept or found again; they are the same",
    (
        "allocsim/judge/fast/s_dataflow.py",
        "if op in hands_on and self.staged[:2] != (position, op):",
        "2 -> 3",
    ): "what is handed on is then found again for each result, and is the same",
    (
        "allocsim/cure/__init__.py",
        "parts = 2 if len(smaller) <= size else max(parts - 1, 2)",
        "2 -> 3",
    ): "into how many pieces what was found is cut first; the search ends only where no piece and no element can be left out, in either",
    (
        "allocsim/judge/fast/bound.py",
        "runs = {(trial.alike, trial.index if shares_tags(case, trial) else 0): trial for trial in case.trials}",
        "0 -> 1",
    ): "runs alike are of one program and one memory, so all of them share tags or none: the number never meets an index",
    (
        "allocsim/judge/fast/h_clocks.py",
        "facts, column = [fact.tolist() for fact in facts], lambda length: [-1] * length  # lists are quicker to index",
        "1 -> 2",
    ): "it stands for no step, and is only compared with steps and with itself: any number below 0 does",
    (
        "allocsim/verdict/judging.py",
        "return f\"{'+' if nbytes > 0 else '-'}{in_bytes(abs(nbytes))}\"",
        "nbytes > 0 -> nbytes >= 0",
    ): "the line before lets no 0 through",
    (
        "allocsim/cure/__init__.py",
        "complements = [tuple(e for e in current if e not in chunk) for chunk in chunks] if len(chunks) > 2 else []",
        "len(chunks) > 2 -> len(chunks) >= 2",
    ): "of two pieces each is the complement of the other: the same two questions would be asked twice",
    (
        "allocsim/judge/fast/h_pairs.py",
        "done = int(ends[begin - 1]) if begin else 0",
        "0 -> 1",
    ): "how many rows are looked at at once; what is found in them is the same",
    (
        "allocsim/p_sanitizer/run_script.py",
        "return -2 - key if key < -1 else -1",
        "key < -1 -> key <= -1",
    ): "for a key of -1 both sides are -1",
    (
        "allocsim/p_sanitizer/run_script.py",
        "return -3 - tag",
        "3 -> 4",
    ): "the tag of released bytes may be any number below `ZONE` that leads back to the write: -4 - tag does as well",
    (
        "allocsim/fuzzing/history.py",
        "length *= 2",
        "length *= 2 -> length += 2",
    ): "by how many the questions grow until the answer changes; what is found is cut back to the fewest all the same",
    (
        "allocsim/judge/fast/selector.py",
        "if len(start) < RECTANGLES_FROM:",
        "len(start) < RECTANGLES_FROM -> len(start) <= RECTANGLES_FROM",
    ): "from how many rows on a screen is asked; it says what the judge without it would say, only sooner",
    (
        "allocsim/fuzzing/told_constraints.py",
        "chance = rng.random((4, count))",
        "4 -> 5",
    ): "a row of chances more, which nobody reads; the rows before it are the same",
    (
        "allocsim/verdict/doings.py",
        "for step, buffer, direct in zip(steps[keep].tolist(), buffers.tolist(), own.tolist(), strict=True):",
        "True -> False",
    ): ONE_LENGTH,
    (
        "allocsim/judge/fast/s_script.py",
        "for trial, mine in zip(trials, self.of, strict=True):",
        "True -> False",
    ): ONE_LENGTH,
    (
        "allocsim/judge/fast/s_writes.py",
        "for first, second in zip(left[order].tolist(), right[order].tolist(), strict=True):",
        "True -> False",
    ): ONE_LENGTH,
    (
        "allocsim/p_sanitizer/program_facts.py",
        "for view, low, high in zip(views, bounds[:-1], bounds[1:], strict=True)",
        "True -> False",
    ): ONE_LENGTH,
    (
        "allocsim/verdict/causes.py",
        "return -1 if index is None else index",
        "1 -> 2",
    ): "an index is at least 0: any number below does",
    (
        "allocsim/verdict/stream_order.py",
        "if self.back[victim] > self.given[taker]:",
        "self.back[victim] > self.given[taker] -> self.back[victim] >= self.given[taker]",
    ): "both are places in one book, and the row at a place either takes back or gives out: they are never the same",
    (
        "allocsim/cure/mending.py",
        "if v.buffer is not None and v.other_buffer is not None",
        "v.buffer is not None and v.other_buffer is not None -> v.buffer is not None or v.other_buffer is not None",
    ): "of a pair that may not share the judge always names both",
    (
        "allocsim/cure/room.py",
        "end = max((len(program.ops) for program in programs.values()), default=0)",
        "max -> min",
    ): "read for one program only: of several each buffer is taken to be needed always, whatever the end",
    (
        "allocsim/files/journal.py",
        "rest = rest[file.write(rest) or 0 :]",
        "0 -> 1",
    ): "a write of some bytes to a file takes at least one or raises; none at all is said only of what is opened "
    "not to block",
    (
        "allocsim/judge/fast/holes.py",
        "left = np.arange(len(owner)) - begins[owner]",
        "np.arange(len(owner)) - begins[owner] -> np.arange(len(owner)) + begins[owner]",
    ): "the count of a value's pieces begins elsewhere in its round, which it goes round once all the same; what "
    "does not ascend is sorted",
    (
        "allocsim/verdict/report_facts.py",
        "return sum(later or (bool(v.run) and place(v) not in first) for v, later in zip(static, of_later, strict=True))",
        "True -> False",
    ): ONE_LENGTH,
    (
        "allocsim/verdict/stream_order.py",
        "for step, buffer in zip(steps[order].tolist(), buffers[order].tolist(), strict=True):",
        "True -> False",
    ): ONE_LENGTH,
    (
        "allocsim/verdict/doings.py",
        "strides = tuple(stride for length, stride in zip(row.shape, row.strides, strict=True) if length > 1)",
        "True -> False",
    ): "a value has as many strides as lengths, or it is refused when it is made",
    (
        "allocsim/cure/waits.py",
        "for op, (mine, row) in enumerate(zip(stream.tolist(), waits, strict=True)):",
        "True -> False",
    ): ONE_LENGTH,
    (
        "allocsim/cure/waits.py",
        "if last[mine] >= 0:",
        "last[mine] >= 0 -> last[mine] > 0",
    ): "op 0 waits for nothing, so all it knows is itself: what comes next on its stream writes over that anyhow",
    (
        "allocsim/cure/room.py",
        "fits = now >= 0 and now % step == 0 and now + size <= self.capacity(arena)",
        "0 -> 1",
    ): "of `now >= 0`: where 0 is free, the search that follows finds it first; of the remainder this is killed",
    (
        "allocsim/cure/mending.py",
        "for old, new in zip(document.plans, document.plans if plans is None else plans, strict=True)",
        "True -> False",
    ): ONE_LENGTH,
    (
        "allocsim/cure/mending.py",
        "plan_of = {id(old): new for old, new in zip(document.plans, new_plans, strict=True)}",
        "True -> False",
    ): ONE_LENGTH,
    (
        "allocsim/verdict/carries.py",
        "found[of(pair[0])].append(pair)",
        "0 -> 1",
    ): "the two of a pair are of one group, since the pair itself connects them",
    (
        "allocsim/judge/plain/byte_sums.py",
        "for step, following in pairwise([*sorted(changes), 1 << 62]):",
        "62 -> 63",
    ): "a step behind all others, any of which does",
    (
        "allocsim/judge/plain/byte_sums.py",
        "for step, following in pairwise([*sorted(changes), 1 << 62]):",
        "1 -> 2",
    ): "a step behind all others, any of which does",
    (
        "allocsim/judge/fast/bound.py",
        "width = int(last.max(initial=0)) + 1",
        "1 -> 2",
    ): "any width beyond the last end keeps the buffers apart",
    (
        "allocsim/judge/fast/h_clocks.py",
        "if b & 1:",
        "b & 1 -> b | 1",
    ): WITHIN,
    (
        "allocsim/judge/fast/h_clocks.py",
        "if a & 1:",
        "a & 1 -> a | 1",
    ): WITHIN,
    (
        "allocsim/judge/fast/l_beliefs.py",
        "several = (times[problem.may_share] > 1).any(axis=1) | (bad & accesses.program.same_ops.any())",
        "times[problem.may_share] > 1 -> times[problem.may_share] >= 1",
    ): "what is asked of buffers that live several times has the same answer for those that live once, and takes longer",
    (
        "allocsim/judge/fast/s_dataflow.py",
        "here = wanted if wanted >= first and not moving else self._as_planned(wanted, base)",
        "wanted >= first -> wanted > first",
    ): "what this run wrote is planned under the number of its write: the longer way finds that number",
    (
        "allocsim/judge/fast/s_tags.py",
        "index=0,",
        "0 -> 1",
    ): "looked up among the runs waited for alone, and this one, judged by itself, waits for none",
    (
        "allocsim/judge/fast/screens/compiling.py",
        'fast: Function = _njit(cache=True, error_model="numpy", _nrt=False)(function)',
        "True -> False",
    ): "whether machine code is kept for the next process",
    (
        "allocsim/judge/fast/screens/compiling.py",
        'fast: Function = _njit(cache=True, error_model="numpy", _nrt=False)(function)',
        "False -> True",
    ): "whether references to arrays are counted, which takes time",
    (
        "allocsim/judge/fast/screens/compiling.py",
        'fast = _njit(error_model="numpy", _nrt=False)(function)',
        "False -> True",
    ): "whether references to arrays are counted, which takes time",
    (
        "allocsim/judge/fast/screens/reads.py",
        "room: Int64s = np.zeros(1, dtype=np.int64)",
        "1 -> 2",
    ): "room for a key that nothing is kept under; the largest is read alone",
    (
        "allocsim/judge/fast/screens/reads.py",
        "columns=(key[order], run[order], begins[order], ends[order], joined(rows)), segments=2 * int(room.max()) + 8",
        "8 -> 9",
    ): "room for a segment more than there can be",
    (
        "allocsim/judge/fast/screens/reads.py",
        "return bool(np.any(times[number.ravel()[rests]] > 1))",
        "times[number.ravel()[rests]] > 1 -> times[number.ravel()[rests]] >= 1",
    ): "where the screen is not asked, the judge says the same without it",
    (
        "allocsim/judge/fast/screens/rectangles.py",
        "if len(nodes) <= 1:",
        "1 -> 2",
    ): "two nodes at the top are one family, in which a walk goes on as in any other",
    (
        "allocsim/judge/fast/accesses.py",
        "return self if self.unit == 1 else Extents(self.program)",
        "1 -> 2",
    ): "made anew it is the same",
    (
        "allocsim/judge/fast/accesses.py",
        "if self.unit == 1 and not values.packed[chosen].any():",
        "1 -> 2",
    ): "value by value the same holes are found, only later",
    (
        "allocsim/judge/fast/holes.py",
        "flat = np.concatenate([*cut, np.empty((0, 2), dtype=np.int64)])",
        "0 -> 1",
    ): "a row behind those of all values, which no value begins or ends with",
    (
        "allocsim/verdict/waiting.py",
        "singles = [ordered.waiting([wait]) for wait in waits] if len(waits) > 1 else []",
        "len(waits) > 1 -> len(waits) >= 1",
    ): "of one wait the first is all there is to choose from",
    (
        "allocsim/judge/plain/document_records.py",
        "return list(zip(self.shape, strides, strict=True))",
        "True -> False",
    ): "a value has as many strides as lengths, or it is refused when it is read",
    (
        "allocsim/judge/plain/promises.py",
        "life = tuple((start, min(stop, last)) for start, stop in self.held(buffer) if start < last)",
        "start < last -> start <= last",
    ): "what begins at the last step is cut to no step",
    (
        "allocsim/judge/plain/races.py",
        "chained = all(len(document.waits[run]) == run and document.runs[run].read_after is None for run in runs)",
        "document.runs[run].read_after is None -> document.runs[run].read_after is not None",
    ): "never of all runs, since the last has none after it to be read after: pairs that are in order are then looked at and found in order",
    (
        "allocsim/judge/plain/ranges.py",
        "i, j = (i + 1, j) if one[i][1] <= other[j][1] else (i, j + 1)",
        "one[i][1] <= other[j][1] -> one[i][1] < other[j][1]",
    ): "of two ranges with one end either may be left first: what follows shares nothing with the other",
    (
        "allocsim/judge/fast/live.py",
        "once |= regular & (count == 0) & (last >= 0)",
        "0 -> 1",
    ): "of the last use: what is used at step 0 alone is found by the way for all others; of the count this is killed",
    (
        "allocsim/judge/fast/owners.py",
        "if len(runs) <= 2 or self._count(runs[0][0], runs[-1][1]) > 8 * len(runs):",
        "8 * len(runs) -> 8 + len(runs)",
    ): "which of two ways to the same stretch is quicker",
    (
        "allocsim/judge/fast/s_events.py",
        "columns = np.array([(h.buffer, h.first, h.stop) for h in held], dtype=np.int64).reshape(-1, 3)",
        "1 -> 2",
    ): "numpy takes any number below 0 for the length that it is to find",
    (
        "allocsim/judge/fast/screens/reads.py",
        "columns = np.array(rows, dtype=np.int64).reshape(-1, 4)",
        "1 -> 2",
    ): "numpy takes any number below 0 for the length that it is to find",
    (
        "allocsim/verdict/dossier.py",
        "if v.plan is None or v.program is None or v.buffer is None:",
        "v.plan is None or v.program is None or v.buffer is None -> v.plan is None and v.program is None and (v.buffer is None)",
    ): "nothing is listed of a plan, a program or a buffer that there is not",
    (
        "allocsim/cure/mending.py",
        "rank = np.where(mine, np.where(freed, 1, -1), 0)",
        "1 -> 2",
    ): "a rank before or behind all others of the step, which any number below or above 0 is",
    (
        "allocsim/judge/fast/bound.py",
        "rank = np.cumsum(np.append(False, buffer[1:] != buffer[:-1]))",
        "False -> True",
    ): "ranks from 1 on in place of 0: their order alone counts",
}
"""(Path of the module, source line, change) -> why nothing can tell it from the source."""
