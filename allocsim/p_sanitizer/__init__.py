"""Detector P: what happened to the bytes while a program ran.

    arena = allocsim.sanitized(program, plan)         # memory for your own kernels; `engine.p_sanitizer` does it for the engine's

| module | knows |
|---|---|
| `poison` | the words dead bytes hold |
| `held_ranges` | who holds which bytes |
| `program_facts` | last readers, and what a later run may rely on, from the program alone |
| `run_script`, `trace` | what to do to the bytes before and after each op |
| `row_actions`, `compiled_executor` | doing it |
| `monitor`, `following` | runs, one after the other |
| `culprits` | what it means when it comes out bad |
| `incidents`, `incident_words` | the record, and its words |
| `pools`, `arena` | blocks with red zones, and views of them for kernels |
| `guard` | rights on pages: an access that an op does not declare is a fault |
| `scope` | what an answer examined, in lines that stand under it |

It finds reads of stale, overwritten and unwritten bytes, as S does, by an analysis of its own; and
what S cannot see: kernels that write outside their results, into operands or read-only memory, that
leave results unwritten, or that read bytes they do not declare.

What this package does not see without guard pages: a kernel that writes to live bytes further than
`trace.BAND` away is found when these are next verified, at the latest at the end of the run, with
its suspects; one that reads live bytes it does not declare is never found; nor a write that leaves
the bytes as they were.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)  # a verdict needs the incidents alone
