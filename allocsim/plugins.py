"""What other packages bring: commands, and services that commands of the core ask for.

Nothing below is imported from here by name.

| entry point group | name | value |
|---|---|---|
| `allocsim.commands` | who brings them | `package.module:TABLE`, a mapping of command to (`package.module:attribute`, one line of help) |
| `allocsim.services` | a service of `SERVICES` | `package.module:function`, called as the row of the table says |

Any package may bring commands. Where two bring one of the same name, neither is run. The module of
a table is imported for `allocsim --help`, so it should hold the table alone.

`engine`, `reports` and `repro` are the packages that are released together with `allocsim`, beside
it in one folder. A stranger's module of such a name that Python finds first (an `engine.py` in the
current folder) is never imported: it is named, with its file.

What this module does not see: what commands and services do.
"""

import os
from collections.abc import Callable, Mapping
from importlib import import_module, util
from pathlib import Path
from typing import Any, Final, NamedTuple

from allocsim.errors import NotInstalledError

COMMANDS: Final = "allocsim.commands"
SERVICES_GROUP: Final = "allocsim.services"

RELEASED_TOGETHER: Final = {
    "engine": "the engine that runs and differentiates programs",
    "reports": "pictures and pages",
    "repro": "the scenarios of real bugs",
}
"""The packages that stand beside `allocsim`, and what each is."""

KNOWN_COMMANDS: Final = {
    "train": "engine",
    "generate": "engine",
    "merge": "engine",
    "audit": "engine",
    "capture": "engine",
    "plot": "reports",
    "report": "reports",
    "serve": "reports",
    "repro": "repro",
}
"""Who brings a command, for the message where it is not there."""

SERVICES: Final = {
    "plot": ("reports", "(document, kind, path, run=0) -> None: draw one run of a document"),
    "plot_comparison": ("reports", "(rows, path) -> None: draw planners x problems"),
    "plot_audit": ("reports", "(rows, title, path) -> None: draw an audit of kernels"),
    "explore_orders": ("engine", "(document, seed) -> entries: run other legal orders of streams"),
    "examine_document": (
        "engine",
        "(document, seed) -> (evidence, letter -> why not): K, D and P with the engine's kernels",
    ),
    "examine_capture": (
        "engine",
        (
            "(document, seed=0, library=None) -> (evidence, letter -> why not, whose kernels), None for no "
            "capture: K and D where it came from"
        ),
    ),
    "execute": ("engine", "(case, plan) -> finding or None: run a plan beside one without reuse"),
    "training_programs": ("engine", "() -> strategy: training graphs as programs"),
    "time_plan": ("engine", "(plan) -> float: seconds of a run"),
    "replay_executor": ("engine", "(plan) -> (kernels or why there are none, case -> row)"),
    "fuzz_library": (
        "engine",
        "(library, examples, seed, shrink, out, as_json, minutes, corpus, jobs) -> exit status: fuzz a real libggml",
    ),
    "diagnose_model": (
        "repro",
        (
            "(model, data, steps=, out=, ...) -> repro.run.EngineResult: a model of one's own by three runs and "
            "every detector"
        ),
    ),
    "diagnose_named": (
        "repro",
        "(name, asked, out, as_json=) -> exit status: the same for package.module:attribute or a training file, printed",
    ),
    "bisect_scenario": ("repro", "(name, sizes, seconds) -> allocsim.cli.bisect.Bisected"),
    "replay_scenario": ("repro", "(name, allocator, sizes) -> context of (head, rows)"),
}
"""Service -> who brings it, how it is called and what for."""

EXTRAS: Final = {
    "numba": "compiled",
    "networkx": "graph",
    "matplotlib": "pictures",
    "markdown_it": "pictures",
    "ml_dtypes": "engine",
    "threadpoolctl": "engine",
    "safetensors": "train",
    "gguf": "train",
    "hypothesis": "fuzz",
    "coverage": "fuzz",
    "distributed": "cluster",
    "pytest": "dev",
}
"""Module of another project -> the extra of this one that brings it."""


class BroughtCommand(NamedTuple):
    """One command that a package brings."""

    target: str
    """`package.module:attribute`."""
    help: str
    by: str
    """The entry point."""


