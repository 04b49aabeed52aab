"""The page of a report: a run's record as Markdown that reads well as it is and rendered.

What the record does not hold is left out: a run that was cut short still gives a page. Names come
from files; in a table or in running text they are escaped, so that no name can break the page.
"""

from collections.abc import Mapping, Sequence
from itertools import zip_longest
from math import isfinite
from typing import Any, Final

from reports.gradient_rows import rows_at, telling_step
from reports.number_format import figures, nbytes, short

DETECTORS: Final = {
    "S": "static check of the plan",
    "H": "order over streams",
    "P": "sanitized run",
    "D": "default against reference",
    "K": "kernel audit",
    "R": "replay and partial pins",
    "L": "believed lifetimes",
}

CAPTIONS: Final = {
    "loss": "Loss by training step",
    "gradients": "Gradients of the default run against the reference",
    "modes": "Errors of every mode against the reference (modes.csv has the rows)",
    "memory": "Memory of a step by category, predicted and measured",
    "map": "Memory map of the default run",
    "lifetimes": "Lifetimes: what the ops need and what the planner believed",
    "live": "Bytes alive against the size of the plans",
    "interference": "Who lives together with whom, round the first fault",
    "chain": "The graph forward, then backward, beside its memory",
    "categories": "Bytes alive by category",
    "streams": "Streams by time",
}

MOST_STEPS: Final = 40
"""Longer runs show this many steps, evenly chosen with the first and the last among them."""

_PARTIES: Final = (("victim", "Victim"), ("writer", "Overwritten by"), ("reader", "Read late by"))


def page(run: Mapping[str, Any], pictures: Sequence[str] = ()) -> str:
    """Return the page; `pictures` are the names of the files in `figures/` without their suffix."""
    return _joined(said(run), measured(run), _pictures(pictures)) + "\n"


def said(run: Mapping[str, Any]) -> str:
    """Return the first half of the page: the verdict, its cure, and what each detector says."""
    verdict = run.get("verdict") or {}
    return _joined(_head(run), _verdict(verdict), _cure(verdict), _detectors(run.get("detectors") or {}))


def measured(run: Mapping[str, Any]) -> str:
    """Return the second half: losses, memory and gradients."""
    modes = run.get("modes") or {}
    return _joined(_losses(modes), _memory(run.get("memory") or {}), _gradients(modes))


def _joined(*parts: str) -> str:
    return "\n\n".join(part for part in parts if part)


def _head(run: Mapping[str, Any]) -> str:
    lines = [f"# {_text(run.get('scenario') or 'Run')}"]
    expected = run.get("expected") or {}
    if run.get("matches") is not None and expected:
        verb = "is" if run["matches"] else "is **not**"
        what = (
            f"class {_text(expected['class'])}, fault {_text(expected.get('fault'))}"
            if expected.get("class")
            else "nothing wrong"
        )
        lines.append(f"The verdict {verb} the one expected ({what}).")
    return "\n\n".join(lines)


def _verdict(verdict: Mapping[str, Any]) -> str:
    if not verdict:
        return ""
    lines = ["## Verdict", _text(verdict.get("text") or "")]
    facts = []
    if verdict.get("class"):
        facts.append(f"- Class {_text(verdict['class'])}, fault: **{_text(verdict.get('fault'))}**")
    facts += [f"- {title}: {_party(verdict[name])}" for name, title in _PARTIES if verdict.get(name)]
    if verdict.get("belief"):
        facts.append(f"- Belief that failed: {_text(verdict['belief'])}")
    facts += [_also(other) for other in verdict.get("also") or ()]
    lines.append("\n".join(facts))
    return "\n\n".join(line for line in lines if line)


def _also(other: Mapping[str, Any]) -> str:
    text = other.get("text")
    return f"- Also class {_text(other.get('class'))}, fault: **{_text(other.get('fault'))}**" + (
        f". {_text(text)}" if text else ""
    )


