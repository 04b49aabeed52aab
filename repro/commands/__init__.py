"""The command of the scenarios, and their services for commands of the core.

The table imports nothing before a command is called.

`COMMANDS` is what the entry point `repro` of the group `allocsim.commands` names
(`allocsim.plugins`); services are entry points of their own.
"""

from typing import Final

COMMANDS: Final = {
    "repro": ("repro.commands.repro:app", "run a real bug and find its culprit: default, pinned and reference")
}
