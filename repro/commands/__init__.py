"""The command `allocsim repro`, and services of the scenarios for commands of the core package.

The entry point `repro` of the group `allocsim.commands` names `COMMANDS` (`allocsim.plugins`). Its
modules are imported only when a command is called. Each service has an entry point of its own.
"""

from typing import Final

COMMANDS: Final = {"repro": ("repro.commands.repro:app", "run a real bug in three modes and name the party at fault")}
