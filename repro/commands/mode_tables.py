"""The three tables that show a comparison of modes.

The first table has one line for each mode. The second table has the error of each layer at the
training step that `reports.mode_rows.telling_step` chooses. The third table has the largest error
of each training step.

What this module does not see: how modes are compared (`engine.d_differential.side_comparison`) and
chosen (`repro.mode_words`).
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from allocsim.cli.output import Section, in_bytes
from reports.mode_rows import layers_at, over_steps, telling_step


def sections(courses: Sequence[Mapping[str, Any]]) -> list[Section]:
    """Return the tables of a comparison; an empty list if nothing was compared."""
    if not courses:
        return []
    names = tuple(course["mode"] for course in courses)
    step = telling_step(courses)
    layers = layers_at(courses, step)
    return [
        (
            "modes",
            (
                *("mode", "program", "planner", "executor", "arena", "is"),
                *("from step", "first wrong", "ulp", "error", "last loss"),
            ),
            [_mode(course) for course in courses],
        ),
        (
            f"largest error against the reference, by layer at step {step}",
            ("layer", *names),
            [(layer, *_errors(found)) for layer, found in layers.items()],
        ),
        (
            "largest error against the reference, by step",
            ("step", *names),
            [(number, *_errors(found)) for number, found in over_steps(courses).items()],
        ),
    ]


def _mode(course: Mapping[str, Any]) -> tuple[Any, ...]:
    first = course["first"] or {}
    what = "" if not first else f"{first['name']} (op {first['op']}, {_inputs(first['inputs_equal'])})"
    return (
        course["mode"],
        course["dtype"],
        course["planner"],
        course["executor"],
        in_bytes(course["arena_bytes"]),
        course["nature"] or "different",
        course["first_step"] or "",
        what,
        "" if first.get("ulp") is None else f"{first['ulp']:.3g}",
        "" if first.get("relative") is None else f"{first['relative']:.3g}",
        "null" if course["loss"][-1] is None else f"{course['loss'][-1]:.6f}",
    )


def _inputs(equal: bool | None) -> str:  # noqa: FBT001 - a fact of the record
    return {True: "from equal inputs", False: "reads overwritten bytes", None: "inputs not compared"}[equal]


def _errors(found: Iterable[float | None]) -> list[str]:
    return ["not finite" if error is None else "0" if not error else f"{error:.3g}" for error in found]
