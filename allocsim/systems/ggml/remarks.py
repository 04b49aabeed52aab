"""What is said beside the verdict on a ggml document: cures in ggml's calls, hints, and what was
assumed of its host where no call of it was recorded.

Contract: `remarks_on(document, causes)` returns sentences under `in ggml`, `hints` and `assumed`,
none of them where there are none, nothing for a document that is no ggml's, at no cost. A dump or a
capture shows a graph and no host; a record (`allocsim.systems.ggml.host_record`) counts the calls
that it saw under `meta.ggml.host`. What this module does not see: whether it is so.
"""

from typing import TYPE_CHECKING

from allocsim.model import HOST_READ, HOST_WRITE, Document
from allocsim.systems.ggml.ggml_dump import host_told

if TYPE_CHECKING:
    from collections.abc import Sequence

    from allocsim.verdict.records import Cause

MOST_NAMED = 3
"""Leafs that are named."""


def remarks_on(document: Document, causes: "Sequence[Cause]" = ()) -> dict[str, list[str]]:
    """Return calls that cure, hints and assumptions, each where there are any."""
    if "ggml" not in document.meta:
        return {}
    from allocsim.systems.ggml.capture.capture_hints import hints_of  # noqa: PLC0415 - the bridge, for ggml alone
    from allocsim.systems.ggml.curing_calls import curing_calls  # noqa: PLC0415 - the same

    said = {"in ggml": curing_calls(document, causes), "hints": hints_of(document), "assumed": assumptions_of(document)}
    return {name: texts for name, texts in said.items() if texts}


def assumptions_of(document: Document) -> list[str]:
    """Return what is assumed of the host of a ggml document."""
    if "ggml" not in document.meta:
        return []
    host = host_told(document.meta)
    if host is None:
        return [text for text in (_uploads(document), _reads(document)) if text]
    names = host.assumed
    more = f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
    listed = ", ".join(map(repr, names[:MOST_NAMED])) + more
    found = [f"{listed} uploaded by pointer before its first run: no call wrote it"] if names else []
    if hidden := ", ".join(map(repr, host.unseen)):
        found.append(
            f"a scheduler waits wherever it has to: what it asks of {hidden} does not lie where it is known to, or the "
            "program puts functions of its own before it"
        )
    return found if host.reads else [text for text in (*found, _reads(document)) if text]


def _uploads(document: Document) -> str:
    leafs = sum(int(program.ops.is_kind(HOST_WRITE).sum()) for program in document.programs)
    which = "the leaf of the plan is" if leafs == 1 else f"each of {leafs} leafs of the plan is"
    return f"{which} uploaded before each run" if leafs else ""


def _reads(document: Document) -> str:
    flagged = sum(int(program.ops.is_kind(HOST_READ).sum()) for program in document.programs)
    return f"the host reads what is flagged OUTPUT ({flagged}) and nothing else" if flagged else ""