def _party(party: Any) -> str:
    """Say one witness: a name, or the object of a verdict with op, value, bytes and address."""
    if not isinstance(party, Mapping):
        return _text(party)
    name = party.get("value_name") or party.get("buffer_name")
    words = [f"`{_code(name)}`"] if name else []
    if party.get("op") is not None:
        words.append(f"op {party['op']:,} `{_code(party.get('op_name') or '?')}`")
    if party.get("run"):
        words.append(f"run {party['run']:,}")
    ranges = party.get("bytes") or ()
    if ranges:
        first, last = ranges[0]
        more = f" and {len(ranges) - 1:,} more ranges" if len(ranges) > 1 else ""
        words.append(f"bytes {first:,} to {last:,}{more}")
    if party.get("address") is not None:
        words.append(f"at address {party['address']:,}")
    return ", ".join(words) or "unknown"


def _cure(verdict: Mapping[str, Any]) -> str:
    if not verdict.get("cure"):
        return ""
    cure = verdict["cure"]
    said = cure if isinstance(cure, str) else "; ".join(str(part) for part in cure)
    rows = [
        ["the cure", _growth(verdict.get("cure_bytes"))],
        ["pinning everything", _growth(verdict.get("pin_all_bytes"))],
    ]
    return f"## Cure\n\n{_text(said)}\n\n{_table(['', 'costs'], rows)}"


def _growth(number: Any) -> str:
    if number is None:
        return "not measured"
    if abs(number) < 1024:
        return "nothing" if number == 0 else f"{number:+,} bytes"
    return f"{'+' if number > 0 else '-'}{nbytes(abs(number))} ({number:+,} bytes)"


def _detectors(detectors: Mapping[str, Any]) -> str:
    rows = []
    for name, found in detectors.items():
        facts = dict(found) if isinstance(found, Mapping) else {"status": found}
        status, number = facts.pop("status", ""), facts.pop("count", None)
        notes = "; ".join(
            f"{_text(key)}: {_text(_brief(value))}" for key, value in facts.items() if value not in (None, "", [], {})
        )
        what = DETECTORS.get(name, "")
        rows.append([f"{_text(name)}", what, _text(status), "" if number is None else f"{number:,}", notes])
    return f"## Detectors\n\n{_table(['', 'detector', 'says', 'count', 'notes'], rows)}" if rows else ""


