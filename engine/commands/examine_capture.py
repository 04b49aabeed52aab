"""The service `examine_capture`: what a captured graph of real ggml shows on the library that it
came from.

Contract: `examine_capture(document, seed, library)` returns
`allocsim.systems.ggml.capture_evidence.examine`, and None for a document that is no capture, at no
cost. `library` is before, after, or the path of a libggml; without it an installed one of the
capture's version is taken.

What this module does not see: how anything is run.
"""

from allocsim.model import Document
from allocsim.systems.ggml.capture_evidence import examine, is_capture
from allocsim.verdict.evidence import Evidence


def examine_capture(
    document: Document, seed: int = 0, library: str | None = None
) -> tuple[Evidence, dict[str, str], str] | None:
    """Return evidence, why detectors did not run, and whose kernels were run.

    The answer is None where the document is no capture.
    """
    return examine(document, library=library, seed=seed) if is_capture(document) else None
