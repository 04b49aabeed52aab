"""The ops and values of a document as a graph: GraphML and DOT.

Nodes and attributes are those of `allocsim.programs.networkx_graph`. Where just one plan is of the
program, the value nodes also carry where its slot lies (`slot_arena`, `slot_offset`), and always
when their buffer lives (`live_from`, `live_to`: steps, half-open).

What this module does not see: how a graph is laid out on paper.
"""

import re
from io import BytesIO
from typing import TYPE_CHECKING, Final

from allocsim import liveness
from allocsim.errors import OutputError
from allocsim.files.sizes import in_bytes
from allocsim.model import Document, Program
from allocsim.programs.networkx_graph import to_networkx

if TYPE_CHECKING:
    import networkx as nx

ESCAPES: Final = str.maketrans({'"': '\\"', "\\": "\\\\"})
"""In a quoted text of DOT."""

NO_XML: Final = re.compile("[^\t\n\r -\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""Characters that XML 1.0 cannot hold, escaped or not."""


def graphml(document: Document) -> bytes:
    """Return the one program of a document as GraphML, which `networkx.read_graphml` reads.

    O(size). Raises OutputError where there are several, or a name that XML cannot say.
    """
    import networkx as nx  # noqa: PLC0415 - a slow import that only this needs

    if len(document.programs) != 1:
        raise OutputError(f"a GraphML file holds one graph; the document has {len(document.programs)} programs")
    made, file = graph_of(document, document.programs[0]), BytesIO()
    for row in (made.graph, *(row for *_, row in (*made.nodes(data=True), *made.edges(data=True)))):
        strange = next((text for text in row.values() if isinstance(text, str) and NO_XML.search(text)), None)
        if strange is not None:
            raise OutputError(f"{strange[:40]!r} has a character that XML cannot hold")
    nx.write_graphml_xml(made, file)
    return file.getvalue()


def dot(document: Document) -> bytes:
    """Return the programs of a document as one DOT graph, a cluster for each; O(size)."""
    lines = ["digraph allocsim {", "  rankdir=TB;", '  node [fontname="sans-serif", fontsize=10];']
    for number, program in enumerate(document.programs):
        lines += [f"  subgraph cluster_{number} {{", f"    label={_quoted(program.name)};"]
        lines += [f"    {line}" for line in _rows(graph_of(document, program), number)]
        lines.append("  }")
    return ("\n".join([*lines, "}"]) + "\n").encode()


def graph_of(document: Document, program: Program) -> "nx.DiGraph":
    """Return a program as a graph, with lives and, of its only plan, slots."""
    made = to_networkx(program)
    plans = [plan for plan in document.plans if plan.program is program]
    lives = liveness.lifetimes(program).tolist()
    for value in program.values:
        node = made.nodes["value", value.index]
        node["live_from"], node["live_to"] = lives[value.buffer]
        if len(plans) == 1 and plans[0].arena[value.buffer] >= 0:
            node["slot_arena"] = int(plans[0].arena[value.buffer])
            node["slot_offset"] = int(plans[0].offset[value.buffer])
    return made


def _rows(made: "nx.DiGraph", number: int) -> list[str]:
    nodes = []
    for (kind, index), row in made.nodes(data=True):
        if kind == "op":
            label, shape = f"{index} {row['name']}\n{row['op_kind']}", "box"
        else:
            slot = f" at {row['slot_offset']}" if "slot_offset" in row else ""
            label, shape = f"{row['name']}\n{in_bytes(row['nbytes'])}{slot}", "ellipse"
        nodes.append(f"{kind}_{number}_{index} [shape={shape}, label={_quoted(label)}];")
    edges = [
        f"{one}_{number}_{first} -> {other}_{number}_{second}{' [style=dashed]' if one == other else ''};"
        for (one, first), (other, second) in made.edges
    ]
    return nodes + edges


def _quoted(text: str) -> str:
    """Return text in quotes; what does not print is a blank."""
    lines = ["".join(c if c.isprintable() else " " for c in line).translate(ESCAPES) for line in text.split("\n")]
    return '"' + "\\n".join(lines) + '"'


__all__ = ["dot", "graph_of", "graphml"]
