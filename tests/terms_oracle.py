"""The checker's terms, derived anew from JSON: by the reader and the orders of `oracle2`, bit by bit.

`differences(document, terms)` lists what differs between the terms of a document and what the
oracle says of it: which bits each operand and result of each op of each run covers, apart and as
planned, in row-major order; promises; contents; what happens before what; and where late reads
stand. Idents and spaces may be numbered in any way, one for one. `Truth` says
of one claim of a certificate whether it is so: by the oracle's replay, cell by cell.
"""

from itertools import product

from oracle2.memory import apart, planned, replay
from oracle2.order import predecessors
from oracle2.reading import read


class OneForOne:
    """Two namings of the same things."""

    def __init__(self):
        self.there, self.back = {}, {}

    def agree(self, name, other):
        return self.there.setdefault(name, other) == other and self.back.setdefault(other, name) == name


def bits(access, grain):
    """Return the bits of an access within its buffer, in row-major order."""
    wide = 8 // grain
    starts = [
        sum(i * s for i, (_, s) in zip(at, access.dims, strict=False))
        for at in product(*(range(n) for n, _ in access.dims))
    ]
    units = [access.start + start + k for start in starts for k in range(access.length)]
    return [unit * wide + k for unit in units for k in range(wide)]


def bits_of(value, document):
    """Return the same of the oracle's value."""
    wide = 8 // document.cells_per_byte
    return [cell * wide + k for _, cell in value.cells for k in range(wide)]


def reaches_outside(document):
    """Say whether a value reaches outside its buffer: the oracle cuts it, the terms do not."""
    return any(value.outside for program in read(document).programs for value in program.values)


def differences(parsed, terms):
    """Return what differs, as lines."""
    document, found = read(parsed), []
    idents, spaces, place = OneForOne(), OneForOne(), planned(document)
    kept = {}
    for node in terms.nodes:
        if node.kind == "hold":
            kept[node.run, node.op] = node
    for number, node in enumerate(terms.nodes, 1):
        run = document.runs[node.run]
        program = document.programs[run.program]
        op = program.ops[node.op]
        touches = op.touches and node.op not in run.skip
        late = run.read_after is not None and op.kind == "host.read"
        sides = [[program.values[v] for v in side if program.values[v].cells] for side in (op.operands, op.results)]
        sides = sides if touches else [[], []]
        if node.kind == "hold":
            sides[1] = sides[0]
        if [len(node.operands), len(node.results)] != [len(side) for side in sides]:
            found.append(f"node {number}: {len(node.operands)} operands, {len(node.results)} results")
            continue
        if (node.kind == "same") != (op.same and touches) and (node.operands or node.results):
            found.append(f"node {number}: kind {node.kind}")
        for reading, accesses, values in ((True, node.operands, sides[0]), (False, node.results, sides[1])):
            for position, (access, value) in enumerate(zip(accesses, values, strict=True)):
                buffer = program.buffers[value.buffer]
                space, base = place(run, buffer)
                if bits(access, terms.grain) != bits_of(value, document):
                    found.append(f"node {number}: other bits")
                if access.width != value.width:
                    found.append(f"node {number}: width {access.width}")
                if node.kind == "hold" and not reading:
                    continue
                if (access.base * document.cells_per_byte, True) != (
                    base * terms.grain,
                    spaces.agree(access.space, space),
                ):
                    found.append(f"node {number}: as planned at {access.space}, {access.base}")
                ident = access.ident
                if late and node.kind != "hold":
                    there = kept[node.run, node.op]
                    if there.results[position].ident != ident:
                        found.append(f"node {number}: what was kept lies elsewhere")
                    continue
                if not idents.agree(ident, apart(run, buffer)[0]):
                    found.append(f"node {number}: apart in {ident}")
        places = [
            {v: i for i, v in enumerate(i for i, w in enumerate(side) if program.values[w].cells)}
            for side in (op.operands, op.results)
        ]
        promises = [
            (places[0][i], places[1][j], strength)
            for i, j, strength in op.in_place or ()
            if i in places[0] and j in places[1]
        ]
        if touches and node.kind == "op" and list(node.promises) != promises:
            found.append(f"node {number}: promises {node.promises}")
    contents = {}
    for run in document.runs:
        for buffer in document.programs[run.program].buffers:
            if buffer.persistent and buffer.nbytes:
                contents.setdefault(apart(run, buffer)[0], (buffer.nbytes, *place(run, buffer)))
    laid = [(nbytes, base // document.cells_per_byte) for nbytes, _, base in contents.values()]
    if [(c.length // terms.grain, c.base // terms.grain) for c in terms.contents] != laid:
        found.append("contents")
    agree = [
        idents.agree(c.ident, key) and spaces.agree(c.space, space)
        for c, (key, (_, space, _)) in zip(terms.contents, contents.items(), strict=False)
    ]
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
        for earlier in [n - 1 for n in node.after] + ([last[node.chain]] if node.chain in last else []):
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
        self.document, self.terms = read(parsed), terms
        self.found = replay(self.document, apart, late=False).found
        nodes, before = predecessors(self.document)
        self.before = {node: {nodes[i] for i in range(len(nodes)) if before[node] >> i & 1} for node in nodes}
        self.contents = {}
        for run in self.document.runs:
            for buffer in self.document.programs[run.program].buffers:
                if buffer.persistent and buffer.nbytes:
                    self.contents.setdefault((run.world, buffer.name), len(self.contents))

    def holds(self, node, operand, piece):
        """Say whether a piece of an operand of a node, 0-based, is so."""
        start, length, writer, result, shift = piece
        at = self.terms.nodes[node]
        program = self.document.programs[self.document.runs[at.run].program]
        values = [v for v in program.ops[at.op].operands if program.values[v].cells]
        cells = self.found[at.run, at.op, values[operand]]
        wide = self.terms.grain / self.document.cells_per_byte
        for unit in range(start, start + length):
            cell = int(unit / wide)
            if length <= 0 or cell not in cells or cells[cell][0] is None:
                return False
            if self._written(cells[cell][0], self.document.runs[at.run].world) != (
                writer,
                result,
                int((unit - shift) / wide),
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
        results = [v for v in op.results if there.values[v].cells]
        return number, results.index(value), next(cell for j, cell in there.values[value].cells if j == k)

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
