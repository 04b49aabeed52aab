"""`allocsim completion SHELL`: a script that completes commands, options and files in bash, zsh or
fish.

The script is text without a call back into allocsim, made from the commands and options that are
installed now: nothing is started while a user types. Made anew after an update:

    source <(allocsim completion bash)

What this module does not see: what an option may be given; files are offered for everything.
"""

from collections.abc import Iterator
from enum import StrEnum
from typing import Annotated, Any

import typer

from allocsim.cli import every_command
from allocsim.cli.output import print_line


class Shell(StrEnum):
    """Those that a script is made for."""

    BASH = "bash"
    ZSH = "zsh"
    FISH = "fish"


BASH = """\
_allocsim() {
  local now="${COMP_WORDS[COMP_CWORD]}" key="" options="" next=""
  local place
  for ((place = 1; place < COMP_CWORD; place++)); do
    case "$key ${COMP_WORDS[place]}" in
%(keys)s
    esac
  done
  case "$key" in
%(rows)s
  esac
  if [[ "$now" == -* ]]; then
    COMPREPLY=($(compgen -W "$options" -- "$now"))
  elif [[ -n "$next" ]]; then
    COMPREPLY=($(compgen -W "$next" -- "$now"))
  else
    COMPREPLY=($(compgen -f -- "$now"))
  fi
}
complete -o filenames -F _allocsim allocsim
"""


def completion(shell: Annotated[Shell, typer.Argument(metavar="SHELL", help="bash, zsh or fish.")]) -> int:
    """Put the line into the file that your shell reads at its start.

    Example: allocsim completion bash
    """
    lines = fish_lines() if shell is Shell.FISH else bash_lines()
    for line in ("autoload -U +X bashcompinit && bashcompinit", *lines) if shell is Shell.ZSH else lines:
        print_line(line)
    return 0


def bash_lines() -> list[str]:
    """Return the script for bash, which zsh reads too."""
    table = {" ".join(path): command for path, command in _tree()}
    keys = "\n".join(f'      "{_before(key)}") key="{key}" ;;' for key in table if key)
    rows = "\n".join(
        f'    "{key}") options="{" ".join(_options(command))}" next="{" ".join(_names(command))}" ;;'
        for key, command in table.items()
    )
    return (BASH % {"keys": keys, "rows": rows}).splitlines()


def _before(key: str) -> str:
    """Return what the script compares with: the key so far, a blank, and the next word."""
    before, _, word = key.rpartition(" ")
    return f"{before} {word}"


def fish_lines() -> Iterator[str]:
    """Yield the script for fish."""
    yield "complete -c allocsim -e"
    for path, command in _tree():
        before = " && ".join(f"__fish_seen_subcommand_from {word}" for word in path) or "__fish_use_subcommand"
        for name in _names(command):
            yield f"complete -c allocsim -n '{before}' -a {name}"
        for option in _options(command):
            flag = f"-l {option.removeprefix('--')}" if option.startswith("--") else f"-s {option.removeprefix('-')}"
            yield f"complete -c allocsim -n '{before}' {flag}"


def _tree() -> Iterator[tuple[tuple[str, ...], Any]]:
    """Yield the path of each command and it: first all of them, as the one without a name."""
    top = dict(every_command())
    yield (), top
    for name, command in top.items():
        yield (name,), command
        for inner, one in getattr(command, "commands", {}).items():
            yield (name, inner), one


def _names(command: Any) -> list[str]:
    return list(command) if isinstance(command, dict) else list(getattr(command, "commands", ()))


def _options(command: Any) -> list[str]:
    if isinstance(command, dict):
        return ["--help", "--version"]
    found = (name for row in command.params for name in (*row.opts, *row.secondary_opts) if name.startswith("-"))
    return [*found, "-h", "--help"]


__all__ = ["Shell", "bash_lines", "completion", "fish_lines"]