def commands() -> tuple[dict[str, BroughtCommand], list[str]]:
    """Return the commands that other packages bring, sorted by package, and a line for each package
    that is not there as it should be.
    """
    found: dict[str, BroughtCommand] = {}
    missing: list[str] = []
    twice: dict[str, set[str]] = {}
    for name, values in _entry_points(COMMANDS).items():
        for value in values:
            try:
                table: Mapping[str, tuple[str, str]] = load(value)
            except NotInstalledError as error:
                missing.append(str(error))
                continue
            except Exception as error:  # noqa: BLE001 - a stranger's package may raise anything
                missing.append(f"commands of {name} ({value}): {type(error).__name__}: {error}")
                continue
            for command, (target, words) in table.items():
                if command in found:
                    twice.setdefault(command, {found[command].by}).add(name)
                found[command] = BroughtCommand(target, words, name)
    for command, offers in twice.items():
        del found[command]
        missing.append(f"command {command!r} is brought by {' and '.join(sorted(offers))}; neither is used")
    return found, missing


def absent(command: str, missing: list[str]) -> NotInstalledError | None:
    """Return the error for a command that should be there and is not.

    The answer is None for one that nobody is known to bring.
    """
    package = KNOWN_COMMANDS.get(command)
    said = [line for line in missing if f"command {command!r}" in line]
    if package is None and not said:
        return None
    if said or package is None:
        return NotInstalledError(said[0])
    why = in_the_way(package) or f"{package} ({RELEASED_TOGETHER[package]}) is not installed beside allocsim"
    return NotInstalledError(f"the command {command!r} is brought by {package}: {why}")


def service(name: str) -> Callable[..., Any]:
    """Return the function that does a service of `SERVICES`.

    Raises NotInstalledError where nobody does it, or its package is not there.
    """
    package, _ = SERVICES[name]
    return load(service_target(name), wanted=f"this needs {package}")  # type: ignore[no-any-return]


def service_target(name: str) -> str:
    """Return the `package.module:attribute` of a service.

    Raises NotInstalledError where nobody does it, or two do.
    """
    package, _ = SERVICES[name]
    values = _entry_points(SERVICES_GROUP).get(name, [])
    if len(values) > 1:
        raise NotInstalledError(f"the service {name!r} is done twice, by {' and '.join(values)}")
    if not values:
        why = in_the_way(package) or f"{package} ({RELEASED_TOGETHER[package]}) is not installed beside allocsim"
        raise NotInstalledError(f"this needs {package}: {why}")
    return values[0]


def load(value: str, *, wanted: str = "") -> Any:
    """Return what `package.module:attribute` names.

    Raises NotInstalledError for a package that is not there, or not the one meant.
    """
    module, _, attribute = value.partition(":")
    top = module.partition(".")[0]
    told = f"{wanted or f'commands of {top}'}: "
    stranger = in_the_way(top)
    if stranger:
        raise NotInstalledError(told + stranger)
    try:
        return getattr(import_module(module), attribute)
    except ModuleNotFoundError as error:
        raise NotInstalledError(told + not_found(error)) from error


def not_found(error: ModuleNotFoundError) -> str:
    """Say which module is missing, and what brings it."""
    top = (error.name or "").partition(".")[0]
    if top in RELEASED_TOGETHER:
        return in_the_way(top) or f"{top} ({RELEASED_TOGETHER[top]}) is not installed beside allocsim"
    if top in EXTRAS:
        return f"{top} is not installed; pip install 'allocsim[{EXTRAS[top]}]' brings it"
    return f"module {error.name!r} is not installed"


def in_the_way(package: str) -> str:
    """Say which file stands in the way of a package that is released with this one.

    Empty if none does. Nothing is imported.
    """
    if package not in RELEASED_TOGETHER:
        return ""
    try:
        spec = util.find_spec(package)
    except (ImportError, ValueError):  # blocked, or put into sys.modules by hand
        return ""
    if spec is None:
        return ""
    place = Path(spec.origin) if spec.origin else Path(next(iter(spec.submodule_search_locations or [""])))
    ours = Path(__file__).resolve().parent.parent / package
    if place.resolve() in (ours, ours / "__init__.py"):
        return ""
    return f"{os.fspath(place)} is in the way of the package {package!r} that belongs to allocsim"


def _entry_points(group: str) -> dict[str, list[str]]:
    """Return name -> its different values, by name.

    One package may be found in two places of the path.
    """
    from importlib import metadata  # noqa: PLC0415 - takes longer to import than all else that a command of the core needs

    found: dict[str, list[str]] = {}
    for point in sorted(metadata.entry_points(group=group), key=lambda point: point.name):
        values = found.setdefault(point.name, [])
        if point.value not in values:
            values.append(point.value)
    return found
