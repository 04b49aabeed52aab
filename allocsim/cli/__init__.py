"""The command `allocsim`: a table of commands, each imported only when it is called.

Other packages bring more (`allocsim.plugins`).

Convention. A row of `COMMANDS` names a module, an attribute of it, and one line of help. The
attribute is either a function with typer's annotations, which becomes the command, or a
`typer.Typer`, whose functions become subcommands. Every command returns its exit status (None is 0)
and prints results on standard output; it raises `AllocsimError` or `OSError` for what the user can
mend, and never prints those itself. The table knows the help, so that `allocsim --help` imports no
command. Commands of other packages are looked up for the help, and for a name that is not in the
table.

| exit status | meaning |
|---|---|
| 0 | done, nothing found |
| 1 | done, and something is wrong with what was judged |
| 2 | bad usage or bad input: one line on standard error |
| 70 | a defect in allocsim itself, with its traceback |
| 130 | interrupted |
| 141 | nobody reads standard output any more; said silently |

What this module does not see: what the commands do. Nothing below `allocsim.cli` imports it.
"""

import os
import signal
import sys
import traceback
from collections.abc import Iterator, Sequence
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any, Final, NamedTuple

from allocsim import plugins
from allocsim.cli.progress import hush
from allocsim.errors import AllocsimError, UnknownNameError, os_error_line
from allocsim.printable import one_line


class Command(NamedTuple):
    """One row of the table."""

    module: str
    attribute: str
    """A function, or a `typer.Typer` with subcommands."""
    help: str


COMMANDS: Final = {
    name: Command(f"allocsim.cli.{name}", "app" if name == "record" else name, words)
    for name, words in {
        "check": "judge the plans in files of any supported format",
        "certify": "ask the proved checker whether every read finds what it must",
        "diagnose": "everything that can be run on a file or on saved evidence, one answer",
        "verdict": "the verdict on a file, or recomputed from saved evidence",
        "bisect": "the smallest cure, and the smallest program that still fails",
        "replay": "judge and execute what a plan allows: second runs, other programs and shapes, single pins",
        "plan": "make a plan with any allocator",
        "compare": "planners x problems: peak, ratio to the bound, time, soundness",
        "explain": "why a buffer lives when and where it does",
        "diff": "compare two plans: which buffers moved, and the peaks",
        "fuzz": "judge the plans that a planner makes for generated programs",
        "trace": "a recording of an allocator, judged or as a document",
        "record": "run a program, and judge what its host does with its runtime",
        "join": "the plans of several ranks as one document",
        "convert": "convert between file formats",
        "schema": "the JSON Schema of the native document",
        "completion": "a script that completes commands in a shell",
    }.items()
}
"""Every command of the core, in the order of the help."""

USAGE: Final = "usage: allocsim COMMAND [ARGUMENTS]...   (allocsim COMMAND --help says more)"

QUIET: Final = "ALLOCSIM_QUIET"
"""The variable of the environment that stands for `--quiet` of every command."""

HELP: Final = ("-h", "--help")

STATUSES: Final = (
    "exit status: 0 nothing found, 1 something found, 2 bad usage or input, or what",
    "cannot be judged; a command that ends otherwise says how in its own --help",
)

BAD_INPUT: Final = 2
INTERNAL: Final = 70
INTERRUPTED: Final = 130
BROKEN_PIPE: Final = 141


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command line and return its exit status; nothing is raised."""
    if arguments is None:  # the process is ours, and numpy is not loaded yet
        from allocsim.processor import prefer

        prefer(os.environ)
        _end_as_by_a_key()
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: PTH123, SIM115 - as long as the process
    if sys.stdout is None:
        return _say("standard output is closed: nothing can be said there", BAD_INPUT)
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")  # a name may hold what the terminal cannot show
    try:
        status = _run(list(sys.argv[1:] if arguments is None else arguments))
        sys.stdout.flush()
    except BrokenPipeError:
        _forget_output()
        return BROKEN_PIPE
    except KeyboardInterrupt:
        return _say("interrupted", INTERRUPTED)
    except Exception as error:  # noqa: BLE001  # the last one to see it: usage errors have no common public type
        return _said_of(error)
    return status


def _said_of(error: Exception) -> int:
    """Say one line of what ended a command, and return its exit status."""
    match error:
        case AllocsimError():
            return _say(str(error), BAD_INPUT)
        case OSError():
            return _say(os_error_line(error), BAD_INPUT)
        case ModuleNotFoundError():
            return _say_missing(error)
        case MemoryError():
            return _say("there is not enough memory for this", BAD_INPUT)
        case _:
            return _say_other(error)


def _run(arguments: list[str]) -> int:
    if len(arguments) > 1 and arguments[0] == "help":
        arguments = [arguments[1], "--help"]
    if not arguments or arguments[0] in (*HELP, "help"):
        sys.stdout.write(help_text() + "\n")
        return 0 if arguments else BAD_INPUT
    if arguments[0] in ("--version", "-V"):
        from allocsim import __version__  # as all below: only when called

        sys.stdout.write(f"allocsim {__version__}\n")
        return 0
    name, *rest = arguments
    row = COMMANDS.get(name) or _brought(name)
    command = _command(row)
    with command.make_context(f"allocsim {name}", rest) as context:
        return int(command.invoke(context) or 0)


def _brought(name: str) -> Command:
    """Return the row of a command that another package brings.

    Raises NotInstalledError or UnknownNameError.
    """
    brought, missing = plugins.commands()
    if name not in brought:
        unknown = UnknownNameError("command", name, {*COMMANDS, *brought})
        kind, what = ("folder", "evidence or a dump in it") if Path(name).is_dir() else ("file", "it")
        there = AllocsimError(f"{name!r} is a {kind} and no command; `allocsim check {name}` judges {what}")
        raise plugins.absent(name, missing) or (there if Path(name).exists() else unknown)
    module, _, attribute = brought[name].target.partition(":")
    return Command(module, attribute, brought[name].help)


def help_text() -> str:
    """Return the list of commands: those of the core, those that other packages bring, and a line
    for each package that is not there.
    """
    brought, missing = plugins.commands()
    rows = {name: row.help for name, row in COMMANDS.items()} | {
        name: row.help for name, row in brought.items() if name not in COMMANDS
    }
    width = max(map(len, rows))
    lines = [f"  {name:<{width}}  {words}" for name, words in rows.items()]
    purpose = "Find out why a memory plan gives wrong numbers: plan, kernel or caller."
    return "\n".join([USAGE, "", purpose, "", *lines, *map(one_line, missing), "", *STATUSES])


def every_command() -> Iterator[tuple[str, Any]]:
    """Yield the name of each command that is installed and typer's own object for it."""
    brought, _ = plugins.commands()
    for name in dict.fromkeys((*COMMANDS, *brought)):
        yield name, _command(COMMANDS.get(name) or _brought(name))


