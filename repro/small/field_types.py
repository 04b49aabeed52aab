"""Check that the fields of a scenario have their declared types, because scenarios are written by
hand and often not seen by a type checker.

What this module does not see: the meaning of a field.
"""

import re
from collections.abc import Iterator
from dataclasses import fields
from enum import Enum
from functools import cache
from typing import Any, Final, get_args, get_type_hints

import msgspec

from allocsim.errors import ModelError

LONGEST: Final = 60
"""The largest number of characters of a value that a message shows."""

MODULES: Final = re.compile(r"(\w+\.)+(?=\w)")
"""A pattern for the module in front of the name of a type."""


def check_fields(thing: Any) -> None:
    """Raise ModelError for the first field of a dataclass whose value is not of its annotated type.

    Elements are checked too: `("C05", "plan")` is refused where a tuple of pairs is declared.
    """
    declared = _declared(thing.__class__)
    for field in fields(thing):
        value = getattr(thing, field.name)
        try:
            msgspec.convert(value, declared[field.name])
        except msgspec.ValidationError:
            said, hint = repr(value), declared[field.name]
            shown = said if len(said) <= LONGEST else f"{said[:LONGEST]}..."
            kind = hint.__name__ if isinstance(hint, type) and not get_args(hint) else MODULES.sub("", str(hint))
            raise ModelError(field.name, f"{shown} is no {kind}{_choices(hint)}") from None


def _choices(hint: Any) -> str:
    """Return a text that lists the members of the enumerations in a type, "" if it has none."""
    return "".join(
        f"; a {kind.__name__} is one of {', '.join(f'{kind.__name__}.{one.name}' for one in kind)}"
        for kind in _enums(hint)
    )


def _enums(hint: Any) -> Iterator[type[Enum]]:
    if isinstance(hint, type) and issubclass(hint, Enum):
        yield hint
    for part in get_args(hint):
        yield from _enums(part)


@cache
def _declared(kind: type) -> dict[str, Any]:
    hints = get_type_hints(kind)
    # another instance of `kind` in a field was checked when that instance was made
    return {name: Any if kind in get_args(hint) else hint for name, hint in hints.items()}
