"""What planners hand over beside slots: beliefs about a program, and the events of a placement; right ones and wrong ones."""

from .reading import alone, read
from .segments import lives


def beliefs(rng, document, index, careful):
    """Return a problem for a program: true, or wrong in a lifetime, a gap, a size, a pin or a pair."""
    document = {**document, "plans": [], "problems": []}
    single = alone(read(document), index)
    program = single.programs[index]
    count = len(program.ops)
    found = lives(single, single.runs[0])
    start = [0 if b.persistent else min(life.steps, default=0) for b, life in zip(program.buffers, found, strict=True)]
    stop = [
        count if b.persistent else max(life.steps, default=-1) + 1
        for b, life in zip(program.buffers, found, strict=True)
    ]
    gaps = {str(i): _holes(life, start[i], stop[i]) for i, life in enumerate(found)}
    gaps = {i: each for i, each in gaps.items() if each and rng.random() < 0.7}
    problem = {"program": index, "start": start, "stop": stop}
    read_by_host = {program.values[v].buffer for op in program.ops if op.kind == "host.read" for v in op.operands}
    if rng.random() < 0.5:
        problem["pinned"] = sorted(read_by_host)
    for name, wanted in (("own", 0.2), ("fixed", 0.1), ("order", 0.1)):
        if rng.random() < wanted:
            problem[name] = {
                "own": [b.index for b in program.buffers if b.persistent],
                "fixed": {str(b.index): 8 * b.index for b in program.buffers[:1]},
                "order": [b.index for b in program.buffers][::-1],
            }[name]
    pairs = _pairs(rng, program, found, careful)
    if pairs:
        problem["may_share"] = pairs
    if gaps:
        problem["gaps"] = gaps
    if rng.random() < 0.25 and program.buffers:
        _spoil(rng, problem, program, count)
    return problem


def _pairs(rng, program, found, careful):
    """Return [donor, recipient] pairs of ops; careful ones are declared, and their donor's segment ends at the op."""
    pairs = {}
    for op in program.ops:
        for o, v in enumerate(op.operands):
            for r, w in enumerate(op.results):
                donor, recipient = program.values[v].buffer, program.values[w].buffer
                declared = any(pair[:2] == (o, r) for pair in op.in_place or ())
                good = declared and found[donor].ends(op.index) and found[recipient].begins(op.index)
                if donor != recipient and (good or not careful or rng.random() < 0.05):
                    pairs[donor, recipient] = None
    return [list(pair) for pair in pairs if rng.random() < 0.4]


def _holes(life, start, stop):
    """Return the steps between accesses at which no segment is, as half-open ranges."""
    holes = []
    for t in range(start, stop):
        if t in life.steps:
            continue
        if holes and holes[-1][1] == t:
            holes[-1][1] = t + 1
        else:
            holes.append([t, t + 1])
    return holes


def _spoil(rng, problem, program, count):
    b = rng.randrange(len(program.buffers))
    draw = rng.randrange(6)
    if draw == 0:
        problem["stop"][b] = max(problem["start"][b], problem["stop"][b] - rng.randint(1, 3))
    elif draw == 1:
        problem["start"][b] = min(problem["stop"][b], problem["start"][b] + 1)
    elif draw == 2:
        problem["nbytes"] = [max(0, c.nbytes - (c.index == b)) for c in program.buffers]
    elif draw == 3 and problem["stop"][b] - problem["start"][b] > 1:
        first = rng.randrange(problem["start"][b], problem["stop"][b] - 1)
        problem.setdefault("gaps", {})[str(b)] = [[first, first + 1]]
    elif draw == 4:
        problem["start"][b], problem["stop"][b] = 0, count
    elif draw == 5:
        problem["nbytes"] = [c.nbytes for c in program.buffers]


def events(rng, document, index, slots):
    """Return allocs and frees of the buffers that have slots, by their lives; one dropped, doubled or moved at times."""
    single = alone(read({**document, "plans": [], "problems": []}), index)
    born = {
        i: min(life.steps)
        for i, life in enumerate(lives(single, single.runs[0]))
        if isinstance(slots[i], dict) and life.steps
    }
    last = {i: max(life.steps) for i, life in enumerate(lives(single, single.runs[0])) if i in born}
    found, live = [], []
    for t in range(len(single.programs[index].ops)):
        for i in [i for i in live if last[i] < t]:
            live.remove(i)
            found.append([t, "free", i])
        for i in sorted(i for i in born if born[i] == t):
            # A donor whose last op this is goes before the recipient that lies on it comes.
            for donor in [d for d in live if last[d] == t and _meet(slots[d], slots[i])]:
                live.remove(donor)
                found.append([t, "free", donor])
            found.append([t, "alloc", i])
            live.append(i)
    if found and rng.random() < 0.25:
        which = rng.randrange(len(found))
        change = rng.randrange(3)
        if change == 0:
            del found[which]
        elif change == 1:
            found.insert(which, list(found[which]))
        else:
            found.append(found.pop(which))
            found[-1] = [found[-2][0] if len(found) > 1 else found[-1][0], *found[-1][1:]]
    return found


def _meet(a, b):
    """Say whether two slots of one arena have a byte in common."""
    return a["arena"] == b["arena"] and max(a["offset"], b["offset"]) < min(
        a["offset"] + a["nbytes"], b["offset"] + b["nbytes"]
    )
