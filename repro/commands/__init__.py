"""The command of the scenarios, and what they do for commands of the core: a table, from which nothing is imported before it is called.

`COMMANDS` is what the entry point `repro` of the group `allocsim.commands` names (`allocsim.plugins`); services are entry points of their own.
"""

from typing import Final

COMMANDS: Final = {
    "repro": ("repro.commands.repro:app", "run a real bug and find its culprit: default, pinned and reference"),
}
