"""Random small documents of version 2, well formed by construction, about half of them with sound plans.

`generate(seed)` returns the same document for the same seed. `leave_out` names features that must not come up (the names
of `FEATURES` in `features.py` that `chance` is asked for), so that a comparison can set aside what two readings differ in.
"""

import random

from .draft import program
from .layouts import homes_of, lay_out
from .planners import beliefs, events


def generate(seed, leave_out=frozenset()):
    """Return a random document, as parsed JSON."""
    rng = random.Random(seed)
    if "no ops" not in leave_out and rng.random() < 0.02:
        return _without_ops(rng)
    arenas = [_arena(rng, i) for i in range(rng.choice((1, 1, 1, 2, 3)))]
    pool = _pool(rng, len(arenas))
    streams = rng.choice((1, 1, 1, 2, 3)) if "streams" not in leave_out else 1
    packed = "packed" not in leave_out and rng.random() < 0.25
    careful = rng.random() < 0.82
    programs = [
        program(
            rng,
            f"p{i}",
            pool=pool,
            arenas=len(arenas),
            leave_out=leave_out,
            count=rng.randint(3, 6 if streams > 1 else 9),
            packed=packed,
            streams=streams,
            careful=careful,
        )
        for i in range(rng.choice((1, 1, 1, 2)))
    ]
    stale = len(programs) > 1 and "stale plan" not in leave_out and rng.random() < 0.3
    if stale:
        _pad(programs)
    document = {"format": "allocsim", "version": 2, "arenas": arenas, "programs": programs}
    if rng.random() < 0.4:
        document["problems"] = [beliefs(rng, document, i, careful) for i in range(len(programs)) if rng.random() < 0.8]
    document["plans"] = _plans(rng, document, pool, streams > 1 and careful, rng.random() < 0.5)
    if rng.random() < 0.65:
        document["session"] = _session(rng, document, stale, leave_out)
    return document


def table(seed):
    """Return a random table of kinds over those that the programs have."""
    rng = random.Random(seed)
    kinds = {}
    for kind in ("f", "g", "copy", "matmul"):
        rows = [
            {"pair": [o, r], "says": rng.choice(("safe", "unsafe", "unknown")), "source": "drawn"}
            for o in range(2)
            for r in range(2)
            if rng.random() < 0.6
        ]
        for row in rows:
            if row["says"] == "safe":
                row["strength"] = rng.choice(("exact", "bytes", "whole"))
        kinds[kind] = rows
    return {"kinds": kinds}


def _arena(rng, index):
    arena = {"name": f"a{index}"}
    if rng.random() < 0.4:
        arena["alignment"] = rng.choice((1, 2, 4))
    if rng.random() < 0.2:
        arena["capacity"] = rng.choice((None, 40, 100, 1000))
    return arena


def _pool(rng, arenas):
    """Return the persistent buffers that the programs of a document share by name."""
    pool = {}
    for i in range(rng.choice((0, 0, 1, 1, 2))):
        buffer = {"name": f"w{i}", "nbytes": rng.randint(1, 8), "role": rng.choice(("parameter", "state", "state"))}
        if buffer["role"] == "parameter" and rng.random() < 0.3:
            buffer["read_only"] = True
        if arenas > 1 and rng.random() < 0.2:
            buffer["arena"] = 1
        if rng.random() < 0.05:
            buffer["nbytes_range"] = [buffer["nbytes"], buffer["nbytes"] + 1]
        pool[buffer["name"]] = buffer
    return pool


def _pad(programs):
    """Give all programs equally many buffers."""
    most = max(len(p["buffers"]) for p in programs)
    for p in programs:
        p["buffers"] += [{"name": f"spare{i}", "nbytes": 1} for i in range(len(p["buffers"]), most)]


def _plans(rng, document, pool, spread, divided):
    """Return a plan or two for each program; `divided` plans do not use each other's memory."""
    homes = homes_of(rng, pool, len(document["arenas"])) if rng.random() < 0.85 else {}
    plans, base = [], {}
    for index in [i for i in range(len(document["programs"])) for _ in range(rng.choice((1, 1, 1, 2)))]:
        slots, ends = lay_out(rng, document, index, homes=homes, base=base, spread=spread)
        base = ends if divided else base
        plan = {"program": index, "slots": slots}
        problems = [i for i, p in enumerate(document.get("problems", ())) if p["program"] == index]
        if problems and rng.random() < 0.8:
            plan["problem"] = problems[0]
        plans.append(plan)
        if rng.random() < 0.2:
            plan["events"] = events(rng, document, index, slots)
    return plans


def _session(rng, document, stale, leave_out):
    """Return the runs of a session: some leave uploads out, wait for few, or are read late."""
    runs, count = [], rng.randint(1, 4)
    for i in range(count):
        plan = rng.randrange(len(document["plans"]))
        run = {"plan": plan}
        index = document["plans"][plan]["program"]
        if stale and rng.random() < 0.4:
            run["program"] = index = rng.randrange(len(document["programs"]))
        ops = document["programs"][index]["ops"]
        uploads = [j for j, op in enumerate(ops) if op["kind"] == "host.write"]
        if i and uploads and "skip" not in leave_out and rng.random() < 0.15:
            run["skip"] = sorted(rng.sample(uploads, rng.randint(1, len(uploads))))
        if i and "after" not in leave_out and rng.random() < 0.15:
            run["after"] = sorted(rng.sample(range(i), rng.randint(0, i)))
        if i + 1 < count and "read_after" not in leave_out and rng.random() < 0.2:
            run["read_after"] = rng.randint(i + 1, count - 1)
        runs.append(run)
    return runs


def _without_ops(rng):
    """Return a document whose program has no ops: its problem says when what is live."""
    count, horizon = rng.randint(2, 6), rng.randint(4, 8)
    sizes = [rng.randint(1, 8) for _ in range(count)]
    start = [rng.randrange(horizon) for _ in sizes]
    stop = [rng.randint(s + 1, horizon + 1) for s in start]
    problem = {"program": 0, "start": start, "stop": stop}
    if rng.random() < 0.5:
        problem["gaps"] = {str(b): [[start[b] + 1, stop[b] - 1]] for b in range(count) if stop[b] - start[b] > 3}
    pairs = [[a, b] for a in range(count) for b in range(count) if a != b and stop[a] - 1 == start[b]]
    if pairs and rng.random() < 0.7:
        problem["may_share"] = pairs
    return {
        "format": "allocsim",
        "version": 2,
        "arenas": [{"name": "a"}],
        "programs": [
            {
                "name": "p",
                "buffers": [{"name": f"b{i}", "nbytes": n} for i, n in enumerate(sizes)],
                "values": [],
                "ops": [],
            }
        ],
        "problems": [problem],
        "plans": [
            {
                "program": 0,
                "problem": 0,
                "slots": [{"arena": 0, "offset": rng.choice((0, 4, 8, 12, 16, 24, 32)), "nbytes": n} for n in sizes],
            }
        ],
    }
