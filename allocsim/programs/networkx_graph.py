"""Converts a program to a networkx DiGraph and back (docs/format.md, last section); graphs of other
tools come in this way.

Two kinds of node. `("op", i)` carries `kind="op"`, `op_kind`, `name`, `step`, `in_place`, `stream`;
`("value", j)` carries `kind="value"`, `name`, `buffer`, `dtype`, `shape`, `strides`, `offset`,
`bit_offset` if it is packed, and of its buffer `nbytes`, `alignment`, `arena`, `role`, `read_only`,
`buffer_name`, and `nbytes_range` if it has one. Edges value -> op carry `positions`, op -> value
`position`, op -> op `after`. `graph.graph` has the attributes of the program: name, arenas, streams
and buffers without values.

Lists are JSON text (`shape="[8, 8]"`), so that every attribute is a string, a number or a boolean,
as GraphML and the other formats of networkx need them: `write_graphml` accepts the graph, and the
graph from `read_graphml` gives the same program. Python lists are accepted, too.

A user's own DiGraph may leave out everything but nodes, edges, `nbytes` and `step`. It is read so:

* A node is an op or a value by its `kind`, or by the word its key begins with (`("op", 3)`).
  Otherwise a node with `step` is an op and a node with `nbytes` a value. A node with both and no
  `kind` is an op together with the one value it makes: the usual graph of tensors.
* Ops run in the order of `step`, which may have holes but no ties; it must agree with the edges.
* A value without `buffer` has a buffer of its own; values with equal `buffer` share it. `dtype`
  defaults to u8, `shape` to all `nbytes`.
* Positions that no edge names are filled in the order in which the edges were added.

What this module does not see: files, plans, and any time but `step`. Only functions that need
networkx import it.
"""

import json
import operator
import sys
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from allocsim.errors import ModelError
from allocsim.model import DEFAULT_ARENAS, DTYPE_CODES, EXACT, NEWEST, STRENGTHS, WIDTHS, Arena, Program, Role
from allocsim.programs.builder import Pair, ProgramBuilder, pairs_of
from allocsim.programs.dtype_names import dtype_of

if TYPE_CHECKING:
    import networkx as nx

_ROLES = {role.name.lower(): role for role in Role}


def as_program(thing: "Program | nx.DiGraph") -> Program:
    """Return a Program itself, or a DiGraph converted; raise ModelError for anything else."""
    if isinstance(thing, Program):
        return thing
    networkx = sys.modules.get("networkx")  # a caller with a graph has imported it
    if networkx is not None and isinstance(thing, networkx.Graph):
        return from_networkx(thing)
    raise ModelError("", f"a {type(thing).__name__} is neither a Program nor a networkx DiGraph")


def to_networkx(program: Program) -> "nx.DiGraph":
    """Return the program as a DiGraph with every attribute filled in.

    `from_networkx` gives equal columns. O(size).
    """
    import networkx as nx  # noqa: PLC0415  # a slow import that only interchange needs

    buffers = program.buffers
    arenas = [
        {"name": a.name, "alignment": a.alignment, "capacity": a.capacity, **_given(meta=a.meta)}
        for a in program.arenas
    ]
    graph = nx.DiGraph(name=program.name, arenas=_text(arenas), streams=_text(program.streams))
    graph.graph |= _given(meta=_some(program.meta), path=program.path)
    if program.version != NEWEST:
        graph.graph["version"] = program.version
    used = np.zeros(len(buffers), dtype=np.bool_)
    used[program.values.buffer] = True
    rows = [_buffer_attributes(program, index) for index in range(len(buffers))]
    if not used.all():
        graph.graph["unused_buffers"] = _text({index: rows[index] for index in np.flatnonzero(~used).tolist()})
    for value in program.values:
        attributes = {name: getattr(value, name) for name in ("name", "buffer", "dtype", "offset")}
        attributes |= {
            "shape": _text(value.shape),
            "strides": _text(value.strides),
            **_given(bit_offset=value.bit_offset),
        }
        meta = _given(meta=_some(program.values.meta.get(value.index)))
        graph.add_node(("value", value.index), kind="value", **attributes, **rows[value.buffer], **meta)
    for op in program.ops:
        node = ("op", op.step)
        attributes = {name: getattr(op, name) for name in ("name", "step", "stream")}
        attributes |= {"in_place": _text(pairs_of(op)), **_given(meta=_some(program.ops.meta.get(op.step)))}
        graph.add_node(node, kind="op", op_kind=op.kind, **attributes)
        for operand, positions in _positions(op.operands).items():
            graph.add_edge(("value", operand), node, positions=_text(positions))
        for result, positions in _positions(op.results).items():
            graph.add_edge(node, ("value", result), position=positions[0] if len(positions) == 1 else _text(positions))
        for earlier, positions in _positions(op.after).items():
            graph.add_edge(("op", earlier), node, after=_text(positions))
    return graph


