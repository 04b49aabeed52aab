"""Exports: a document as a file that another program shows. None of them is read back as it was.

| name | suffix | opened by |
|---|---|---|
| `chrome-trace` | `.trace.json` | Perfetto (ui.perfetto.dev), chrome://tracing |
| `memory-snapshot` | `.pickle` | PyTorch's viewer (pytorch.org/memory_viz), `torch.cuda._memory_viz` |
| `graphml` | `.graphml` | networkx, yEd, Gephi |
| `dot` | `.dot` | Graphviz |

Conventions. What was run is shown in the order of the session, each run behind the one before it;
one step is one microsecond. A buffer is shown where the run's plan puts it for as long as it lives
(`allocsim.liveness`); what has no slot in an arena is not shown. At the op that hands a slot
over, donor and recipient are both shown. What runs nothing has no time: `chrome-trace` and
`memory-snapshot` refuse it.

What this module does not see: whether any of it is right. No finding is in these files.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from allocsim.exports import chrome_trace, memory_snapshot, program_graph
from allocsim.model import Document


@dataclass(frozen=True, slots=True, kw_only=True)
class Export:
    """One kind of file for another program."""

    name: str
    what: str
    """One clause for people."""
    suffix: str
    """What its files end in."""
    saves: Callable[[Document], bytes]
    """The document as such a file, or OutputError where the format cannot say it."""


EXPORTS: Final[dict[str, Export]] = {
    row.name: row
    for row in (
        Export(
            name="chrome-trace",
            what="ops, buffers and live bytes over time, for Perfetto",
            suffix=".trace.json",
            saves=chrome_trace.dumps,
        ),
        Export(
            name="memory-snapshot",
            what="the buffers of each arena as a snapshot for PyTorch's memory viewer",
            suffix=".pickle",
            saves=memory_snapshot.dumps,
        ),
        Export(
            name="graphml",
            what="ops and values as a graph, for networkx, yEd and Gephi",
            suffix=".graphml",
            saves=program_graph.graphml,
        ),
        Export(name="dot", what="ops and values as a graph, for Graphviz", suffix=".dot", saves=program_graph.dot),
    )
}

__all__ = ["EXPORTS", "Export"]
