"""The two replays: what every cell holds, and what every read finds.

Every cell carries an entry `(tag, run)`: the tag of the value that was written into it, `(run, program, value, cell
of the value)`, and the run that wrote the cell. Content that is laid before the session has the tag `("content",
name, cell)` and no run. A `same` hands on the tags that it found, so that a cell can be written and hold no tag.

*Apart* every buffer has memory of its own; *planned* it lies in its slot. Runs, and their ops, follow the order of
their lists. A run with `read_after` has its `host.read` ops find, planned, what is there after that later run.
"""

from dataclasses import dataclass

NOTHING = (None, None)
"""The entry of a cell that nobody wrote."""


@dataclass(frozen=True, slots=True)
class Site:
    """A run of a program with its buffers at `place(run, buffer)`: (space, first cell in it)."""

    place: object
    run: object
    program: object

    def home(self, value):
        """Return the space and the first cell of the buffer that a value lies in."""
        return self.place(self.run, self.program.buffers[value.buffer])

    def at(self, v):
        """Return where the cells of a value, named by its index, lie: (space, ((its cell, cell of the space), ...))."""
        value = self.program.values[v]
        space, base = self.home(value)
        return space, tuple((k, base + cell) for k, cell in value.cells)


@dataclass(frozen=True, slots=True)
class Replay:
    found: dict
    """(run, op, value) -> {cell of the buffer: entry} for each read."""
    given: dict
    """(run, value) -> {cell of the buffer: tag} for each value that an op wrote in that run."""
    states: dict
    """run -> the memory, {space: {cell: entry}}, before each op of its program and after the last."""


def apart(run, buffer):
    """Return the space, and the first cell in it, of a buffer in memory of its own."""
    if buffer.persistent:
        return (run.world, "persistent", buffer.name), 0
    return (run.world, "apart", run.program, buffer.index, run.home), 0


def planned(document):
    """Return the function that says where a buffer lies under the plan of its run."""

    def place(run, buffer):
        slot = document.plans[run.plan]["slots"][buffer.index]
        if isinstance(slot, dict):
            return (run.world, "arena", slot["arena"]), slot["offset"] * document.cells_per_byte
        if buffer.persistent:
            return (run.world, "own", buffer.name), 0
        return (run.world, "own", run.program, buffer.index), 0

    return place


def moves(site, op):
    """Return the positions of the results that an op really writes.

    These are all, except that a `same` writes no result that lies where its operand lies, cell for cell.
    """
    if not op.same:
        return tuple(range(len(op.results)))
    sides = zip(op.operands, op.results, strict=True)
    return tuple(i for i, (source, target) in enumerate(sides) if site.at(source) != site.at(target))


def replay(document, place, *, late=True):
    """Run all runs with buffers at `place(run, buffer)`; with `late`, host reads come as late as `read_after` says."""
    memory = _content(document, place)
    found, given, states = {}, {}, {}
    awaited = {}
    for run in document.runs:
        site = Site(place, run, document.programs[run.program])
        states[run.index] = here = []
        for op in site.program.ops:
            here.append(dict(memory))
            if not op.touches or op.index in run.skip:
                continue
            if late and run.read_after is not None and op.kind == "host.read":
                awaited.setdefault(run.read_after, []).append((site, op))
                continue
            _read(memory, site, op, found)
            _write(memory, site, op, found, given)
        here.append(dict(memory))
        for reader in awaited.pop(run.index, ()):
            _read(memory, *reader, found)
    return Replay(found, given, states)


def _content(document, place):
    """Lay the content of persistent buffers, in buffer order, through the slots of the first run that has them."""
    memory, laid = {}, set()
    for run in document.runs:
        for buffer in document.programs[run.program].buffers:
            if not buffer.persistent or (run.world, buffer.name) in laid:
                continue
            laid.add((run.world, buffer.name))
            space, base = place(run, buffer)
            cells = memory.setdefault(space, {})
            cells.update({base + cell: (("content", buffer.name, cell), None) for cell in range(buffer.cells)})
    return memory


def _read(memory, site, op, found):
    for v in op.operands:
        value = site.program.values[v]
        space, base = site.home(value)
        cells = memory.get(space, {})
        found[site.run.index, op.index, v] = {cell: cells.get(base + cell, NOTHING) for _, cell in value.cells}


def _write(memory, site, op, found, given):
    moved = moves(site, op)
    run, program = site.run.index, site.program
    for i, v in enumerate(op.results):
        value = program.values[v]
        tags = _handed_on(site, op, i, found) if op.same else {k: (run, program.index, v, k) for k, _ in value.cells}
        given[run, v] = {cell: tags.get(k) for k, cell in value.cells}
        if i not in moved:
            continue
        space, base = site.home(value)
        memory[space] = {**memory.get(space, {}), **{base + cell: (tags.get(k), run) for k, cell in value.cells}}


def _handed_on(site, op, position, found):
    """Return the tags that a `same` found in an operand: {cell of the value: tag}."""
    source = op.operands[position]
    seen = found[site.run.index, op.index, source]
    return {k: seen[cell][0] for k, cell in site.program.values[source].cells}
