"""Write a cure as a JSON Patch (RFC 6902) of the native document. The patch has every change, down
to single slots, so that any program that edits JSON can apply the cure.

A changed member is written with `add`, which replaces an old value, because a file may omit members
that have their default. Rows of programs, problems, plans, ops, slots and runs are addressed by
index. A plan that the cure adds comes after the other plans. `examples/apply_cure.py` applies a
patch without importing this project.

Complexity: O(size of the document before the cure and after the cure).

This module does not examine the reasons for the changes.
"""

import json
from collections.abc import Iterator
from functools import lru_cache
from typing import Any, Final

from allocsim.document import dumps
from allocsim.model import Document

Edit = dict[str, Any]

ROWS: Final = frozenset({"arenas", "programs", "problems", "plans", "ops", "buffers", "values", "slots", "session"})
"""The members that are lists of rows; a mended document keeps the order of these rows."""


def patch(before: Document, after: Document) -> tuple[Edit, ...]:
    """Return the edits that turn `before` into `after`, in the order of application."""
    return tuple(_members("", _written(before), _written(after)))


@lru_cache(maxsize=2)
def _written(document: Document) -> Any:
    return json.loads(dumps(document))


def _members(path: str, old: Any, new: Any) -> Iterator[Edit]:
    for name in sorted(old.keys() - new.keys()):
        yield {"op": "remove", "path": f"{path}/{name}"}
    for name, value in new.items():
        if name not in old:
            yield {"op": "add", "path": f"{path}/{name}", "value": value}
        elif old[name] != value:
            yield from _rows(f"{path}/{name}", old[name], value, rows=name in ROWS)


def _rows(path: str, old: Any, new: Any, *, rows: bool) -> Iterator[Edit]:
    if not rows or len(new) < len(old):
        yield {"op": "add", "path": path, "value": new}
        return
    for index, (was, now) in enumerate(zip(old, new, strict=False)):
        if was != now and isinstance(was, dict) and isinstance(now, dict) and not path.endswith("/slots"):
            yield from _members(f"{path}/{index}", was, now)
        elif was != now:
            yield {"op": "replace", "path": f"{path}/{index}", "value": now}
    for row in new[len(old) :]:
        yield {"op": "add", "path": f"{path}/-", "value": row}
