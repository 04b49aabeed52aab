"""The plain judge's report of a document in memory.

What this module does not see: files, sentences and causes.
"""

import json
from collections.abc import Mapping
from typing import Any

from allocsim.document import dumps
from allocsim.judge import plain
from allocsim.judge.violations import Report
from allocsim.model import Document


def plain_report(document: Document, *, limit: int, kinds: Mapping[str, Any] | None, strict: bool) -> Report:
    """Return the plain judge's report (`allocsim.judge.plain.judge`) of a document.

    `meta` is left out: no judge reads it, and in a document from memory it may be no JSON.
    """
    from allocsim.reduction.parts import without_meta  # noqa: PLC0415 - a clean document does not wait for it

    record = plain.read(json.loads(dumps(without_meta(document))))
    return plain.judge(record, limit=limit, kinds=None if kinds is None else dict(kinds), strict=strict)
