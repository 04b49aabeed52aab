"""A training run as a TOML file: model, data, settings.

    [model]                      # kind: mlp, cnn, gpt2, llama
    kind = "mlp"
    sizes = [2, 16, 2]

    [data]                       # kind: moons, shapes, text, tokens, arrays
    kind = "moons"
    points = 500

    [training]                   # the fields of `engine.training.Settings`
    epochs = 20
    batch = 10
    logical_batch = 20
    validation = 0.1
    hyper = {alpha = 0.01}

    [schedule]                   # optional; kind: constant, linear, cosine
    kind = "cosine"
    alpha = 0.01
    warmup = 10

Data never name code: a `planner` is one of the table or of an installed entry point, never
`package.module:function`.

An entry that is unknown, missing or of another type is refused with its place. Paths are relative
to the file. The decoding is msgspec's. What this module does not see: how anything trains.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any, ClassVar, Final

import msgspec

from allocsim.allocators import find_installed
from allocsim.errors import AllocsimError, EngineError
from allocsim.files import gate
from engine.models import adapters, gpt2, llama, model_files, weights
from engine.models.cnn import cnn
from engine.models.mlp import mlp
from engine.models.trainable import Model
from engine.training import data as sources
from engine.training.dataset import Dataset
from engine.training.schedules import SCHEDULES, Schedule
from engine.training.settings import Settings

CEILINGS: Final[Mapping[str, int]] = {
    "layers": 4096,
    "points": 1 << 26,
    "images": 1 << 22,
    "size": 4096,
    "seq": 1 << 20,
}
"""Most that an entry may be; beyond is a slip, or made to do harm. All others: `CEILING`."""
CEILING: Final = 1 << 20
NUMBERS: Final = 1 << 30
"""Most numbers a table may make, in weights or data: 4 GiB of f32."""


def _check_sizes(table: msgspec.Struct) -> None:
    """Raise EngineError for a size beyond its ceiling, before anything is made of it."""
    for name in table.__struct_fields__:
        value = getattr(table, name)
        for number in value if isinstance(value, tuple) else (value,):
            if isinstance(number, int) and name not in ("seed", "shard") and number > CEILINGS.get(name, CEILING):
                raise EngineError(f"{name} is {number}; it must be at most {CEILINGS.get(name, CEILING)}")
    made = getattr(table, "numbers", 0)
    if made > NUMBERS:
        raise EngineError(f"this makes {made} numbers; {NUMBERS} are the most")


class _KindTable(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="kind", kw_only=True):
    """A table of the file that says its kind."""

    maker: ClassVar[Callable[..., Model | Dataset]]
    """Who makes what a table describes of its fields, where no `made` of its own does."""

    def __post_init__(self) -> None:
        """Check the seed of a table that has one."""
        seed = getattr(self, "seed", 0)
        if seed < 0:
            raise EngineError(f"seed is {seed}; it must be at least 0")
        _check_sizes(self)

    def made(self, folder: Path) -> Any:
        """Return the model or dataset of the table; a path in it is one of `folder`."""
        fields = msgspec.structs.asdict(self)
        return self.maker(**fields | ({"path": folder / fields["path"]} if "path" in fields else {}))


class Mlp(_KindTable, frozen=True, tag="mlp"):
    """`engine.models.mlp.mlp`."""

    maker = staticmethod(mlp)
    sizes: tuple[int, ...]
    activation: str = "relu"
    seed: int = 0

    @property
    def numbers(self) -> int:
        """Numbers in its weights."""
        return sum((a + 1) * b for a, b in pairwise(self.sizes))


class Gpt2(_KindTable, frozen=True, tag="gpt2"):
    """`engine.models.gpt2`: sizes and a seed, or a file."""

    weights: str | None = None
    layers: int = 2
    channels: int = 64
    heads: int = 4
    vocab: int = 256
    positions: int = 256
    seed: int = 0

    @property
    def numbers(self) -> int:
        """Numbers in its weights, but for the smallest."""
        return self.layers * 12 * self.channels**2 + (self.vocab + self.positions) * self.channels

    def made(self, folder: Path) -> Model:
        """Return the model."""
        if self.weights is not None:
            found = weights.read(folder / self.weights)
            if not isinstance(found.config, gpt2.GPT2Config):
                raise EngineError(f"{found.path}: holds {found.architecture}, not gpt2")
            return self._exporting(found.config, found.weights)
        config = gpt2.GPT2Config(
            layers=self.layers, channels=self.channels, heads=self.heads, vocab=self.vocab, positions=self.positions
        )
        return self._exporting(config, gpt2.init_parameters(config, seed=self.seed))

    @staticmethod
    def _exporting(config: gpt2.GPT2Config, given: Mapping[str, Any]) -> Model:
        return replace(gpt2.gpt2(config, given), exported=partial(model_files.trained, config, given))


_EXPERTS: Final = ("experts", "active", "capacity", "balance")


class Llama(_KindTable, frozen=True, tag="llama"):
    """`engine.models.llama`: sizes and a seed, or a file, with adapters or trained whole."""

    weights: str | None = None
    layers: int = 2
    hidden: int = 64
    ffn: int = 128
    heads: int = 4
    kv_heads: int = 2
    vocab: int = 256
    rope_theta: float = 10000.0
    tied: bool = True
    rank: int = 0
    alpha: float = 16.0
    targets: tuple[str, ...] = ("q", "v")
    dropout: float = 0.0
    """Share of what adapters read that is left out in training."""
    adapter: str | None = None
    """File or folder of adapters to go on from, with their rank, alpha and targets."""
    full: bool = True
    """Train every weight; else the adapters (or, without a rank, the targets)."""
    attention: str = "parts"
    experts: int = 0
    """Of each feed-forward part; this and the next three as `LlamaConfig` has them."""
    active: int = 2
    capacity: float = 1.25
    balance: float = 0.01
    seed: int = 0

    @property
    def numbers(self) -> int:
        """Numbers in its weights, but for the smallest."""
        wide = (3 * self.hidden * self.ffn + 8 * self.rank * (self.hidden + self.ffn)) * max(1, self.experts)
        layer = 4 * self.hidden**2 + wide
        return self.layers * layer + 2 * self.vocab * self.hidden

    def made(self, folder: Path) -> Model:
        """Return the model."""
        config, given = self._drawn() if self.weights is None else self._read(folder / self.weights, folder)
        files = partial(model_files.trained, config, given, base=self.weights is None)
        adapted = {"adapters": [config.rank, config.alpha, list(config.targets)]} if self.adapter is not None else {}
        model = replace(llama.llama(config, given), about=adapted)
        return model if config.experts else replace(model, exported=files)

    def _chosen(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in ("rank", "alpha", "targets", "dropout", "full", "attention")}

    def _drawn(self) -> tuple[llama.LlamaConfig, Mapping[str, Any]]:
        if self.adapter is not None:
            raise EngineError(f"adapter {self.adapter!r} lies over the weights of a file; weights names none")
        sizes = ("layers", "hidden", "ffn", "heads", "kv_heads", "vocab", "rope_theta", "tied", *_EXPERTS)
        config = llama.LlamaConfig(**{name: getattr(self, name) for name in sizes}, **self._chosen())
        return config, llama.init_parameters(config, seed=self.seed, embedding_std=0.02)

    def _read(self, path: Path, folder: Path) -> tuple[llama.LlamaConfig, Mapping[str, Any]]:
        if self.experts:
            raise EngineError(f"{self.experts} experts: the weights of a file have none")
        found, chosen = weights.read_llama(path), self._chosen()
        if self.adapter is None and (path / adapters.PEFT_CONFIG).exists():
            rule = f'adapter = "{self.weights}" takes them, `allocsim merge` adds them'
            raise EngineError(f"{path}: holds adapters beside the model; {rule}")
        if self.adapter is None:
            config = replace(found.config, **chosen)
            return config, {**llama.init_adapters(config, seed=self.seed), **found.weights}
        for name in ("rank", "alpha", "targets"):
            if getattr(self, name) != Llama.__struct_defaults__[Llama.__struct_fields__.index(name)]:
                raise EngineError(f"{name} is {getattr(self, name)!r}; it is that of adapter {self.adapter!r}")
        read = adapters.read(folder / self.adapter, found.config)
        as_asked = {name: chosen[name] for name in ("dropout", "full", "attention")}
        return replace(read.config, **as_asked), {**found.weights, **read.weights}


class Cnn(_KindTable, frozen=True, tag="cnn"):
    """`engine.models.cnn.cnn`."""

    maker = staticmethod(cnn)
    size: int
    """Height and width of the images."""
    classes: int
    channels: tuple[int, ...] = (8, 16)
    inputs: int = 1
    """Channels of the images."""
    seed: int = 0

    @property
    def numbers(self) -> int:
        """Numbers in its weights, kernels of up to 5 x 5, and in one image."""
        widths = (self.inputs, *self.channels)
        return sum(25 * a * b for a, b in pairwise(widths)) + self.size**2 * (max(widths) + self.classes * widths[-1])


class Moons(_KindTable, frozen=True, tag="moons"):
    """`engine.training.data.moons`."""

    maker = staticmethod(sources.moons)
    points: int
    noise: float = 0.1
    seed: int = 0


class ShapesTable(_KindTable, frozen=True, tag="shapes"):
    """`engine.training.data.shapes`."""

    maker = staticmethod(sources.shapes)
    images: int
    size: int = 12
    noise: float = 0.2
    seed: int = 0

    @property
    def numbers(self) -> int:
        """Numbers in its images."""
        return self.images * self.size**2


class Text(_KindTable, frozen=True, tag="text"):
    """`engine.training.data.text`."""

    maker = staticmethod(sources.text)
    path: str
    seq: int
    shard: int = 1


class Tokens(Text, frozen=True, tag="tokens"):
    """`engine.training.data.tokens`."""

    maker = staticmethod(sources.tokens)


class Arrays(_KindTable, frozen=True, tag="arrays"):
    """`engine.training.data.arrays`."""

    maker = staticmethod(sources.arrays)
    path: str
    shard: int = 1


class TrainingTable(Settings, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """How to train, and how often to save."""

    save_every: int = 100
    """Optimizer steps between checkpoints."""

    def __post_init__(self) -> None:
        """Check what the settings do not know of."""
        super().__post_init__()
        if self.save_every < 1:
            raise EngineError(f"save_every is {self.save_every}; it must be at least 1")


class ScheduleTable(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A schedule by name."""

    kind: str = "constant"
    alpha: float
    warmup: int | None = None
    floor: float | None = None


