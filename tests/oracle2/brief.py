"""Documents of version 2 in few words, for tests that spell out one sentence of the format.

A buffer is `name: nbytes` or `name: {...}`; it brings a value of its name, of all its bytes as u8. Other values are
`name: (buffer, {...})`. An op is `(kind, "operands", "results", {more})`, by names of values. A slot is an offset in
arena 0, "own", None, or a whole slot.
"""


def program(buffers, ops, values=None, **more):
    """Return one program of a document."""
    filled = [{"name": name, **(b if isinstance(b, dict) else {"nbytes": b})} for name, b in buffers.items()]
    place = {b["name"]: i for i, b in enumerate(filled)}
    own = {b["name"]: (b["name"], {}) for b in filled}
    listed = [
        {"name": name, "buffer": place[buffer], "dtype": "u8", "shape": [filled[place[buffer]]["nbytes"]], **layout}
        for name, (buffer, layout) in {**own, **(values or {})}.items()
    ]
    index = {v["name"]: i for i, v in enumerate(listed)}
    written = [
        {
            "kind": kind,
            "operands": [index[v] for v in reads.split()],
            "results": [index[v] for v in writes.split()],
            **rest,
        }
        for kind, reads, writes, rest in ((*op, {})[:4] for op in ops)
    ]
    return {"name": "p", "buffers": filled, "values": listed, "ops": written, **more}


def document(buffers, ops, slots, *, values=None, version=2, session=None, arenas=({"name": "a"},), more=None, **rest):
    """Return a document with one program and one plan."""
    made = program(buffers, ops, values, **(more or {}))
    return several([made], [(0, slots)], version=version, session=session, arenas=arenas, **rest)


def several(programs, plans, *, version=2, session=None, arenas=({"name": "a"},), **rest):
    """Return a document with several programs and plans, each plan a program and its slots."""
    written = {"format": "allocsim", "version": version, "arenas": list(arenas), "programs": programs}
    written["plans"] = [{"program": i, "slots": slots_of(programs[i], slots)} for i, slots in plans]
    if session is not None:
        written["session"] = session
    return {**written, **rest}


def slots_of(made, slots):
    """Return slots as the document writes them; an offset becomes a slot of the buffer's size."""
    return [
        {"arena": b.get("arena", 0), "offset": slot, "nbytes": b["nbytes"]} if isinstance(slot, int) else slot
        for b, slot in zip(made["buffers"], slots, strict=True)
    ]


def kinds(judgement):
    """Return the kinds of violations, each as often as it was found, sorted."""
    return sorted(v["kind"] for v in judgement.violations)


def only(judgement, kind):
    """Return the one violation of a kind."""
    (found,) = [v for v in judgement.violations if v["kind"] == kind]
    return found