def from_networkx(graph: "nx.DiGraph") -> Program:
    """Return the program of a DiGraph; the module header says what a graph may leave out.

    O(size). Raises ModelError, naming the node, for a graph that is undirected, has parallel edges
    or a cycle, lacks `nbytes` or `step`, or whose attributes contradict each other.
    """
    if not graph.is_directed() or graph.is_multigraph():
        raise ModelError(
            "graph", f"a {type(graph).__name__} is no DiGraph; edges need a direction and no parallels (`positions`)"
        )
    nodes = _Nodes()
    for key, attributes in graph.nodes(data=True):
        nodes.add(key, attributes)
    _refuse_cycle(graph)
    ops = _in_order(graph, nodes)
    builder = ProgramBuilder(
        str(graph.graph.get("name", "")),
        arenas=_arenas(graph),
        streams=tuple(map(str, _said(graph.graph, "graph", "streams", ("main",), Iterable))),
        version=_whole("graph", "version", graph.graph.get("version", NEWEST)),
        path=str(graph.graph.get("path", "")),
        meta=_said(graph.graph, "graph", "meta", None, Mapping),
    )
    values = _add_values(graph, nodes, builder)
    steps = {key: step for step, key in enumerate(ops)}
    for key in ops:
        edges_in = list(graph.pred[key].items())
        edges_out = list(graph.succ[key].items())
        operands = _placed(
            key, "positions", [(values[s], _said(edge, key, "positions", None)) for s, edge in edges_in if s in values]
        )
        after = _placed(
            key, "after", [(steps[s], _said(edge, key, "after", None)) for s, edge in edges_in if s not in values]
        )
        made = [
            (values[t], _said(edge, key, "position", None)) for t, edge in edges_out if t in values and t not in steps
        ]
        results = [values[key]] if key in values else _placed(key, "position", made)
        _add_op(builder, key, nodes.ops[key], operands, results, after=after)
    return builder.build()


@dataclass(slots=True)
class _Nodes:
    """The nodes of a graph, sorted into ops and values; a node that is both is in both lists."""

    ops: dict[Hashable, Mapping[str, Any]] = field(default_factory=dict)
    values: dict[Hashable, Mapping[str, Any]] = field(default_factory=dict)

    def add(self, key: Hashable, attributes: Mapping[str, Any]) -> None:
        said = attributes.get("kind")
        if said not in ("op", "value"):
            said = key[0] if isinstance(key, tuple) and key and key[0] in ("op", "value") else None
        if said == "op" or (said is None and "step" in attributes):
            self.ops[key] = attributes
        if said == "value" or (said is None and "nbytes" in attributes):
            self.values[key] = attributes
        if key not in self.ops and key not in self.values:
            raise ModelError(_node(key), "is neither an op (no `step`) nor a value (no `nbytes`)")


def _in_order(graph: "nx.DiGraph", nodes: _Nodes) -> list[Hashable]:
    """Return the ops by `step`; raise ModelError for ties and for edges against the order."""
    steps: dict[Hashable, int] = {}
    taken: dict[int, Hashable] = {}
    for key, attributes in nodes.ops.items():
        if "step" not in attributes:
            raise ModelError(_node(key), "is an op without `step`")
        step = _whole(key, "step", attributes["step"])
        if step in taken:
            raise ModelError(_node(key), f"has step {step}, as has {_node(taken[step])}; ops run one after another")
        steps[key] = step
        taken[step] = key
    for source, target in graph.edges:
        if source in nodes.values and source not in nodes.ops and target not in nodes.ops:
            raise ModelError(_node(target), f"follows the value {_node(source)} without an op between them")
        makers = [source] if source in steps else [key for key in graph.pred[source] if key in steps]
        late = next((key for key in makers if target in steps and steps[key] >= steps[target]), None)
        if late is not None:
            raise ModelError(
                _node(target), f"runs at step {steps[target]} and needs {_node(late)}, which runs at {steps[late]}"
            )
    return sorted(steps, key=steps.__getitem__)


def _refuse_cycle(graph: "nx.DiGraph") -> None:
    import networkx as nx  # noqa: PLC0415  # as in to_networkx

    if nx.is_directed_acyclic_graph(graph):
        return
    edges = nx.find_cycle(graph)
    round_trip = [source for source, _ in edges] + [edges[0][0]]
    shown = round_trip if len(round_trip) <= 9 else [*round_trip[:4], "...", *round_trip[-3:]]
    raise ModelError("graph", f"has a cycle: {' -> '.join(map(str, shown))}")


