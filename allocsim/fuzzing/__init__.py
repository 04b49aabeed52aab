"""Fuzzing: generated programs go through a planner, and the plans are judged.

    from pathlib import Path
    from allocsim.fuzzing import CampaignSpec, Target, campaign

    result = campaign(CampaignSpec(target=Target(name="my_package.planner:plan"), source="hypothesis", examples=1000))
    for finding in result.findings:
        print(finding.breaks, finding.cause, finding.message)

The data
--------
| noun | is | made by |
|---|---|---|
| `FuzzCase` | what a planner is asked: a program, and what is pinned; a document | a source |
| `Answer` | what it says: a plan, a refusal, or one of the `FAILURES` | a target |
| `Property` | one row of `PROPERTIES`: what holds of every planner, and how to see that it does not | - |
| `BrokenProperty` | a property broken by a case, for a cause; a document that `allocsim check` reads | the examiner |
| `JoinedFindings` | findings that one mend of the answers explains: one defect | `joining` |
| `Batch` | many programs as one, disjoint in time and space, so that one check judges them all | `join` |
| `SourceChunk` | a stretch of a source: the same cases each time | `chunks` |
| `Tally` | what was exercised, in numbers that add up | the examiner |
| `Corpus` | a folder with findings and a journal of chunks | the campaign |

The path, one way: a *source* (`sources`) makes the cases of a *chunk*; the *examiner*
(`examination`) has the *target* (`target`, in a process of its own: `worker`) answer them, judges
the answers by the *properties* (`properties`) in batches (`batch`) and makes sure of suspects one
by one; what is found is *reduced* (`reducing`) by asking the target again, and kept in the *corpus*
(`corpus`). An *explorer* (`explorer`) does that for a chunk, a *campaign* (`campaign`) for many,
here, in several processes or on a cluster (`cluster`).

To add a source, write a function of (chunk, examine) and a row in `SOURCES`. To add a property, a
row in `PROPERTIES`. To run chunks elsewhere, call `explore(asked, chunk)`, which is a plain
function of what it is given; tallies add up, and of two findings with one `key` the `better_than`
the other is kept.

Programs are made in two ways: from small `program_recipes`, carried out in Python, which have
everything a program can have (`strategies` draws them with Hypothesis), and by compiled
`program_steps`, which `bulk` and `exhaustive` choose. Neither knows any planner.

What this package does not see: the engine. Whoever has one passes `execute`, a function from a plan
to what differs.
"""

import lazy_loader

# A process that runs a target imports what it needs of this package alone.
__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
