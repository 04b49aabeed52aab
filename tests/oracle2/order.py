"""Happens-before over streams and runs, and the races that it leaves open.

Within a run an op follows the earlier ops of its stream and those in its `after`. Each op of a run follows every op of
each run that it waits for. A `host.read` of a run with `read_after` k follows, besides, every op of run k, and nothing
follows it but the runs that wait for k.

Readings. A left-out `host.write` and a `view` keep their places in the order. Own memory of a buffer is one memory for
all runs, as its slot would be. A race is recorded once for two ops and the two buffers that they touch a byte through.
"""

from .memory import Site, apart, moves, planned
from .ranges import ranges


def predecessors(document):
    """Return ((run, op), ...) in an order that happens-before allows, and for each the set of nodes before it, as bits."""
    nodes = [(run.index, op.index) for run in document.runs for op in document.programs[run.program].ops]
    late = {node: run.read_after for node, run, op in _each(document) if _is_late(run, op)}
    nodes.sort(key=lambda node: (late.get(node, node[0]), node in late, node))
    place = {node: i for i, node in enumerate(nodes)}
    whole = {run.index: 0 for run in document.runs}
    for (run, _), i in ((node, place[node]) for node in nodes if node not in late):
        whole[run] |= 1 << i
    before = {}
    by_node = {node: (run, op) for node, run, op in _each(document)}
    for node in nodes:
        run, op = by_node[node]
        ops = document.programs[run.program].ops
        direct = [(run.index, i) for i in range(op.index) if ops[i].stream == op.stream or i in op.after]
        bits = sum(1 << place[other] for other in direct if other not in late)
        for earlier in run.waits:
            bits |= whole[earlier]
        if node in late:
            bits |= whole[late[node]]
        for other, k in late.items():
            if k in run.waits:
                bits |= 1 << place[other]
        closed = bits
        for i, other in enumerate(nodes[: place[node]]):
            if bits >> i & 1:
                closed |= before[other]
        before[node] = closed
    return nodes, before


def _each(document):
    for run in document.runs:
        for op in document.programs[run.program].ops:
            yield (run.index, op.index), run, op


def _is_late(run, op):
    return run.read_after is not None and op.kind == "host.read"


def races(document):
    """Return every race: two accesses to a byte as planned, one a write, that happens-before leaves open."""
    if all(len({op.stream for op in p.ops}) < 2 for p in document.programs) and all(
        len(run.waits) == run.index for run in document.runs
    ):
        return []
    nodes, before = predecessors(document)
    place = planned(document)
    sites = {
        run.index: [Site(where, run, document.programs[run.program]) for where in (place, apart)]
        for run in document.runs
    }
    touched = {node: _accesses(document, sites[run.index][0], op) for node, run, op in _each(document)}
    found = []
    for j, second in enumerate(nodes):
        for i, first in enumerate(nodes[:j]):
            if before[second] >> i & 1:
                continue
            for buffers, cells in sorted(_common(touched[first], touched[second]).items()):
                pair = [sites[run][1] for run, _ in (first, second)]
                alone = _common(
                    *(
                        _accesses(document, s, s.program.ops[op])
                        for s, (_, op) in zip(pair, (first, second), strict=True)
                    )
                )
                record = _record(document, (first, second), buffers, cells)
                found.append({**record, "in_apart": buffers in alone})
    return found


def _accesses(document, site, op):
    """Return {(space, byte): {buffer: (byte of the buffer, whether it is written)}} for one op of a run."""
    touched = {}
    if not op.touches or op.index in site.run.skip:
        return touched
    written = [op.results[i] for i in moves(site, op)]
    for v, writes in [(v, False) for v in op.operands] + [(v, True) for v in written]:
        value = site.program.values[v]
        space, cells = site.at(v)
        _, base = site.home(value)
        for _, cell in cells:
            byte = cell // document.cells_per_byte
            here = touched.setdefault((space, byte), {})
            wrote = here.get(value.buffer, (0, False))[1]
            here[value.buffer] = (byte - base // document.cells_per_byte, wrote or writes)
    return touched


def _common(first, second):
    """Return {(buffer of the first op, buffer of the second): [(byte of the first one's buffer, byte of the second's)]} where one of them writes."""
    found = {}
    for key in first.keys() & second.keys():
        for a, (byte, wrote) in first[key].items():
            for b, (other, writes) in second[key].items():
                if wrote or writes:
                    found.setdefault((a, b), []).append((byte, other))
    return found


def _record(document, ops, buffers, cells):
    """Return the record of a race: the op that is later in list order, and the `other` before it."""
    if ops[0] > ops[1]:
        ops, buffers, cells = ops[::-1], buffers[::-1], [pair[::-1] for pair in cells]
    earlier, later = ops
    run = document.runs[later[0]]
    return {
        "kind": "Race",
        "run": later[0],
        "program": run.program,
        "plan": run.plan,
        "step": later[1],
        "op": later[1],
        "buffer": buffers[1],
        "other_run": earlier[0],
        "other_op": earlier[1],
        "other_buffer": buffers[0],
        "bytes": ranges([byte for _, byte in cells], 1),
    }