def _arenas(graph: "nx.DiGraph") -> tuple[Arena, ...]:
    arenas = _said(graph.graph, "graph", "arenas", DEFAULT_ARENAS, Iterable)
    try:
        return tuple(arena if isinstance(arena, Arena) else Arena(**arena) for arena in arenas)
    except TypeError:
        raise ModelError("graph.arenas", "holds something that is no arena") from None


def _add_values(graph: "nx.DiGraph", nodes: _Nodes, builder: ProgramBuilder) -> dict[Hashable, int]:
    """Add buffers and values; return the index of each value node."""
    owners: dict[Hashable, Any] = {
        key: attributes.get("buffer", ("own", key)) for key, attributes in nodes.values.items()
    }
    unused = _said(graph.graph, "graph", "unused_buffers", {}, Mapping)
    rows: dict[Hashable, dict[str, Any]] = {
        int(key) if str(key).isdecimal() else key: row for key, row in unused.items()
    }
    for key, attributes in nodes.values.items():
        if not isinstance(owners[key], Hashable):
            raise ModelError(_node(key), f"buffer {owners[key]!r} is no key; equal keys are one buffer")
        row = rows.setdefault(owners[key], {})
        for name in ("nbytes", "alignment", "arena", "role", "read_only", "buffer_name", "nbytes_range", "buffer_meta"):
            if name in attributes and row.setdefault(name, attributes[name]) != attributes[name]:
                rule = f"says {name}={attributes[name]!r} of a buffer that has {row[name]!r} elsewhere"
                raise ModelError(_node(key), rule)
        row.setdefault("first", key)
    numbered = all(_is_whole(buffer) for buffer in rows)
    order = sorted(rows) if numbered else list(rows)  # type: ignore[type-var]  # whole numbers where they are sorted
    index = {buffer: _add_buffer(builder, rows[buffer]) for buffer in order}
    keys: list[Any] = list(nodes.values)
    if all(isinstance(key, tuple) and len(key) == 2 and key[0] == "value" and _is_whole(key[1]) for key in keys):
        keys.sort(key=operator.itemgetter(1))
    return {
        key: _add_value(builder, key, nodes.values[key], index[owners[key]], rows[owners[key]]["nbytes"])
        for key in keys
    }


def _add_buffer(builder: ProgramBuilder, row: Mapping[str, Any]) -> int:
    key = row.get("first", row.get("buffer_name", ""))
    if "nbytes" not in row:
        raise ModelError(_node(key), "is a value without `nbytes`")
    role = row.get("role", "temporary")
    if not isinstance(role, Role) and (not isinstance(role, str) or role not in _ROLES):
        raise ModelError(_node(key), f"role {role!r} is none of {' '.join(_ROLES)}")
    return builder.buffer(
        str(row.get("buffer_name", _name(key))),
        _whole(key, "nbytes", row["nbytes"]),
        alignment=None if row.get("alignment") is None else _whole(key, "alignment", row["alignment"]),
        arena=_whole(key, "arena", row.get("arena", 0)),
        role=role if isinstance(role, Role) else _ROLES[role],
        read_only=bool(row.get("read_only", False)),
        nbytes_range=_ends(key, _said(row, key, "nbytes_range", None)),
        meta=_said(row, key, "buffer_meta", None, Mapping),
    )


def _add_value(builder: ProgramBuilder, key: Hashable, attributes: Mapping[str, Any], buffer: int, nbytes: Any) -> int:
    said = attributes.get("dtype", "u8")
    dtype = dtype_of(said)
    if dtype is None:
        raise ModelError(_node(key), f"dtype {said!r} is none of {' '.join(DTYPE_CODES)}")
    shape = _said(attributes, key, "shape", None)
    if shape is None:
        count, rest = divmod(8 * _whole(key, "nbytes", nbytes), int(WIDTHS[DTYPE_CODES[dtype]]))
        if rest:
            raise ModelError(_node(key), f"has no `shape`, and its {nbytes} bytes are no whole number of {dtype}")
        shape = (count,)
    strides = _said(attributes, key, "strides", None)
    return builder.value(
        str(attributes.get("name", _name(key))),
        buffer,
        dtype,
        _wholes(key, "shape", shape),
        strides=None if strides is None else _wholes(key, "strides", strides),
        offset=_whole(key, "offset", attributes.get("offset", 0)),
        bit_offset=_whole(key, "bit_offset", attributes.get("bit_offset", 0)),
        meta=_said(attributes, key, "meta", None, Mapping) if attributes.get("kind") == "value" else None,
    )


