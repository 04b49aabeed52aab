"""The engine's commands, and its services for commands of the core.

The table imports nothing before a command is called.

`COMMANDS` is what the entry point `engine` of the group `allocsim.commands` names
(`allocsim.plugins`); services are entry points of their own.
"""

from typing import Final

COMMANDS: Final = {
    "train": ("engine.commands.train:train", "train a model on the engine, resumable, all memory planned"),
    "generate": (
        "engine.commands.generate:generate_text",
        "continue text with a llama, its cache judged while it runs",
    ),
    "merge": ("engine.commands.merge:merge", "add adapters into the weights of their model"),
    "audit": ("engine.commands.audit:audit", "run kernels with their results over their operands"),
    "capture": ("engine.commands.capture:app", "program and plan out of a live real system"),
}
