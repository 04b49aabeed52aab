"""Slots for a program: sound ones by trying, and others by chance.

A buffer is tried at the addresses where something might be shared, and below and above what is placed; it stays where
every placed buffer that it meets may share with it at each step at which both are live. That asks the oracle's own rules,
so that what is made is mostly clean by them; nothing is concluded from it.
"""

from .aliasing import clashing_results, examine
from .memory import Site, apart, replay
from .reading import alone, read
from .segments import lives
from .sharing import Scene, may_share


def homes_of(rng, pool, arenas):
    """Return, for each persistent buffer, the one place that all plans are to give it: an offset, or "own"."""
    homes, ends = {}, {}
    for name, buffer in pool.items():
        arena = buffer.get("arena", 0)
        nbytes = max(buffer["nbytes"], *(buffer.get("nbytes_range") or (0,)))
        homes[name] = "own" if rng.random() < 0.3 else _up(ends.get(arena, 0), 4)
        ends[arena] = _up(ends.get(arena, 0), 4) + nbytes
    return homes


def lay_out(rng, document, index, *, homes, base, spread):
    """Return (slots, the end of what is used in each arena) for a program, above `base` in each arena.

    Persistent buffers lie at their `homes`, where they have one; with `spread`, no two buffers share.
    """
    sole = len(document["programs"]) == 1 and not base
    document = {**document, "plans": [], "problems": []}
    document.pop("session", None)
    scene = _scene(document, index)
    program = scene.program
    style = rng.choices(("tight", "moved", "apart", "random"), (1, 1, 12, 0.5) if spread else (14, 1.5, 2, 0.3))[0]
    sizes = [_size(document, index, b.index) for b in program.buffers]
    places = {}
    order = sorted(program.buffers, key=lambda b: (not b.persistent, rng.random()))
    for buffer in order:
        home = homes.get(buffer.name)
        if buffer.persistent and home is not None:
            places[buffer.index] = 0 if home == "own" else home
            continue
        if style == "random":
            places[buffer.index] = rng.randrange(0, 24)
            continue
        taken = {
            i: places[i]
            for i in places
            if program.buffers[i].arena == buffer.arena and homes.get(program.buffers[i].name) != "own"
        }
        ends = [taken[i] + sizes[i] for i in taken]
        weights = [taken[i] + sizes[i] for i in taken if program.buffers[i].persistent]
        lowest = max([base.get(buffer.arena, 0), *(weights if not sole else ())])
        if not sole and homes:
            lowest = max(lowest, 24)
        floor = max([lowest, *(ends if style == "apart" else weights)])
        options = _options(rng, scene, buffer, taken, sizes=sizes, lowest=lowest, floor=floor)
        if style == "apart":
            options = [o for o in options if o >= floor]
        chosen = next((o for o in options if _fits(scene, {**taken, buffer.index: o}, buffer.index, sizes)), None)
        places[buffer.index] = chosen if chosen is not None else _up(max([lowest, *ends]), buffer.alignment)
    if style == "moved" and places:
        moved = rng.choice(sorted(places))
        places[moved] = max(
            0, rng.choice((places[rng.choice(sorted(places))], places[moved] + rng.choice((-2, -1, 1, 2))))
        )
    slots = [
        "own"
        if b.persistent and homes.get(b.name) == "own"
        else _slot(rng, b, places[b.index], sizes[b.index], arenas=len(document["arenas"]), homes=homes)
        for b in program.buffers
    ]
    ends = dict(base)
    for b in program.buffers:
        ends[b.arena] = max(ends.get(b.arena, 0), places[b.index] + sizes[b.index])
    return slots, ends


def _scene(document, index):
    single = alone(read(document), index)
    return Scene(single, single.runs[0], lives(single, single.runs[0]), replay(single, apart).states[0], {})


def _size(document, index, buffer):
    written = document["programs"][index]["buffers"][buffer]
    return max(written["nbytes"], *(written.get("nbytes_range") or (0,)))


def _up(offset, alignment):
    return -(-offset // alignment) * alignment


def _options(rng, scene, buffer, taken, *, sizes, lowest, floor):
    """Return offsets to try: over buffers that an op joins to this one, then the rest from below."""
    per_byte = scene.document.cells_per_byte
    values, over = scene.program.values, []
    for op in scene.program.ops:
        for w in op.results:
            for v in op.operands:
                a, b = (v, w) if values[w].buffer == buffer.index else (w, v)
                if values[b].buffer == buffer.index and values[a].buffer in taken:
                    over.append(taken[values[a].buffer] + (values[a].start - values[b].start) // per_byte)
    rng.shuffle(over)
    rest = sorted({lowest, floor, *taken.values(), *(taken[i] + sizes[i] for i in taken)})
    rest = [_up(o, buffer.alignment) for o in rest if o >= (lowest if rng.random() < 0.15 else floor)]
    over = [o for o in over if o >= lowest and o % buffer.alignment == 0]
    return ([] if rng.random() < 0.15 else over) + rest


def _fits(scene, places, buffer, sizes):
    """Say whether a buffer may lie where it is, beside and over all others that are placed."""
    per_byte = scene.document.cells_per_byte

    def place(_, b):
        return (("arena",), places[b.index] * per_byte) if b.index in places else (("alone", b.index), 0)

    for other in places:
        if other == buffer or max(places[other], places[buffer]) >= min(places[i] + sizes[i] for i in (other, buffer)):
            continue
        common = scene.lives[other].steps & scene.lives[buffer].steps
        if not all(may_share(scene, place, t, buffer, other) for t in common):
            return False
        if not all(
            _kept(Site(place, scene.run, scene.program), op)
            for op in scene.program.ops
            if {buffer, other} <= _touched(scene, op)
        ):
            return False
    return True


def _touched(scene, op):
    return {scene.program.values[v].buffer for v in op.operands + op.results}


def _kept(site, op):
    """Say whether an op keeps the rules for its operands and results, as they would lie."""
    return not examine(site, op, {})[0] and not clashing_results(site, op)


def _slot(rng, buffer, offset, nbytes, *, arenas, homes):
    draw = rng.random()
    if draw < 0.03 and not (buffer.persistent and homes):
        return "own"
    if draw > 0.997:
        return None
    slot = {"arena": buffer.arena, "offset": offset, "nbytes": nbytes}
    if draw > 0.99:
        slot |= rng.choice(
            (
                {"offset": offset - 1},
                {"nbytes": max(0, nbytes - 1)},
                {"offset": offset + 1},
                {"arena": rng.randrange(arenas)},
            )
        )
    elif rng.random() < 0.05:
        slot["nbytes"] = nbytes + 1
    return slot
