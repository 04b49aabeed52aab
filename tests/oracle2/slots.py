"""Slots against the buffers of the program that runs on them, and a planner's events against themselves and the slots.

Readings. A value that reaches outside its buffer is `OutOfBounds` for that buffer under any slot. A slot's end is its
offset and its own nbytes. A buffer is in use, and needs a slot, if some op that a run does not leave out reads or writes
it, as in version 1. An alloc of what is allocated lies over what is live: itself. Events are judged for the plans that some run uses.
"""


def judge_slots(document):
    """Return one record for each (plan, buffer) and kind."""
    found = {}
    for run in document.runs:
        program = document.programs[run.program]
        slots = document.plans[run.plan]["slots"]
        touched = {program.values[v].buffer for op in document.ops(run) if op.touches for v in op.operands + op.results}
        beyond = {v.buffer for v in program.values if v.outside}
        for buffer, slot in zip(program.buffers, slots, strict=True):
            kinds = _kinds(document, buffer, slot, buffer.index in touched)
            kinds += ["OutOfBounds"] if buffer.index in beyond else []
            for kind in dict.fromkeys(kinds):
                key = (kind, run.plan, buffer.index)
                found.setdefault(
                    key, {"kind": kind, "plan": run.plan, "program": program.index, "buffer": buffer.index}
                )
    return list(found.values())


def _kinds(document, buffer, slot, touched):
    if slot is None:
        return ["Unplaced"] if touched else []
    if not isinstance(slot, dict):
        return []
    capacity = document.arenas[slot["arena"]][1]
    offset, nbytes = slot["offset"], slot["nbytes"]
    rules = {
        "OutOfBounds": offset < 0 or (capacity is not None and offset + nbytes > capacity),
        "Undersized": nbytes < buffer.nbytes,
        "Misaligned": offset % buffer.alignment != 0,
        "WrongArena": slot["arena"] != buffer.arena,
    }
    return [kind for kind, broken in rules.items() if broken]


def judge_events(document):
    """Return one record for each event that is wrong, and for each live buffer that an alloc lies over."""
    found = []
    for index in dict.fromkeys(run.plan for run in document.runs):
        plan = document.plans[index]
        live, freed = [], set()
        for step, what, buffer in plan.get("events") or ():
            record = {"plan": index, "program": plan["program"], "step": step, "buffer": buffer}
            if what == "alloc":
                over = [b for b in live if b == buffer or _meet(plan["slots"][b], plan["slots"][buffer])]
                found += [{"kind": "AllocOverLive", **record, "other_buffer": other} for other in over]
                live += [] if buffer in live else [buffer]
                freed.discard(buffer)
            elif buffer in live:
                live.remove(buffer)
                freed.add(buffer)
            else:
                found.append({"kind": "DoubleFree" if buffer in freed else "FreeOfUnallocated", **record})
    return found


def _meet(a, b):
    """Say whether two slots have a byte in common."""
    if not isinstance(a, dict) or not isinstance(b, dict) or a["arena"] != b["arena"]:
        return False
    return max(a["offset"], b["offset"]) < min(a["offset"] + a["nbytes"], b["offset"] + b["nbytes"])
