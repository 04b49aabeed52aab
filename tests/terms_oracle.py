"""The checker's terms, derived anew from JSON, and the list of nodes that the proof makes of them.

`terms_differ(parsed, terms)` lists what differs between the terms of a document and its JSON:
defaults filled in by the reader of `oracle2`, bits of values one by one. `nodes_differ(parsed,
nodes)` does so for a list of nodes, by the replays and orders of `oracle2`: which bits each operand
and result of each op of each run covers, apart and (where the nodes say so) as planned; contents;
what happens before what; and where late reads stand. Idents and spaces may be numbered in any way,
one for one. `Truth` says of one claim of a certificate whether it is so: by the oracle's replay,
cell by cell.
"""

from itertools import product

from oracle2.memory import apart, replay
from oracle2.order import predecessors
from oracle2.reading import read

from allocsim.certificates import joined


class OneForOne:
    """Two namings of the same things."""

    def __init__(self):
        self.there, self.back = {}, {}

    def agree(self, name, other):
        return self.there.setdefault(name, other) == other and self.back.setdefault(other, name) == name


def covered(start, dims, length):
    """Return the bits of a layout, in row-major order."""
    starts = [sum(i * s for i, (_, s) in zip(at, dims, strict=True)) for at in product(*(range(n) for n, _ in dims))]
    return [start + low + k for low in starts for k in range(length)]


def bits_of(value, document):
    """Return the same of the oracle's value."""
    wide = 8 // document.cells_per_byte
    return [cell * wide + k for _, cell in value.cells for k in range(wide)]


def reaches_outside(document):
    """Say whether a value reaches outside its buffer: the oracle cuts it, the terms do not."""
    return any(value.outside for program in read(document).programs for value in program.values)


def terms_differ(parsed, terms):
    """Return what differs between JSON and terms, as lines."""
    document, found, names = read(parsed), [], OneForOne()
    for index, (program, term, json) in enumerate(
        zip(document.programs, terms.programs, parsed["programs"], strict=True)
    ):
        for buffer, other in zip(program.buffers, term.buffers, strict=True):
            same = (other.name is not None) == buffer.persistent
            same = same and (not buffer.persistent or names.agree(other.name, buffer.name))
            if not same or buffer.nbytes != other.nbytes:
                found.append(f"program {index}: buffer {buffer.index}")
        for value, other in zip(program.values, term.values, strict=True):
            packed = other.width < 8 and bool(other.dims)
            dims = [
                (n, 8 * s + packed * (i == len(other.dims) - 1) * other.width) for i, (n, s) in enumerate(other.dims)
            ]
            start = 8 * other.offset + other.bit_offset
            bits = covered(start, dims, other.width)
            mine = value.buffer, value.width, value.start * 8 // document.cells_per_byte, value.shape
            if mine != (*other[:2], start, tuple(n for n, _ in other.dims)) or bits != bits_of(value, document):
                found.append(f"program {index}: value {value.index}")
        for op, other in zip(program.ops, term.ops, strict=True):
            kind = "same" if op.same else {"view": "view", "host.read": "read"}.get(op.kind, "op")
            mine = (kind, op.stream, op.after, op.operands, op.results, op.in_place or ())
            if mine != tuple(other):
                found.append(f"program {index}: op {op.index}")
        if len(json["ops"]) != len(term.ops):
            found.append(f"program {index}: ops")
    for index, (plan, slots) in enumerate(zip(document.plans, terms.plans, strict=True)):
        mine = [(slot["arena"], slot["offset"]) if isinstance(slot, dict) else None for slot in plan["slots"]]
        if mine != list(slots):
            found.append(f"plan {index}")
    if terms.shared != (parsed.get("session") is not None):
        found.append("whether runs share memory")
    for run, term, json in zip(
        document.runs, terms.session, parsed.get("session") or [{}] * len(document.plans), strict=True
    ):
        after = json.get("after") if parsed["version"] >= 2 else None
        mine = (run.program, run.plan, run.skip, after, run.read_after)
        if mine != (*term[:2], frozenset(term.skip), term.waits if term.waits is None else list(term.waits), term[4]):
            found.append(f"run {run.index}")
    return found


