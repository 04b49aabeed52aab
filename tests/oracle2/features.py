"""What a document has in it, by name, for a count over many: a generator that never draws a feature tests none of it."""

from .draft import extent, volume
from .reading import PACKED, PERSISTENT, default_strides, read


def features(document):
    """Return the names of what a document has in it."""
    found = set()
    for program in document["programs"]:
        found |= _of_buffers(program) | _of_values(program)
        for i, op in enumerate(program["ops"]):
            found |= _of_op(document, program, op) | _of_order(program, i, op)
    for problem in document.get("problems", ()):
        found |= {
            f"belief {name}"
            for name in ("nbytes", "pinned", "own", "fixed", "order", "may_share", "gaps")
            if problem.get(name)
        }
    for plan in document["plans"]:
        found |= _of_plan(document, plan)
    found |= _of_session(document)
    arenas = document["arenas"]
    count = {
        "several arenas": len(arenas) > 1,
        "capacity": any(a.get("capacity") is not None for a in arenas),
        "arena alignment": any("alignment" in a for a in arenas),
        "several programs": len(document["programs"]) > 1,
        "several plans": len(document["plans"]) > 1,
        "no ops": any(not p["ops"] for p in document["programs"]),
        "path": any("path" in p for p in document["programs"]),
    }
    return found | {name for name, there in count.items() if there}


def _of_buffers(program):
    found = set()
    for b in program["buffers"]:
        found |= {f"role {b.get('role', 'temporary')}"}
        found |= {name for name in ("read_only", "nbytes_range", "alignment") if b.get(name)}
        found |= {"zero bytes"} if b["nbytes"] == 0 else set()
    return found


def _of_values(program):
    found = set()
    for v in program["values"]:
        strides = v.get("strides") or default_strides(v["shape"], v["dtype"])
        found.add(f"dtype {v['dtype']}")
        found |= {"offset"} if v.get("offset") else set()
        found |= {"bit offset"} if v.get("bit_offset") else set()
        found |= {"scalar"} if v["shape"] == [] else set()
        found |= {"empty shape"} if 0 in v["shape"] else set()
        found |= {"negative stride"} if any(s < 0 for s in strides) else set()
        packed = v["dtype"] in PACKED
        found |= (
            {"broadcast"}
            if not packed and any(s == 0 and n > 1 for s, n in zip(strides, v["shape"], strict=True))
            else set()
        )
        found |= {"packed rows"} if packed and len(v["shape"]) > 1 else set()
        first, end = extent(v)
        found |= {"gapped"} if not packed and 8 * (end - first) > volume(v) else set()
        found |= {"value outside"} if end > program["buffers"][v["buffer"]]["nbytes"] else set()
    return found


def _of_op(document, program, op):
    values = program["values"]
    sources, targets = ([values[v] for v in op.get(side, ())] for side in ("operands", "results"))
    found = {f"kind {op['kind']}"} if op["kind"] in ("host.write", "host.read", "view", "same") else {"kernel"}
    pairs = op.get("in_place", ())
    found |= {"null contract"} if pairs is None else {f"strength {(p[2:] or ['none'])[0]}" for p in pairs}
    found |= {"operand twice"} if len(set(op.get("operands", ()))) < len(op.get("operands", ())) else set()
    if op["kind"] == "view":
        return found
    mine = [v["buffer"] for v in sources]
    found |= {"mutation in place"} if any(v["buffer"] in mine for v in targets) else set()
    found |= {"several results"} if len(targets) > 1 else set()
    if op["kind"] != "same":
        return found
    found |= {"same of several"} if len(sources) > 1 else set()
    found |= {"same with pairs"} if pairs else set()
    for plan in document["plans"]:
        if document["programs"][plan["program"]] is program:
            found |= {_sides(plan, x, y) for x, y in zip(sources, targets, strict=True)}
    return found


