"""The bound on the bytes that any plan needs, and the peak of the plans at hand.

Sentence 7 counts "each class of buffers that share an address by pairs or tags once". Reading taken for
`lower_bound_bytes`: two buffers are of one class at a step if they might share there, wherever a plan puts them, so that
no clean plan is below the bound, and it does not hang on where this plan put them; classes are closed under "might share
with". A buffer of no bytes overlaps nothing and is at no address, so it makes no class of two others. The
other reading, buffers that do share as planned, is `bound_as_planned`. Buffers without a slot are left out of both. The
bound is taken over all runs and steps, the peak over the plans that some run uses: "the highest end of any slot, summed
over arenas" is read over all of them at once; `peak_of_a_plan` is the largest of one plan.
"""

from .overlaps import crossing, imaginable, permitted


def bounds(scene, place):
    """Return (the bound at one address, the bound as planned) of one run, in bytes."""
    slots = scene.document.plans[scene.run.plan]["slots"]
    buffers = [b for b in scene.program.buffers if isinstance(slots[b.index], dict) and b.nbytes]
    over = set(crossing(scene))
    steps = sorted({t for life in scene.lives for t in life.steps})
    free = planned = 0
    for t in steps:
        live = [b for b in buffers if t in scene.lives[b.index].steps]
        pairs = [(a.index, b.index) for i, a in enumerate(live) for b in live[i + 1 :]]
        might = [(a, b) for a, b in pairs if imaginable(scene, t, a, b)]
        do = [(a, b) for a, b in pairs if (a, b) in over and permitted(scene, place, t, a, b)]
        free, planned = max(free, _once(live, might)), max(planned, _once(live, do))
    return free, planned


def _once(live, pairs):
    """Return the sum, over the classes that pairs make of live buffers, of the largest of each class."""
    name = {b.index: b.index for b in live}
    for a, b in pairs:
        old, new = name[b], name[a]
        name = {i: new if c == old else c for i, c in name.items()}
    largest = {}
    for b in live:
        largest[name[b.index]] = max(largest.get(name[b.index], 0), b.nbytes)
    return sum(largest.values())


def peaks(document):
    """Return the highest end of any slot, summed over arenas: (over all plans in use, the largest of one plan)."""
    together, single = {}, []
    for plan in dict.fromkeys(run.plan for run in document.runs):
        ends = {}
        for slot in document.plans[plan]["slots"]:
            if isinstance(slot, dict):
                ends[slot["arena"]] = max(ends.get(slot["arena"], 0), slot["offset"] + slot["nbytes"])
        together = {arena: max(together.get(arena, 0), ends.get(arena, 0)) for arena in together | ends}
        single.append(sum(ends.values()))
    return sum(together.values()), max(single, default=0)
