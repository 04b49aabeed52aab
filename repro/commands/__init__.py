"""The command `allocsim repro`, and services of the scenarios for commands of the core package.

The entry point `repro` of the group `allocsim.commands` names `COMMANDS` (`allocsim.plugins`). The
module of a command is imported when the command is called. Each service has its own entry point.
"""

from typing import Final

COMMANDS: Final = {"repro": ("repro.commands.repro:app", "run a real bug in three modes and name the party at fault")}
