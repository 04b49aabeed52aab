"""Known bugs as targets of `allocsim fuzz`: how long each takes to be found, how small it gets, and how many defects are told for one bug.

    python benchmarks/planted.py [--seeds N] [--seconds S] [--within] [--out FILE] [NAME...]
    python benchmarks/planted.py --sound 5000 [--out FILE] [NAME...]

Planted are the fuzzer's own mutants and the planners of `broken_planners.py`, which it was not made for, and those of `unseen_planners.py`, written before the fuzzer was looked at, and of `corner_planners.py`, each wrong in one hard corner; those of `SOUND` must
not be accused of anything, those of its `NOTED` only be noted. Each is a target in a process of its own, as a stranger would be, and is fuzzed from each of the seeds
0 to N - 1: the first 50 programs, and as many more as it takes to find something. Seconds are processor time of campaign and
target together, from the first program to the first finding, with what either compiles on its first call; a campaign is over after
`--seconds`. Findings are the symptoms that those programs showed, defects what is left once those are joined that one mend explains.
With `--within`, planners that need no process of their own are asked in this one until the first finding, 1,000 programs at most, and
it is not reduced: a census in a fraction of the time. With `--sound N` the sound planners alone are asked, each for N programs, one in five of them drawn by
Hypothesis and the rest in bulk: which of them is accused of what, and how many programs a CPU second that is. Beside the JSON a table for people is written. Of several seeds the worst one is in the table.
Before each run the processor time of an empty loop is measured (`loop_ns`), and the limit is `--seconds` where a turn of it takes `TURN` ns, more
where it takes longer; so is that of one answer. The JSON has seconds as they were, the table those of a machine where it takes `TURN`; of a run without `loop_ns`, as they were.

The exit status is the number of bugs that were not found in `SECONDS` of such a machine from some seed, and of sound planners that were accused.
"""

import argparse
import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from harness import HERE, loop_ns, spent

from broken_planners import BROKEN, SOUND
from broken_planners import NOTED as COSTLY
from corner_planners import CORNER_SOUND, CORNERS
from unseen_planners import UNSEEN, UNSEEN_SOUND

from allocsim.allocators import find
from allocsim.fuzzing import BrokenProperty, CampaignSpec, Explorer, Target, campaign, chunks
from allocsim.fuzzing.broken_property import NOTED
from allocsim.fuzzing.exercised import first_finding, killed_by
from allocsim.fuzzing.joining import joined
from allocsim.fuzzing.mutants import MUTANTS

SECONDS: Final = 60.0
"""A planted bug is found in this time."""

TURN: Final = 6.0
"""Nanoseconds of a turn of an empty loop where `SECONDS` are seconds: between the 4 and 9 of cores of 3 to 5 GHz that have nothing else to do."""

HANGS: Final = 2.0
"""Seconds that a planner may take for an answer."""

PROGRAMS: Final = 50
"""Programs of a campaign at least: the first two chunks."""

REDUCING: Final = 5.0
"""Seconds a finding is reduced at most."""

ABOUT: Final = {
    **{name: ("mutant", row.class_, row.bug) for name, row in MUTANTS.items()},
    **{name: ("planner", about, "") for about, names in BROKEN.items() for name in names},
    **{name: ("costly", what, "") for name, what in COSTLY.items()},
    **dict.fromkeys(SOUND, ("sound", "sound", "")),
    **{name: ("unseen", about, "") for about, names in UNSEEN.items() for name in names},
    **dict.fromkeys(UNSEEN_SOUND, ("odd", "sound", "")),
    **{name: ("corner", about, "") for about, names in CORNERS.items() for name in names},
    **dict.fromkeys(CORNER_SOUND, ("odd corner", "sound", "")),
}
"""Name -> what it is, what its bug is about, and the bug."""

MODULES: Final = {
    "mutant": "allocsim.fuzzing.mutants",
    "planner": "broken_planners",
    "costly": "broken_planners",
    "sound": "broken_planners",
    "unseen": "unseen_planners",
    "odd": "unseen_planners",
    "corner": "corner_planners",
    "odd corner": "corner_planners",
}


ODD: Final = frozenset({"sound", "costly", "odd", "odd corner"})
"""What nothing may be found in."""

APART: Final = frozenset({"chance", "history", "process", "sound"})
"""What a planner may be about that only a process of its own shows."""

MOST: Final = 1000
"""Programs that a planner is asked within this process: those of a campaign of default size."""


class Enough(BaseException):
    """The time is up."""