class Config(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The whole file."""

    model: Mlp | Cnn | Gpt2 | Llama
    data: Moons | ShapesTable | Text | Tokens | Arrays
    training: TrainingTable = TrainingTable()
    schedule: ScheduleTable | None = None


KINDS: Final[Mapping[str, tuple[str, ...]]] = {
    table: tuple(str(row.__struct_config__.tag) for row in rows)
    for table, rows in (("model", (Mlp, Cnn, Gpt2, Llama)), ("data", (Moons, ShapesTable, Text, Tokens, Arrays)))
}
"""The kinds that a table of the file can have."""


def _refused(source: str, _place: str, rule: str) -> EngineError:
    """Return the error, with the kinds there are where it is about one that is none."""
    table = next((table for table in KINDS if f" {table}.kind: " in rule), None)
    more = "" if table is None else f"; there are {', '.join(KINDS[table])}"
    return EngineError(f"{source}: {rule}{more}")


def read(path: str | Path) -> Config:
    """Return a configuration; EngineError, with file, place and rule, for what is none."""
    data = gate.content(path, gate.CEILINGS["settings"], refusal=gate.refused_with(EngineError))
    config: Config = gate.record_of(
        data, Config, str(path), what="training file", decode=msgspec.toml.decode, refusal=_refused
    )
    try:
        find_installed(config.training.planner)
    except AllocsimError as error:
        raise EngineError(f"{path}: $.training.planner: {error}") from None
    return config


def about(config: Config) -> dict[str, Any]:
    """Return what decides a course of training and neither weights nor settings show.

    What the model computes, and the schedule.
    """
    left: tuple[str, ...] = ("weights", "adapter")  # paths; what they hold is hashed
    if not getattr(config.model, "experts", 0):
        left += _EXPERTS  # a checkpoint of before there were any goes on
    model = {name: value for name, value in msgspec.to_builtins(config.model).items() if name not in left}
    return {"model table": model, "schedule": msgspec.to_builtins(config.schedule)}


def schedule(config: Config) -> Schedule | None:
    """Return the schedule, None where the file has none.

    Raises EngineError for an unknown kind or an option it does not take.
    """
    curve = config.schedule
    if curve is None:
        return None
    if curve.kind not in SCHEDULES:
        raise EngineError(f"schedule.kind is {curve.kind!r}; there are {', '.join(SCHEDULES)}")
    options = {name: value for name in ("warmup", "floor") if (value := getattr(curve, name)) is not None}
    if curve.kind == "constant" and options:
        raise EngineError(f"schedule: a constant one takes no {', '.join(options)}")
    return SCHEDULES[curve.kind](curve.alpha, **options)
