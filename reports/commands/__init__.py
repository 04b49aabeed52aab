"""The commands that draw: a table, from which nothing is imported before it is called.

`COMMANDS` is what the entry point `reports` of the group `allocsim.commands` names
(`allocsim.plugins`).
"""

from typing import Final

COMMANDS: Final = {
    "plot": ("reports.commands.plot:plot", "a picture of a plan: memory map, lifetimes or live bytes"),
    "report": ("reports.commands.report:report", "one HTML page: verdict, pictures, and a memory map to zoom"),
    "serve": ("reports.commands.serve:serve", "a page that judges in the browser; documents stay there"),
}
