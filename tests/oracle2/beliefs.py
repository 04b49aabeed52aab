"""What a planner believed, against the segments of the program it believed it of, run once from fresh memory.

Readings. `start` and `stop` are held against accesses, also for a persistent buffer. A gap over a step of a segment is
`LifetimeTooShort`, whoever reads later. `LifetimeTooLong` is a believed step, gaps taken out, at which no segment is. A
pair is bad unless the two, both at one address, would be live together at some step and might share at each such step, by
a hand-over or by tags. Of a program without ops nothing is known that a belief could miss: only sizes are held against it.
"""

from .memory import apart, replay
from .reading import alone
from .segments import Life, lives
from .sharing import Scene, hand_over, hold_the_same, together


def judge_problem(document, index, kinds):
    """Return (violations, warnings) of one problem: one record for each (problem, buffer) or (problem, pair), and kind."""
    problem = document.problems[index]
    program = document.programs[problem["program"]]
    base = {"problem": index, "program": program.index}
    violations, warnings = [], []
    believed = problem.get("nbytes")
    small = [b.index for b in program.buffers if believed is not None and believed[b.index] < b.nbytes]
    violations += [{"kind": "BadSize", **base, "buffer": b} for b in small]
    if not program.ops:
        return violations, warnings
    single = alone(document, program.index)
    scene = Scene(single, single.runs[0], lives(single, single.runs[0]), replay(single, apart).states[0], kinds)
    pinned = set(problem.get("pinned") or ())
    for buffer, life in zip(program.buffers, scene.lives, strict=True):
        kind = _too_short(program, problem, buffer.index, life)
        if kind is not None:
            violations.append({"kind": kind, **base, "buffer": buffer.index})
        if buffer.index not in pinned and believed_steps(problem, buffer.index) - life.steps:
            warnings.append({"kind": "LifetimeTooLong", **base, "buffer": buffer.index})
    for donor, recipient in dict.fromkeys(map(tuple, problem.get("may_share") or ())):
        if not _good_pair(scene, donor, recipient):
            violations.append({"kind": "BadShare", **base, "buffer": donor, "other_buffer": recipient})
    return violations, warnings


def _gaps(problem, buffer):
    gaps = (problem.get("gaps") or {}).get(str(buffer)) or ()
    return {t for first, stop in gaps for t in range(first, stop)}


def believed_steps(problem, buffer):
    """Return the steps at which a buffer is believed to be live."""
    return set(range(problem["start"][buffer], problem["stop"][buffer])) - _gaps(problem, buffer)


def _too_short(program, problem, buffer, life):
    if _gaps(problem, buffer) & life.steps:
        return "LifetimeTooShort"
    within = range(problem["start"][buffer], problem["stop"][buffer])
    accesses = life.reads | life.writes
    if all(t in within for t in accesses):
        return None
    missed = [t for t in life.reads if t not in within]
    return "MissingPin" if missed and all(program.ops[t].kind == "host.read" for t in missed) else "LifetimeTooShort"


def _good_pair(scene, donor, recipient):
    """Say whether a recipient might lie at its donor's address, at every step at which both are live."""
    place = together(donor, recipient)
    common = scene.lives[donor].steps & scene.lives[recipient].steps
    return bool(common) and all(
        hand_over(scene, place, t, donor, recipient) or hold_the_same(scene, t, donor, recipient, 0) for t in common
    )


def believed_lives(document, index):
    """Return the lives of the buffers of a program without ops, as its problem believes them."""
    problem = document.problems[index]
    return [
        Life(frozenset(steps), frozenset(t for t in steps if t + 1 in steps), frozenset(), frozenset(), frozenset())
        for steps in (believed_steps(problem, b.index) for b in document.programs[problem["program"]].buffers)
    ]