def _sides(plan, x, y):
    """Return how the two sides of a `same` lie to each other, by the bytes that they reach over."""
    slots = [plan["slots"][v["buffer"]] for v in (x, y)]
    if x["buffer"] == y["buffer"]:
        bases = [0, 0]
    elif not all(isinstance(s, dict) for s in slots) or slots[0]["arena"] != slots[1]["arena"]:
        return "same apart"
    else:
        bases = [s["offset"] for s in slots]
    (a, b), (c, d) = ([base + edge for edge in extent(v)] for base, v in zip(bases, (x, y), strict=True))
    if (a, b) == (c, d):
        return "same at one address"
    return "same partly over" if max(a, c) < min(b, d) else "same apart"


def _of_order(program, i, op):
    found = {"streams"} if len(program.get("streams", ())) > 1 else set()
    found |= {"after of ops"} if op.get("after") else set()
    earlier = {v for other in program["ops"][:i] for v in other.get("results", ())}
    role = {b: program["buffers"][b].get("role") for b in range(len(program["buffers"]))}
    for v in op.get("operands", ()):
        if v not in earlier and role[program["values"][v]["buffer"]] in PERSISTENT:
            found.add("content read")
    return found


def _of_plan(document, plan):
    found = {"events"} if plan.get("events") else set()
    found |= {"problem of a plan"} if plan.get("problem") is not None else set()
    found |= {"slot own"} if "own" in plan["slots"] else set()
    found |= {"slot null"} if None in plan["slots"] else set()
    slots = [s for s in plan["slots"] if isinstance(s, dict)]
    for i, a in enumerate(slots):
        for b in slots[i + 1 :]:
            low, high = max(a["offset"], b["offset"]), min(a["offset"] + a["nbytes"], b["offset"] + b["nbytes"])
            if a["arena"] == b["arena"] and low < high:
                found.add("slots meet" if a["offset"] == b["offset"] else "slots meet in part")
    return found


def _of_session(document):
    if "session" not in document:
        return {"no session"}
    found, runs = {"session"}, read(document).runs
    for run, entry in zip(runs, document["session"], strict=True):
        found |= {name for name in ("skip", "read_after") if entry.get(name)}
        found |= {"stale plan"} if run.program != document["plans"][run.plan]["program"] else set()
        found |= {"runs at once"} if len(run.waits) < run.index else set()
        found |= {"waits through another"} if len(run.waits) > len(entry.get("after", run.waits)) else set()
        found |= {"earlier memory apart"} if run.home != run.index else set()
    return found


FEATURES = frozenset(
    {f"dtype {name}" for name in ("u8", "i8", "f8_e4m3", "f16", "bf16", "f32", "c64", "i4", "u4", "f4", "i2", "u2")}
    | {f"role {name}" for name in ("input", "parameter", "state", "temporary")}
    | {f"kind {name}" for name in ("host.write", "host.read", "view", "same")}
    | {f"strength {name}" for name in ("none", "exact", "bytes", "whole")}
    | {f"belief {name}" for name in ("nbytes", "pinned", "own", "fixed", "order", "may_share", "gaps")}
    | {
        "read_only",
        "nbytes_range",
        "alignment",
        "zero bytes",
        "kernel",
        "null contract",
        "operand twice",
        "several results",
    }
    | {
        "offset",
        "bit offset",
        "scalar",
        "empty shape",
        "negative stride",
        "broadcast",
        "packed rows",
        "gapped",
        "value outside",
    }
    | {
        "mutation in place",
        "same of several",
        "same with pairs",
        "same apart",
        "same at one address",
        "same partly over",
    }
    | {"streams", "after of ops", "content read", "events", "problem of a plan", "slot own", "slot null", "path"}
    | {
        "slots meet",
        "slots meet in part",
        "several arenas",
        "capacity",
        "arena alignment",
        "several programs",
        "several plans",
    }
    | {"session", "no session", "no ops", "skip", "read_after", "stale plan", "runs at once", "waits through another"}
    | {"earlier memory apart"}
)
"""Every feature that the generator must draw."""
