"""Allocators that answer while the program runs: driven, judged, recorded.

    judge = Judge(make=find("my_pool:make"))
    found = campaign(judge, examples=10_000)
    document = recorded(judge, found.findings[0].sequence)   # judged by `allocsim check`

A target is any object with `alloc` and `free` (`protocol` has the calls). `sequences` draws what a
right caller does, `driver` does it, `held_memory` says which answer breaks which promise, `device`
has the streams. `given_out` makes a document of what was given out.

What this package does not see: planners that are asked for a whole program at once
(`allocsim.fuzzing`).
"""

from allocsim.online.campaign import CHOICES, Finding, Judge, Result, campaign, smallest
from allocsim.online.device import Device
from allocsim.online.driver import BrokenPromiseError, Call, Driver
from allocsim.online.given_out import recorded, trace_of
from allocsim.online.held_memory import Broken
from allocsim.online.protocol import SHELF, Abilities, Make, find
from allocsim.online.sequences import SHAPES, Sequence, drawn

__all__ = [
    "CHOICES",
    "SHAPES",
    "SHELF",
    "Abilities",
    "Broken",
    "BrokenPromiseError",
    "Call",
    "Device",
    "Driver",
    "Finding",
    "Judge",
    "Make",
    "Result",
    "Sequence",
    "campaign",
    "drawn",
    "find",
    "recorded",
    "smallest",
    "trace_of",
]