def main() -> int:
    """Measure, print, write; return how many planted bugs miss the aims, and how many sound planners were accused."""
    parser = argparse.ArgumentParser(description="Known bugs as targets.")
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=SECONDS, help="CPU time for one campaign")
    parser.add_argument("--within", action="store_true", help="ask in this process what needs none of its own")
    parser.add_argument("--sound", type=int, default=0, metavar="N", help="ask the sound planners for so many programs")
    parser.add_argument("--out", type=Path, default=HERE / "results" / "planted.json")
    parser.add_argument("names", nargs="*", default=list(ABOUT))
    options = parser.parse_args()
    if options.sound:
        return long(options.out, options.sound, [name for name in options.names if ABOUT[name][0] in ODD])
    kept = (
        json.loads(options.out.read_text()).get("planted", {})
        if options.out.exists() and options.names != list(ABOUT)
        else {}
    )
    for name in options.names:
        apart = ABOUT[name][1] in APART or ABOUT[name][0] == "costly"
        way = within if options.within and not apart else fuzzed
        kept[name] = []
        for seed in range(options.seeds):
            turn = loop_ns()
            kept[name].append({**way(name, seed, options.seconds * turn / TURN, turn), "loop_ns": turn})
        print(row(name, kept[name]), flush=True)
        results = {each: kept[each] for each in ABOUT if each in kept}
        write(options.out, planted=results)
    return sum(not reaches(name, kept[name]) for name in options.names)


def write(out: Path, **parts: Any) -> None:
    """Write some parts of the record anew, and the table."""
    record = json.loads(out.read_text()) if out.exists() else {}
    record = {"unit": "CPU seconds of campaign and target", "aim": SECONDS, "planted": {}, "sound": {}} | record | parts
    out.write_text(json.dumps(record, indent=1) + "\n")
    out.with_suffix(".md").write_text(table(record["planted"]) + sound_table(record["sound"]))


