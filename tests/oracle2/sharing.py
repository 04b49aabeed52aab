"""Which two buffers may lie on common bytes at one step of a run: by a pair of an op, or because they hold the same.

A hand-over by a pair: at op t a segment of the donor ends and one of the recipient begins (for a persistent recipient
by a full overwrite); the op reads the donor and does not write it, writes the recipient and does not read it, joins the
two by its contract, and breaks the in-place rule nowhere.

Sharing by tags: at least one common byte is live in both, and all such bytes hold, apart, one tag in both buffers,
before the op where they are live then and after it where they are live then. A cell that nobody wrote holds no tag, so
none that another holds.
A common byte that is live in both is asked for because buffers are otherwise compared whole.
"""

from dataclasses import dataclass, field

from .aliasing import examine, joins, joins_somewhere
from .memory import Site, apart


@dataclass(frozen=True, slots=True)
class Scene:
    """One run: its document, the lives of its buffers, and the states of memory apart."""

    document: object
    run: object
    lives: list
    states: list
    kinds: dict
    tags: dict = field(default_factory=dict)

    @property
    def program(self):
        return self.document.programs[self.run.program]


def hand_over(scene, place, step, donor, recipient):
    """Say whether an op hands the bytes of one buffer to another, with the buffers at `place(run, buffer)`."""
    op, site = scene.program.ops[step], Site(place, scene.run, scene.program)
    if not one_gives(scene, step, donor, recipient):
        return False
    return joins(site, op, donor, recipient, scene.kinds) and not examine(site, op, scene.kinds)[0]


def one_gives(scene, step, donor, recipient):
    """Say whether an op only reads the one, whose life ends, and only writes the other, whose life begins."""
    gives, takes = scene.lives[donor], scene.lives[recipient]
    if not gives.ends(step) or not takes.begins(step):
        return False
    if step not in gives.reads or step in gives.writes or step not in takes.writes or step in takes.reads:
        return False
    return not takes.persistent or step in takes.full


def might_share(scene, step, a, b):
    """Say whether two live buffers might share bytes at a step in some plan.

    By a pair: a declared one joins them, of whatever strength and wherever they lie; of an op of which nobody knows, two
    values of one layout do. By tags: at some distance they hold the same; only where a cell of the one and a cell of
    the other hold one tag can they.
    """
    op = scene.program.ops[step]
    for donor, recipient in ((a, b), (b, a)):
        if one_gives(scene, step, donor, recipient) and joins_somewhere(
            scene.program, op, donor, recipient, scene.kinds
        ):
            return True
    first, second = scene.program.buffers[a], scene.program.buffers[b]
    if _tags(scene, first, step).isdisjoint(_tags(scene, second, step)):
        return False
    places = {}
    for cell in range(first.cells):
        for moment in (0, 1):
            places.setdefault(_tag(scene, first, cell, step + moment), set()).add(cell)
    places.pop(None, None)
    distances = {
        here - cell
        for cell in range(second.cells)
        for moment in (0, 1)
        for here in places.get(_tag(scene, second, cell, step + moment), ())
    }
    return any(hold_the_same(scene, step, a, b, distance) for distance in distances)


def hold_the_same(scene, step, a, b, shift):
    """Say whether two buffers hold the same at an op, where cell i of `b` lies on cell i + shift of `a`."""
    life, other = scene.lives[a], scene.lives[b]
    first, second = scene.program.buffers[a], scene.program.buffers[b]
    shared = False
    for cell in range(max(0, shift), min(first.cells, second.cells + shift)):
        here, there = life.moments(cell, step), other.moments(cell - shift, step)
        if not here or not there:
            continue
        tags = {_tag(scene, first, cell, step + m) for m in here} | {
            _tag(scene, second, cell - shift, step + m) for m in there
        }
        if len(tags) > 1 or None in tags:
            return False
        shared = True
    return shared


def _tags(scene, buffer, step):
    """Return every tag that a buffer's own memory holds before or after an op; those of one op are kept."""
    if scene.tags.get("step") != step:
        scene.tags.clear()
        scene.tags["step"] = step
    if buffer.index not in scene.tags:
        space, _ = apart(scene.run, buffer)
        held = {entry[0] for moment in (0, 1) for entry in scene.states[step + moment].get(space, {}).values()}
        scene.tags[buffer.index] = held - {None}
    return scene.tags[buffer.index]


def _tag(scene, buffer, cell, state):
    space, _ = apart(scene.run, buffer)
    entry = scene.states[state].get(space, {}).get(cell)
    return entry[0] if entry else None


def may_share(scene, place, step, a, b):
    """Say whether two live buffers may share bytes at a step, at `place(run, buffer)`."""
    if hand_over(scene, place, step, a, b) or hand_over(scene, place, step, b, a):
        return True
    (_, base), (_, other) = (place(scene.run, scene.program.buffers[i]) for i in (a, b))
    return hold_the_same(scene, step, a, b, other - base)


def together(a, b):
    """Return a placement with two buffers at one address and every other in memory of its own."""
    return lambda run, buffer: (("together",), 0) if buffer.index in (a, b) else (("alone", buffer.index), 0)