def nodes_differ(parsed, terms):
    """Return what differs between JSON and a list of nodes, as lines."""
    document, found = read(parsed), []
    idents, kept = OneForOne(), {}
    for node in terms.nodes:
        if node.kind == "hold":
            kept[node.run, node.op] = node
    for number, node in enumerate(terms.nodes, 1):
        run = document.runs[node.run]
        program = document.programs[run.program]
        op = program.ops[node.op]
        touches = op.touches and node.op not in run.skip
        late = run.read_after is not None and op.kind == "host.read"
        sides = [[program.values[v] for v in side] for side in (op.operands, op.results)] if touches else [[], []]
        if node.kind == "hold":
            sides[1] = sides[0]
        if [len(node.operands), len(node.results)] != [len(side) for side in sides]:
            found.append(f"node {number}: {len(node.operands)} operands, {len(node.results)} results")
            continue
        if (node.kind == "same") != (op.same and touches) and (node.operands or node.results):
            found.append(f"node {number}: kind {node.kind}")
        for reading, accesses, values in ((True, node.operands, sides[0]), (False, node.results, sides[1])):
            for position, (access, value) in enumerate(zip(accesses, values, strict=True)):
                if covered(access.start, access.dims, access.length) != bits_of(value, document):
                    found.append(f"node {number}: other bits")
                if node.kind == "hold" and not reading:
                    continue
                if late and node.kind != "hold":
                    if kept[node.run, node.op].results[position].ident != access.ident:
                        found.append(f"node {number}: what was kept lies elsewhere")
                elif not idents.agree(access.ident, apart(run, program.buffers[value.buffer])[0]):
                    found.append(f"node {number}: apart in {access.ident}")
    contents = {}
    for run in document.runs:
        for buffer in document.programs[run.program].buffers:
            if buffer.persistent:
                contents.setdefault(apart(run, buffer)[0], 8 * buffer.nbytes)
    if [c.length for c in terms.contents] != list(contents.values()):
        found.append("contents")
    agree = [idents.agree(c.ident, key) for c, key in zip(terms.contents, contents, strict=False)]
    return [*found, *([] if all(agree) else ["contents elsewhere"]), *_order(document, terms)]


def _order(document, terms):
    """Return what differs in the order of the list, and in what happens before what."""
    nodes, before = predecessors(document)
    mine = [(node.run, node.op) for node in terms.nodes if node.kind != "hold"]
    found = [] if mine == nodes else ["the order of the list"]
    late = {
        (run.index, op.index): run.read_after
        for run in document.runs
        for op in document.programs[run.program].ops
        if run.read_after is not None and op.kind == "host.read"
    }
    own = [(node.run, node.op) for node in terms.nodes if node.kind == "hold" or (node.run, node.op) not in late]
    if own != sorted(own):
        found.append("the places of what is kept")
    known, last = [], {}
    for number, node in enumerate(terms.nodes):
        bits = 0
        for earlier in [n - 1 for n in node.earlier] + ([last[node.chain]] if node.chain in last else []):
            bits |= known[earlier] | 1 << earlier
        known.append(bits)
        last[node.chain] = number
    real = [number for number, node in enumerate(terms.nodes) if node.kind != "hold"]
    for j, number in enumerate(real):
        closed = sum(1 << i for i, other in enumerate(real[:j]) if known[number] >> other & 1)
        if mine == nodes and closed != before[nodes[j]]:
            found.append(f"what happens before node {number + 1}")
    return found


class Truth:
    """What the oracle's replay apart says that each read must find, and what happens before what."""

    def __init__(self, parsed, terms):
        self.document, self.terms = read(parsed), joined(terms)
        self.found = replay(self.document, apart, late=False).found
        nodes, before = predecessors(self.document)
        self.before = {node: {nodes[i] for i in range(len(nodes)) if before[node] >> i & 1} for node in nodes}
        self.contents = {}
        for run in self.document.runs:
            for buffer in self.document.programs[run.program].buffers:
                if buffer.persistent:
                    self.contents.setdefault((run.world, buffer.name), len(self.contents))

    def holds(self, node, operand, piece):
        """Say whether a piece of an operand of a node, 0-based, is so."""
        start, length, writer, result, shift = piece
        at = self.terms.nodes[node]
        program = self.document.programs[self.document.runs[at.run].program]
        cells = self.found[at.run, at.op, program.ops[at.op].operands[operand]]
        wide = 8 // self.document.cells_per_byte
        for bit in range(start, start + length):
            cell = bit // wide
            if length <= 0 or cell not in cells or cells[cell][0] is None:
                return False
            if self._written(cells[cell][0], self.document.runs[at.run].world) != (
                writer,
                result,
                (bit - shift) // wide,
            ):
                return False
        return length > 0

    def _written(self, tag, world):
        """Return node, result and cell of a tag found in a world."""
        if tag[0] == "content":
            return 0, self.contents[world, tag[1]], tag[2]
        run, program, value, k = tag
        there = self.document.programs[program]
        op = there.ops[there.producers[value]]
        number = next(
            n for n, x in enumerate(self.terms.nodes, 1) if (x.run, x.op) == (run, op.index) and x.kind != "hold"
        )
        return number, op.results.index(value), next(cell for j, cell in there.values[value].cells if j == k)

    def knows(self, node, chain, end):
        """Say whether a node, 0-based, comes after all of a chain up to node `end`, from 1."""
        terms, at = self.terms, self.terms.nodes[node]
        if end == node + 1:
            return chain == at.chain
        return all(
            (other.run, other.op) in self.before[at.run, at.op]
            for other in terms.nodes[:end]
            if other.chain == chain and other.kind != "hold" and other is not at
        ) and (end <= node)
