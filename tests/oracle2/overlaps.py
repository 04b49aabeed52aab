"""`Overlap`: two buffers of a run whose bytes and lives meet at a step at which they may not share.

Reading. A program without ops is judged by the first problem that its plan, or else the document, has for it; there a
pair of `may_share` is permitted at the step where the donor's believed life ends and the recipient's begins, if both lie at one address.
"""

from .beliefs import believed_lives
from .sharing import may_share, might_share, together


def judge_overlaps(scene, place):
    """Return one record for each pair of buffers of a run that overlap, with the first step at which they do."""
    found, run = [], scene.run
    for a, b in crossing(scene):
        common = sorted(scene.lives[a].steps & scene.lives[b].steps)
        bad = [t for t in common if not permitted(scene, place, t, a, b)]
        if bad:
            record = {"run": run.index, "program": run.program, "plan": run.plan, "step": bad[0], "op": bad[0]}
            found.append({"kind": "Overlap", **record, "buffer": a, "other_buffer": b, "steps": bad})
    return found


def crossing(scene):
    """Return the pairs of buffers of a run whose bytes lie on each other in one arena."""
    document = scene.document
    slots = document.plans[scene.run.plan]["slots"]
    spans = [
        (b.index, slot["arena"], slot["offset"], slot["offset"] + b.nbytes)
        for b, slot in zip(scene.program.buffers, slots, strict=True)
        if isinstance(slot, dict) and b.nbytes
    ]
    return [
        (a, b)
        for i, (a, arena, first, end) in enumerate(spans)
        for b, other, start, stop in spans[i + 1 :]
        if arena == other and max(first, start) < min(end, stop)
    ]


def permitted(scene, place, step, a, b):
    """Say whether two live buffers may share at a step."""
    if scene.program.ops:
        return may_share(scene, place, step, a, b)
    problem = problem_of(scene.document, scene.run)
    pairs = [tuple(pair) for pair in scene.document.problems[problem].get("may_share") or ()]
    if place(scene.run, scene.program.buffers[a]) != place(scene.run, scene.program.buffers[b]):
        return False
    return any(
        (donor, recipient) in pairs and scene.lives[donor].ends(step) and scene.lives[recipient].begins(step)
        for donor, recipient in ((a, b), (b, a))
    )


def imaginable(scene, step, a, b):
    """Say whether some plan might be permitted to lay two live buffers over each other at a step."""
    return might_share(scene, step, a, b) if scene.program.ops else permitted(scene, together(a, b), step, a, b)


def problem_of(document, run):
    """Return the problem by which a program without ops is judged; None where there is none."""
    own = document.plans[run.plan].get("problem")
    if own is not None and document.problems[own]["program"] == run.program:
        return own
    return next((i for i, p in enumerate(document.problems) if p["program"] == run.program), None)


def lives_without_ops(document, run):
    """Return the believed lives of a program without ops; nothing is live where nobody believes anything."""
    problem = problem_of(document, run)
    return None if problem is None else believed_lives(document, problem)