def long(out: Path, programs: int, names: Sequence[str]) -> int:
    """Ask sound planners for many programs; return how many are accused of something."""
    rows: dict[str, Any] = json.loads(out.read_text()).get("sound", {}) if out.exists() else {}
    for name in names:
        rows[name] = {}
        for source, count in (("hypothesis", programs // 5), ("bulk", programs - programs // 5)):
            turn = loop_ns()
            aim = target(name, turn)
            asked = CampaignSpec(target=aim, source=source, seed=33, examples=count, reduce_seconds=REDUCING)
            begun = spent()
            found = campaign(asked)
            rows[name][source] = {
                "programs": found.tally.programs,
                "questions": found.tally.questions,
                "seconds": round(spent() - begun, 1),
                "loop_ns": turn,
                "accused": [f"{finding.breaks}: {finding.cause}" for finding in found.findings],
                "noted": sorted(note.cause for note in found.notes),
            }
        print(name, rows[name], flush=True)
        write(out, sound=rows)
    return sum(any(row["accused"] for row in rows[name].values()) for name in names)


def sound_table(rows: dict[str, Any]) -> str:
    """Return the table of the sound planners that were asked for many programs."""
    if not rows:
        return ""
    asked = min(sum(row["programs"] for row in one.values()) for one in rows.values())
    accused = sum(any(row["accused"] for row in one.values()) for one in rows.values())
    lines = [
        "",
        f"{len(rows)} sound planners that look odd, asked for at least {asked:,} programs each: {accused} are accused.",
        "",
        "| planner | by Hypothesis, programs/s | in bulk | accused of | noted |",
        "|---|---|---|---|---|",
    ]
    for name, one in rows.items():
        speeds = " | ".join(
            f"{row['programs']:,}, {row['programs'] / max(scaled(row), 0.1):.0f}" for row in one.values()
        )
        words = [sorted({word for row in one.values() for word in row[what]}) for what in ("accused", "noted")]
        lines.append(f"| `{name}` | {speeds} | {' | '.join('; '.join(each) for each in words)} |")
    return "\n".join([*lines, ""])


def target(name: str, turn: float) -> Target:
    """Return a planner as a target that hangs after `HANGS` of a machine where a turn of an empty loop takes `TURN`."""
    return Target(name=f"{MODULES[ABOUT[name][0]]}:{name}", seconds=HANGS * turn / TURN)


def fuzzed(name: str, seed: int, seconds: float, turn: float) -> dict[str, Any]:
    """Return when something was found from one seed, by what, how small it is, and how many findings and defects there were."""
    asked = CampaignSpec(target=target(name, turn), source="hypothesis", seed=seed, reduce_seconds=REDUCING)
    told: list[tuple[float, BrokenProperty]] = []
    with Explorer(asked) as explorer:
        begun = time.process_time()

        def used() -> float:
            return time.process_time() - begun + explorer.asker.cpu_seconds

        def tell(finding: BrokenProperty) -> None:
            if finding.breaks != NOTED:
                told.append((used(), finding))
            if used() > seconds:
                raise Enough

        programs = 0
        try:
            for chunk in chunks("hypothesis", seed=seed, options={}, total=None):
                programs += explorer.explore(chunk, tell)[0].programs
                if used() > seconds or (programs >= PROGRAMS and _enough(name, told, explorer)):
                    break
        except Enough:
            pass
        found = [finding for finding in explorer.known.values() if finding.breaks != NOTED]
        noted = sorted(finding.cause for finding in explorer.known.values() if finding.breaks == NOTED)
    result: dict[str, Any] = {"seed": seed, "programs": programs, "noted": noted}
    if not told:
        return {**result, "seconds": None}
    small = min(found, key=lambda finding: (finding.ops, finding.size))
    return {
        **result,
        "seconds": round(told[0][0], 2),
        "property": small.breaks,
        "cause": small.cause,
        "message": small.message,
        "ops": small.ops,
        "findings": len(found),
        "defects": len(joined(found)),
    }


def _enough(name: str, told: Sequence[Any], explorer: Explorer) -> bool:
    """Return whether what is to be seen of a target has been seen."""
    kind, about, _ = ABOUT[name]
    noted = {finding.cause for finding in explorer.known.values()}
    return bool(told) or about == "sound" or (kind == "costly" and about in noted)


def within(name: str, seed: int, *_: float) -> dict[str, Any]:
    """Return when something was found from one seed by asking in this process, and by what."""
    asked = CampaignSpec(target=Target(name=name), source="hypothesis", seed=seed)
    begun = time.process_time()
    if name in MUTANTS:
        finding = killed_by(asked, name, cases=MOST)
    else:
        planner = find(f"{MODULES[ABOUT[name][0]]}:{name}")
        finding = first_finding(asked, planner, cases=MOST)
    result: dict[str, Any] = {"seed": seed, "noted": [], "within": True}
    if finding is None:
        return {**result, "seconds": None}
    seconds = round(time.process_time() - begun, 2)
    return {
        **result,
        "seconds": seconds,
        "property": finding.breaks,
        "cause": finding.cause,
        "message": finding.message,
    }


def reaches(name: str, runs: Sequence[dict[str, Any]]) -> bool:
    """Return whether a bug was found in time from every seed, or a sound planner never accused."""
    kind, about, _ = ABOUT[name]
    if kind in ODD:
        return all(run["seconds"] is None and (about == "sound" or about in run["noted"]) for run in runs)
    return all(run["seconds"] is not None and scaled(run) <= SECONDS for run in runs)


def scaled(run: dict[str, Any]) -> float:
    """Return the seconds until something was found where a turn of an empty loop takes `TURN`."""
    return float(run["seconds"]) * TURN / run.get("loop_ns", TURN)


def row(name: str, runs: Sequence[dict[str, Any]]) -> str:
    """Return a line of the table: the slowest and the largest of all seeds."""
    about = ABOUT[name][1]
    seen = [run for run in runs if run["seconds"] is not None]
    if not seen:
        noted = ", ".join(sorted({what for run in runs for what in run["noted"]}))
        return f"| `{name}` | {about} | not found{f'; {noted}' if noted else ''} | | | |"
    slowest = f"{max(map(scaled, seen)):.1f}{' in some' if len(seen) < len(runs) else ''}"
    ops = max((str(run["ops"]) for run in seen if "ops" in run), key=int, default="")
    most = max((f"{run['findings']}, {run['defects']}" for run in seen if "ops" in run), default="")
    by = ", ".join(sorted({run["property"] for run in seen}))
    return f"| `{name}` | {about} | {slowest} | {ops} | {most} | {by} |"


def table(results: dict[str, Any]) -> str:
    """Return the table for people."""
    seeds = max(map(len, results.values()), default=0)
    bugs = [name for name in results if ABOUT[name][0] not in ODD]
    sound = [name for name in results if ABOUT[name][0] in ODD]
    good = sum(reaches(name, results[name]) for name in bugs)
    accused = sum(any(run["seconds"] is not None for run in results[name]) for name in sound)
    counted = [name for name in bugs if all("defects" in run for run in results[name])]
    alone = sum(all(run["defects"] == 1 for run in results[name]) for name in counted)
    heads = "|---|---|---|---|---|---|"
    return "\n".join(
        (
            f"{len(bugs)} known bugs as targets of the fuzzer, from {seeds} seeds each: {good} are found within",
            f"{SECONDS:g} s of one core from all of them; of the",
            (
                f"{len(counted)} whose findings were counted, {alone} are told as one defect. Of {len(sound)} "
                "sound planners"
            ),
            f"{accused} are accused of something. Written by `benchmarks/planted.py`; CPU seconds of campaign and",
            "target until the first finding, and the ops of the smallest, are those of the worst seed.",
            "",
            "| planted bug | about | seconds | ops | findings, defects | broken property |",
            heads,
            *(row(name, results[name]) for name in (*bugs, *sound)),
            "",
        )
    )


if __name__ == "__main__":
    sys.exit(main())
