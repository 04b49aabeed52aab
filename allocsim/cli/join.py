"""`allocsim join RANK... --out FILE`: the plans of several ranks as one document.

A file for each rank, in their order, or one for all where all run the same program under the same
plan: XLA's dump of a partitioned module, the step of `engine.sharding.shard`. The document has the
arenas and streams of all ranks, and `allocsim check` judges it.

What this module does not see: where ranks meet (`allocsim.programs.rank_meetings`).
"""

from pathlib import Path
from typing import Annotated

import typer

from allocsim.cli.output import print_line, show_path
from allocsim.programs.joined_ranks import joined
from allocsim.programs.rank_meetings import meetings, plans_of
from allocsim.systems import load, save


def join(
    ranks: Annotated[list[Path], typer.Argument(metavar="RANK...", help="The plan of each rank, or one for all.")],
    *,
    out: Annotated[str, typer.Option(metavar="FILE", help="The document over all ranks, to be written.")],
) -> int:
    """Exit status: 0 written, 1 the ranks do not meet (nothing is written), 2 bad input.

    Example: allocsim join step.json --out ranks.json
    """
    plans, groups = plans_of([load(str(path)) for path in ranks])
    met = meetings([plan.program for plan in plans], groups)
    for fault in met.faults:
        print_line(f"{fault.kind}: {fault.message}")
    if met.faults:
        return 1
    document = joined(plans, groups, name=plans[0].program.name)
    save(document, out)
    collectives = len(met.found)
    print_line(f"wrote {show_path(out)}: {len(plans)} ranks, {collectives} collective{'s'[: collectives != 1]}")
    return 0