def _brief(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return figures(value)
    if isinstance(value, Mapping):
        return ", ".join(f"{key} {_brief(part)}" for key, part in list(value.items())[:6])
    if isinstance(value, list | tuple):
        return ", ".join(_brief(part) for part in value[:4]) + (
            f" and {len(value) - 4:,} more" if len(value) > 4 else ""
        )
    return short(str(value), 120)


def _losses(modes: Mapping[str, Any]) -> str:
    losses = {mode: record.get("loss") or [] for mode, record in modes.items()}
    steps = max((len(loss) for loss in losses.values()), default=0)
    sizes = {mode: record.get("arena_bytes") for mode, record in modes.items()}
    parts = []
    if steps:
        chosen = (
            range(steps)
            if steps <= MOST_STEPS
            else sorted({round(k * (steps - 1) / (MOST_STEPS - 1)) for k in range(MOST_STEPS)})
        )
        rows = [[f"{step + 1:,}", *(_loss(loss, step) for loss in losses.values())] for step in chosen]
        parts.append(_table(["step", *losses], rows))
        if steps > MOST_STEPS:
            parts.append(f"{len(rows)} of {steps:,} steps; all of them are in `report.json`.")
    if any(size is not None for size in sizes.values()):
        parts.append(
            _table(["mode", "memory"], [[_text(m), "" if size is None else nbytes(size)] for m, size in sizes.items()])
        )
    return "\n\n".join(["## Loss and memory", *parts]) if parts else ""


def _memory(memory: Mapping[str, Any]) -> str:
    """Say what a step held at its fullest by category, as predicted and as measured."""
    if not memory:
        return ""
    fullest = {side: _fullest(memory[side]) for side in ("predicted", "measured")}
    names = list(dict.fromkeys(name for found in fullest.values() for name in found))
    rows = [[_text(name), *(nbytes(found.get(name, 0)) for found in fullest.values())] for name in names]
    rows.append(["together", *(nbytes(sum(found.values())) for found in fullest.values())])
    taken = f"The default run took {nbytes(memory.get('taken') or 0)} with gaps and padding."
    return f"## Memory at the fullest step\n\n{_table(['', *fullest], rows)}\n\n{taken}"


def _fullest(live: Mapping[str, Sequence[int]]) -> dict[str, int]:
    """Return the bytes of each category at the step where they are most together."""
    steps = list(zip_longest(*live.values(), fillvalue=0))
    return dict(zip(live, max(steps, key=sum, default=(0,) * len(live)), strict=True))


def _loss(loss: Sequence[Any], step: int) -> str:
    if step >= len(loss):
        return ""
    value = loss[step]
    return f"{value:.4f}" if value is not None and isfinite(value) else "not finite"


def _gradients(modes: Mapping[str, Any]) -> str:
    gradients = (modes.get("default") or {}).get("gradients") or []
    if not gradients:
        return ""
    step = telling_step(gradients)
    cells: dict[int | None, dict[str, str]] = {}
    tensors: dict[str, None] = {}
    for row in rows_at(gradients, step):
        tensors[row.tensor] = None
        cells.setdefault(row.layer, {})[row.tensor] = _compared(row.ratio, row.cosine)
    rows = [
        ["none" if layer is None else f"{layer}", *(found.get(t, "") for t in tensors)]
        for layer, found in cells.items()
    ]
    return (
        f"## Gradients at step {_text(step)}\n\nSize of the default run's gradient over the reference's, and "
        "the cosine between them; "
        f"right is 1 and 1.\n\n{_table(['layer', *tensors], rows)}"
    )


def _compared(ratio: Any, cosine: Any) -> str:
    if ratio is None and cosine is None:
        return "reference is zero"
    return f"{'?' if ratio is None else figures(ratio)}, {'?' if cosine is None else f'{cosine:.4f}'}"


def _pictures(names: Sequence[str]) -> str:
    shown = [
        f"### {CAPTIONS.get(name, name)}\n\n![{CAPTIONS.get(name, name)}](figures/{name}.png)\n\n[as "
        f"SVG](figures/{name}.svg)"
        for name in names
    ]
    return "\n\n".join(["## Pictures", *shown]) if shown else ""


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a table whose columns line up in plain text too, numbers to the right."""
    head = [_text(cell) for cell in head]
    cells = [head, *([str(cell) for cell in row] for row in rows)]
    widths = [max(3, *(len(row[column]) for row in cells)) for column in range(len(head))]
    right = [bool(rows) and all(_numeric(row[column]) for row in rows) for column in range(len(head))]
    lines = [
        "| "
        + " | ".join(cell.rjust(w) if r else cell.ljust(w) for cell, w, r in zip(row, widths, right, strict=True))
        + " |"
        for row in cells
    ]
    rule = "| " + " | ".join("-" * (w - 1) + ":" if r else "-" * w for w, r in zip(widths, right, strict=True)) + " |"
    return "\n".join([lines[0], rule, *lines[1:]])


def _numeric(cell: str) -> bool:
    return not cell or cell.lstrip("+-")[:1].isdigit()


def _text(thing: Any) -> str:
    """Return text as Markdown shows it literally, on one line."""
    words = " ".join(str(thing).split())
    return "".join(
        f"\\{c}" if c in "\\`*<>[]|#" or (c == "_" and not _inside(words, i)) else c for i, c in enumerate(words)
    )


def _inside(words: str, index: int) -> bool:
    """Return whether an underscore stands within a word, where it means nothing to Markdown."""
    return 0 < index < len(words) - 1 and words[index - 1].isalnum() and words[index + 1].isalnum()


def _code(name: Any) -> str:
    """Return a name as the inside of a code span."""
    return short(str(name).replace("`", "'").replace("|", "/"), 60)
