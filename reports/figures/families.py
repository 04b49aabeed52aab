"""Which colour each buffer has in a picture: by layer, by the kind of op that makes it, or by role.

Layers are those of `reports.figures.layers`. A kind is that of the first op other than `view` that
writes into the buffer.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import matplotlib as mpl
import numpy as np

from allocsim.errors import UnknownNameError
from allocsim.model import VIEW, Role
from reports.figures.layers import NO_LAYER, layer_of
from reports.figures.scene import Scene
from reports.figures.style import GREY, PALETTE
from reports.number_format import short

_NOBODY: Final = "given"
"""The kind of buffers that no op writes."""


@dataclass(frozen=True, kw_only=True)
class Families:
    """A colour for each buffer, and what the colours mean."""

    by: str
    """`layer`, `kind` or `role`."""
    colours: tuple[Any, ...]
    """By buffer."""
    legend: tuple[tuple[str, Any], ...]
    """Label and colour, the largest family first; empty for layers, which have a scale instead."""
    layers: int = 0
    """Layers on the scale."""


def families(scene: Scene, shown: Any, by: str | None = None) -> Families:
    """Colour all buffers by `by`.

    None chooses layers where most of the buffers shown have one, else kinds, else roles.

    Raises UnknownNameError for another word.
    """
    if by is not None:
        if by not in COLOURINGS:
            raise UnknownNameError("colouring", by, COLOURINGS)
        return COLOURINGS[by](scene, shown)
    layers = layer_of(scene.program)
    known = layers[shown] != NO_LAYER
    if len(np.unique(layers[shown][known])) > 1 and known.sum() >= len(known) / 2:
        return _by_layer(scene, shown)
    return _by_kind(scene, shown) if len(scene.program.ops) else _by_role(scene, shown)


def _by_layer(scene: Scene, _shown: Any) -> Families:
    layers = layer_of(scene.program)
    top = int(layers.max(initial=0))
    scale = mpl.colormaps["viridis"]
    colours = tuple(GREY if n == NO_LAYER else scale(0.08 + 0.84 * n / max(top, 1)) for n in layers.tolist())
    return Families(by="layer", colours=colours, legend=(), layers=top + 1)


def _by_kind(scene: Scene, shown: Any) -> Families:
    ops, values = scene.program.ops, scene.program.values
    kinds = [_NOBODY] * len(scene.program.buffers)
    written = np.repeat(np.arange(len(ops)), np.diff(ops.result_starts))
    for step, value in zip(written[::-1].tolist(), ops.results[::-1].tolist(), strict=True):
        if ops.kinds[ops.kind[step]] != VIEW:
            kinds[values.buffer[value]] = ops.kinds[ops.kind[step]]
    return _ranked(scene, shown, "kind", kinds)


def _by_role(scene: Scene, shown: Any) -> Families:
    return _ranked(scene, shown, "role", [Role(code).name.lower() for code in scene.program.buffers.role.tolist()])


def _ranked(scene: Scene, shown: Any, by: str, labels: Sequence[str]) -> Families:
    """Give the palette to the families with the most bytes x steps, grey to the rest."""
    total: dict[str, float] = {}
    weight = scene.nbytes.astype(np.float64) * (scene.stop - scene.start)
    for index in np.asarray(shown).tolist():
        total[labels[index]] = total.get(labels[index], 0.0) + float(weight[index])
    ranked = sorted(total, key=lambda label: (-total[label], label))
    named = ranked[: len(PALETTE)]
    colour = dict(zip(named, PALETTE, strict=False))
    legend = [(short(label, 24), colour[label]) for label in named]
    if len(ranked) > len(named):
        legend.append((f"{len(ranked) - len(named)} other kinds" if by == "kind" else "other", GREY))
    return Families(by=by, colours=tuple(colour.get(label, GREY) for label in labels), legend=tuple(legend))


COLOURINGS: Final[dict[str, Callable[[Scene, Any], Families]]] = {
    "layer": _by_layer,
    "kind": _by_kind,
    "role": _by_role,
}
