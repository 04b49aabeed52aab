"""Apply the cure of a cause, or of all, to a native document, by nothing but the standard library.

    allocsim check --json plan.json > report.json
    python apply_cure.py plan.json report.json 0 > cured.json       # the cure of cause 0
    allocsim verdict --json plan.json > report.json
    python apply_cure.py plan.json report.json > cured.json         # the cure of all causes together

A cure's `patch` is a JSON Patch (RFC 6902) with `add`, `remove` and `replace`.
"""

import json
import sys
from pathlib import Path
from typing import Any


def applied(document: Any, patch: list[dict[str, Any]]) -> Any:
    """Return a document with the changes of a patch made, one after the other."""
    document = json.loads(json.dumps(document))
    for change in patch:
        *way, last = (part.replace("~1", "/").replace("~0", "~") for part in change["path"].split("/")[1:])
        place = document
        for part in way:
            place = place[int(part) if isinstance(place, list) else part]
        if isinstance(place, dict):
            if change["op"] == "remove":
                del place[last]
            else:
                place[last] = change["value"]
        elif last == "-":
            place.append(change["value"])
        elif change["op"] == "replace":
            place[int(last)] = change["value"]
        elif change["op"] == "add":
            place.insert(int(last), change["value"])
        else:
            del place[int(last)]
    return document


def main(document: str, report: str, cause: str | None = None) -> None:
    """Print the document of one file cured as the report of another says."""
    plan, said = (json.loads(Path(name).read_text(encoding="utf-8")) for name in (document, report))
    if cause is None:
        patch = said["patch"]
    else:
        patch = (said["files"][0] if "files" in said else said)["causes"][int(cause)]["cure"]["patch"]
    json.dump(applied(plan, patch), sys.stdout, indent=1)


if __name__ == "__main__":
    main(*sys.argv[1:])