def _command(row: Command) -> Any:
    """Return the command behind a row: typer's own object, with usage, options and help."""
    import typer  # not for --help

    found: Any = getattr(import_module(row.module), row.attribute)
    app: typer.Typer = found
    if not isinstance(found, typer.Typer):
        app = typer.Typer(add_completion=False, rich_markup_mode=None)
        app.command(help=f"{row.help[0].upper()}{row.help[1:]}.", epilog=found.__doc__)(found)
    command = typer.main.get_command(app)
    command.context_settings["help_option_names"] = list(HELP)
    for one in getattr(command, "commands", {"": command}).values():
        one.params.append(_quiet())
    return command


def _quiet() -> Any:
    """Return the option that every command has."""
    import typer  # not for --help

    def said(given: bool) -> None:  # noqa: FBT001 - the protocol of callbacks
        hush(asked=given or bool(os.environ.get(QUIET)))

    option = typer.Option(
        False, "--quiet", "-q", callback=said, expose_value=False, show_default=False, help="Say nothing of progress."
    )

    def carrier(quiet: bool = option) -> None:  # noqa: FBT001 - as above
        del quiet

    app = typer.Typer(add_completion=False)
    app.command()(carrier)
    return typer.main.get_command(app).params[0]


def _end_as_by_a_key() -> None:
    """Have SIGTERM end a command as Ctrl-C does: temporary files go, and what is kept is whole."""
    if signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
        signal.signal(signal.SIGTERM, signal.default_int_handler)


def _say(message: str, status: int) -> int:
    with suppress(OSError):  # nobody may listen on standard error either
        sys.stderr.write(f"allocsim: {one_line(message)}\n")
        sys.stderr.flush()
    return status


def _say_missing(error: ModuleNotFoundError) -> int:
    """Name the extra or the package that brings a module, or the system that lacks one of Python's.

    A module that none brings is a defect of ours.
    """
    top = (error.name or "").partition(".")[0]
    if top in plugins.EXTRAS or top in plugins.RELEASED_TOGETHER:
        return _say(plugins.not_found(error), BAD_INPUT)
    if top in sys.stdlib_module_names:
        return _say(f"this needs {top}, which Python does not have on {sys.platform} (docs/limits.md)", BAD_INPUT)
    return _say_other(error)


def _say_other(error: Exception) -> int:
    """Answer typer's signals (exit, usage error, abort), which its versions spell differently.

    Anything else is our defect.
    """
    status = getattr(error, "exit_code", None)
    if hasattr(error, "format_message"):
        context = getattr(error, "ctx", None)
        hint = f" ({context.command_path} --help says more)" if context is not None else ""
        said = error.format_message().replace(": Value error, ", ": ").rstrip(".")  # typer's, of some versions
        return _say(f"{said}{hint}", BAD_INPUT)
    if isinstance(status, int):
        return status
    if type(error).__name__ == "Abort":
        return _say("interrupted", INTERRUPTED)
    traceback.print_exception(error)
    return _say("this is a defect in allocsim, not in your input; please report it with the lines above", INTERNAL)


def _forget_output() -> None:
    """Point standard output at nothing, so that the interpreter's last flush does not complain."""
    nothing = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nothing, sys.stdout.fileno())
    os.close(nothing)