def _add_op(
    builder: ProgramBuilder,
    key: Hashable,
    attributes: Mapping[str, Any],
    operands: list[int],
    results: list[int],
    *,
    after: list[int],
) -> None:
    said = attributes.get("kind")
    in_place = _said(attributes, key, "in_place", (), Iterable)
    builder.op(
        str(attributes.get("op_kind", said if isinstance(said, str) and said != "op" else "op")),
        operands,
        results,
        name=str(attributes.get("name", _name(key))),
        in_place=None if in_place is None else [_pair(key, pair) for pair in in_place],
        stream=_whole(key, "stream", attributes.get("stream", 0)),
        after=after,
        meta=_said(attributes, key, "meta", None, Mapping),
    )


def _placed(key: Hashable, name: str, edges: list[tuple[int, Any]]) -> list[int]:
    """Return indices in order of the positions that their edges name.

    Indices without a position fill the free positions, in the order of the edges.
    """
    said: dict[int, int] = {}
    loose: list[int] = []
    for index, positions in edges:
        if positions is None or isinstance(positions, bool):
            loose.append(index)
            continue
        for position in (positions,) if _is_whole(positions) else _wholes(key, name, positions):
            if said.setdefault(int(position), index) != index:
                raise ModelError(_node(key), f"has two edges with {name} {position}")
    count = len(said) + len(loose)
    stray = next((position for position in said if not 0 <= position < count), None)
    if stray is not None:
        raise ModelError(_node(key), f"has an edge with {name} {stray}; there are {count}")
    waiting = iter(loose)
    return [said[position] if position in said else next(waiting) for position in range(count)]


def _buffer_attributes(program: Program, index: int) -> dict[str, Any]:
    buffers = program.buffers
    return {
        "nbytes": int(buffers.nbytes[index]),
        "alignment": int(buffers.alignment[index]),
        "arena": int(buffers.arena[index]),
        "role": Role(int(buffers.role[index])).name.lower(),
        "read_only": bool(buffers.read_only[index]),
        "buffer_name": buffers.names[index],
        **_given(buffer_meta=_some(buffers.meta.get(index)), nbytes_range=_some(buffers.nbytes_range.get(index))),
    }


def _positions(indices: tuple[int, ...]) -> dict[int, tuple[int, ...]]:
    found: dict[int, tuple[int, ...]] = {}
    for position, index in enumerate(indices):
        found[index] = (*found.get(index, ()), position)
    return found


def _given(**attributes: Any) -> dict[str, Any]:
    return {name: value for name, value in attributes.items() if value}


def _node(key: Any) -> str:
    return f"node {key!r}"


def _name(key: Any) -> str:
    return "_".join(map(str, key)) if isinstance(key, tuple) else str(key)


def _is_whole(number: Any) -> bool:
    return isinstance(number, int | np.integer) and not isinstance(number, bool)


def _whole(key: Hashable, name: str, number: Any) -> int:
    if not _is_whole(number):
        raise ModelError(_node(key), f"{name} {number!r} is not an integer")
    return int(number)


def _wholes(key: Hashable, name: str, numbers: Any) -> tuple[int, ...]:
    try:
        return tuple(_whole(key, name, number) for number in numbers)
    except TypeError:
        raise ModelError(_node(key), f"{name} {numbers!r} is not a list of integers") from None


def _pair(key: Hashable, pair: Any) -> Pair:
    try:
        *positions, strength = pair if len(pair) == 3 else (*pair, STRENGTHS[EXACT])
    except TypeError:
        positions, strength = [], ""
    if len(positions) != 2 or strength not in STRENGTHS:
        raise ModelError(_node(key), f"in_place {pair!r} is not a pair (operand position, result position)")
    operand, result = _wholes(key, "in_place", positions)
    return operand, result, strength


def _ends(key: Hashable, ends: Any) -> tuple[int, int] | None:
    if ends is None:
        return None
    numbers = _wholes(key, "nbytes_range", ends)
    if len(numbers) != 2:
        raise ModelError(_node(key), f"nbytes_range {ends!r} is not a pair (least size, greatest size)")
    return numbers[0], numbers[1]


def _text(thing: Any) -> str:
    """Return a list or mapping as JSON."""
    try:
        return json.dumps(thing)
    except (TypeError, ValueError, RecursionError) as error:
        raise ModelError("meta", f"cannot be written as JSON: {error}") from None


def _some(thing: Any) -> str | None:
    return _text(thing) if thing else None


def _said(attributes: Mapping[str, Any], key: Hashable, name: str, default: Any, kind: type = object) -> Any:
    """Return an attribute that is a list or mapping, or the JSON text of one.

    Raise ModelError unless it is None or a `kind`.
    """
    said = attributes.get(name, default)
    if isinstance(said, str):
        try:
            said = json.loads(said)
        except (ValueError, RecursionError):
            raise ModelError(_node(key), f"{name} {said[:60]!r} is not JSON") from None
    if said is not None and not isinstance(said, kind):
        raise ModelError(_node(key), f"{name} {said!r} is no {'object' if kind is Mapping else 'list'}")
    return said
