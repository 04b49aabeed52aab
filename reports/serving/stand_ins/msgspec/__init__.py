"""The part of msgspec's interface that reading a document and the verdict ask for, in plain Python.

As `numpy` beside it, for a browser's Python. Rows are made of what JSON holds; bounds and unknown
keys are not looked at: the plain judge has read the document by its own rules before.

What this module does not see: what is wrong with a document.
"""

import copy
import enum
import inspect
import json as _json
import sys
import types
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Literal, Union, get_args, get_origin


class MsgspecError(Exception):
    """What the others are."""


class DecodeError(MsgspecError):
    """No JSON."""


class ValidationError(DecodeError):
    """JSON of another type."""


class UnsetType(enum.Enum):
    """Of a field that is absent."""

    UNSET = "UNSET"

    def __bool__(self) -> bool:
        return False


UNSET = UnsetType.UNSET


def Meta(**said: Any) -> Any:
    """Return what an annotation says besides a type."""
    return tuple(said.items())


class Raw(bytes):
    """JSON as it is written."""


class Struct:
    """A record whose fields are its annotations."""

    __struct_fields__: tuple[str, ...] = ()
    _defaults: Mapping[str, Any] = MappingProxyType({})
    _types: Mapping[str, Any] = MappingProxyType({})
    _array = False

    def __init_subclass__(cls, *, array_like: bool = False, **_: Any) -> None:
        own = {
            name: kind
            for name, kind in inspect.get_annotations(cls).items()
            if not str(kind).startswith("typing.ClassVar")
        }
        cls.__struct_fields__ = (*cls.__struct_fields__, *(name for name in own if name not in cls.__struct_fields__))
        cls._types = {**cls._types, **own}
        cls._defaults = {**cls._defaults, **{name: vars(cls)[name] for name in own if name in vars(cls)}}
        cls._array = array_like or cls._array

    def __init__(self, *given: Any, **named: Any) -> None:
        named.update(zip(self.__struct_fields__, given, strict=False))
        for name in self.__struct_fields__:
            if name not in named and name not in self._defaults:
                raise TypeError(f"Missing required argument '{name}'")
            setattr(self, name, named[name] if name in named else copy.copy(self._defaults[name]))

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and all(getattr(self, n) == getattr(other, n) for n in self.__struct_fields__)

    def __hash__(self) -> int:
        return hash(tuple(getattr(self, name) for name in self.__struct_fields__))

    def __iter__(self) -> Any:
        if not self._array:
            raise TypeError(f"{type(self).__name__} is not iterable")
        return (getattr(self, name) for name in self.__struct_fields__)


_CLASS = type


def convert(what: Any, type: Any = Any) -> Any:
    """Return what JSON holds as a type."""
    origin, inner = get_origin(type), get_args(type)
    if isinstance(type, _CLASS) and issubclass(type, Struct):
        if type._array:
            return type(*(convert(v, type._types[name]) for v, name in zip(what, type.__struct_fields__, strict=False)))
        if not isinstance(what, dict):
            raise ValidationError(f"Expected `object`, got `{what!r:.40}`")
        return type(**{name: convert(v, type._types[name]) for name, v in what.items()})
    if hasattr(type, "__metadata__"):
        return convert(what, inner[0])
    if origin in (Union, types.UnionType):
        if what is None:
            return None
        return convert(what, _member(what, inner))
    if origin is list:
        return [convert(v, inner[0]) for v in what]
    if origin is tuple:
        kinds = inner[:1] * len(what) if inner[-1] is Ellipsis else inner
        return tuple(convert(v, kind) for v, kind in zip(what, kinds, strict=True))
    if origin is dict:
        return {key: convert(v, inner[1]) for key, v in what.items()}
    return what


def _member(what: Any, among: tuple[Any, ...]) -> Any:
    """Return which of several types a thing of JSON is."""
    bare = {kind: get_args(kind)[0] if hasattr(kind, "__metadata__") else kind for kind in among}
    wanted: dict[Any, Callable[[Any], bool]] = {
        dict: lambda kind: get_origin(kind) is dict or (isinstance(kind, type) and issubclass(kind, Struct)),
        list: lambda kind: get_origin(kind) in (list, tuple),
        str: lambda kind: kind is str or get_origin(kind) is Literal,
    }
    fits = wanted.get(type(what), lambda kind: kind not in (None, type(None), UnsetType))
    return next((kind for kind, inner in bare.items() if fits(inner)), Any)


def field(*, default: Any = UNSET, default_factory: Any = None, name: Any = None) -> Any:
    """Return the default of a field."""
    return default_factory() if default_factory else default


class _Decoder:
    def __init__(self, type: Any = Any) -> None:
        self.type = type

    def decode(self, data: Any) -> Any:
        """Return JSON as a type."""
        try:
            return convert(_json.loads(data), self.type)
        except (ValueError, UnicodeError) as error:
            raise DecodeError(str(error)) from None


class _Encoder:
    def __init__(self, **_: Any) -> None:
        pass

    def encode(self, what: Any) -> bytes:
        """Return plain things as JSON."""
        return _json.dumps(what, ensure_ascii=False, separators=(",", ":")).encode()


json = types.SimpleNamespace(
    Decoder=_Decoder,
    Encoder=_Encoder,
    decode=lambda data, type=Any: _Decoder(type).decode(data),
    encode=lambda what, **_: _Encoder().encode(what),
)
sys.modules["msgspec.json"] = json  # type: ignore[assignment]
