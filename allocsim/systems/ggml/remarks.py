"""The remarks printed beside the verdict on a ggml document: cures as calls of ggml, hints, and
assumptions about the host where none of its calls was recorded.

Contract: `remarks_on(document, causes)` returns sentences under `in ggml`, `hints` and `assumed`; a
heading without sentences is left out. A document of another system has no remarks, and costs no
time. A dump or a capture shows a graph and no host. A record (`allocsim.systems.ggml.host_record`)
counts the host's calls under `meta.ggml.host`. What this module does not see: whether the
assumptions are true.
"""

from typing import TYPE_CHECKING

from allocsim.model import HOST_READ, HOST_WRITE, Document
from allocsim.systems.ggml.ggml_dump import host_told

if TYPE_CHECKING:
    from collections.abc import Sequence

    from allocsim.verdict.records import Cause

MOST_NAMED = 3
"""The most leafs that a sentence names."""


def remarks_on(document: Document, causes: "Sequence[Cause]" = ()) -> dict[str, list[str]]:
    """Return the curing calls, hints and assumptions by heading; empty headings are left out."""
    if "ggml" not in document.meta:
        return {}
    from allocsim.systems.ggml.capture.capture_hints import hints_of  # noqa: PLC0415 - imported only for a ggml document
    from allocsim.systems.ggml.curing_calls import curing_calls  # noqa: PLC0415 - likewise

    said = {"in ggml": curing_calls(document, causes), "hints": hints_of(document), "assumed": assumptions_of(document)}
    return {name: texts for name, texts in said.items() if texts}


def assumptions_of(document: Document) -> list[str]:
    """Return sentences that state what is assumed about the host of a ggml document."""
    if "ggml" not in document.meta:
        return []
    host = host_told(document.meta)
    if host is None:
        return [text for text in (_uploads(document), _reads(document)) if text]
    names = host.assumed
    more = f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
    listed = ", ".join(map(repr, names[:MOST_NAMED])) + more
    found = [f"the host uploaded {listed} by pointer before the first use: no recorded call did"] if names else []
    if hidden := ", ".join(map(repr, host.unseen)):
        found.append(
            f"a scheduler waits wherever it has to: its calls to {hidden} were not recorded, because the backend has "
            "an unknown layout or the program replaced its functions"
        )
    return found if host.reads else [text for text in (*found, _reads(document)) if text]


def _uploads(document: Document) -> str:
    leafs = sum(int(program.ops.is_kind(HOST_WRITE).sum()) for program in document.programs)
    which = "the leaf of the plan is" if leafs == 1 else f"each of {leafs} leafs of the plan is"
    return f"{which} uploaded before each run" if leafs else ""


def _reads(document: Document) -> str:
    flagged = sum(int(program.ops.is_kind(HOST_READ).sum()) for program in document.programs)
    return f"the host reads the tensors flagged OUTPUT ({flagged}) and nothing else" if flagged else ""
