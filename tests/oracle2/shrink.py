"""A document made smaller for as long as something holds of it, such as that two judges differ.

Taken away are, as far as they can be: beliefs and events, runs, programs' tables of pairs, ops, values and buffers that
nothing names any more, and what is optional about a run. What is left is well formed: indices are moved along.
"""

from copy import deepcopy


def shrink(document, holds):
    """Return the smallest document found, by taking parts away one by one, of which `holds(document)` is true."""
    while True:
        smaller = next((d for d in _steps(document) if holds(d)), None)
        if smaller is None:
            return document
        document = smaller


def _steps(document):
    for name in ("problems", "session"):
        if name in document:
            yield _without_beliefs(document) if name == "problems" else {k: v for k, v in document.items() if k != name}
    for i in range(len(document.get("session", ()))):
        if len(document["session"]) > 1:
            yield _without_run(document, i)
        for name in ("skip", "after", "read_after", "program"):
            if name in document["session"][i]:
                yield _changed(document, lambda d, i=i, name=name: d["session"][i].pop(name))
    for i, plan in enumerate(document["plans"]):
        if "events" in plan:
            yield _changed(document, lambda d, i=i: d["plans"][i].pop("events"))
        if len(document["plans"]) > 1 and all(run["plan"] != i for run in document.get("session", ())):
            yield _without_plan(document, i)
    for p, program in enumerate(document["programs"]):
        for i, op in enumerate(program["ops"]):
            if "problems" not in document:
                yield _without_op(document, p, i)
            for name in ("in_place", "after", "name"):
                if name in op:
                    yield _changed(document, lambda d, p=p, i=i, name=name: d["programs"][p]["ops"][i].pop(name))
        yield from _without_unnamed(document, p)


def _changed(document, change):
    made = deepcopy(document)
    change(made)
    return made


def _without_beliefs(document):
    made = deepcopy(document)
    del made["problems"]
    for plan in made["plans"]:
        plan.pop("problem", None)
    return made


def _without(indices, gone):
    """Return indices without one of them, those above it moved down."""
    return [i - (i > gone) for i in indices if i != gone]


def _without_run(document, gone):
    made = deepcopy(document)
    del made["session"][gone]
    for run in made["session"]:
        if "after" in run:
            run["after"] = _without(run["after"], gone)
        late = run.pop("read_after", None)
        if late is not None and late != gone:
            run["read_after"] = late - (late > gone)
    return made


def _without_plan(document, gone):
    made = deepcopy(document)
    del made["plans"][gone]
    for run in made.get("session", ()):
        run["plan"] -= run["plan"] > gone
    return made


def _without_op(document, p, gone):
    made = deepcopy(document)
    ops = made["programs"][p]["ops"]
    del ops[gone]
    for op in ops:
        if "after" in op:
            op["after"] = _without(op["after"], gone)
    for plan in made["plans"]:
        if plan["program"] == p:
            plan.pop("events", None)
    for run in made.get("session", ()):
        if run.get("program", made["plans"][run["plan"]]["program"]) == p and "skip" in run:
            run["skip"] = _without(run["skip"], gone)
    return made


def _without_unnamed(document, p):
    """Yield the document without a value that no op names, or without a buffer that has no value."""
    program = document["programs"][p]
    named = {v for op in program["ops"] for side in ("operands", "results") for v in op.get(side, ())}
    for gone in set(range(len(program["values"]))) - named:
        made = deepcopy(document)
        del made["programs"][p]["values"][gone]
        for op in made["programs"][p]["ops"]:
            for side in ("operands", "results"):
                op[side] = [v - (v > gone) for v in op.get(side, ())]
        yield made
    stale = any("program" in run for run in document.get("session", ()))
    if "problems" in document or stale or any("events" in plan for plan in document["plans"]):
        return
    for gone in set(range(len(program["buffers"]))) - {v["buffer"] for v in program["values"]}:
        made = deepcopy(document)
        del made["programs"][p]["buffers"][gone]
        for value in made["programs"][p]["values"]:
            value["buffer"] -= value["buffer"] > gone
        for plan in made["plans"]:
            if plan["program"] == p:
                del plan["slots"][gone]
        yield made
