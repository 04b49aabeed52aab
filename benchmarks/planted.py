"""Known bugs as targets of `allocsim fuzz`: how long each takes to be found, how small it gets, and how many defects are told for one bug.

    python benchmarks/planted.py [--seeds N] [--seconds S] [--within] [--out FILE] [NAME...]
    python benchmarks/planted.py --sound 5000 [--out FILE] [NAME...]

Planted are the fuzzer's own mutants and the planners of `broken_planners.py`, which it was not made for, some written before the fuzzer was looked at, and some each wrong in one hard corner; those of `SOUND` must
not be accused of anything, those of its `NOTED` only be noted. Each is a target in a process of its own, as a stranger would be, and is fuzzed from each of the seeds
0 to N - 1: the first 50 programs, and as many more as it takes to find something. Seconds are processor time of campaign and
target together, from the first program to the first finding, with what either compiles on its first call; a campaign is over after
`--seconds`. Findings are the symptoms that those programs showed, defects what is left once those are joined that one mend explains.
With `--within`, planners that need no process of their own are asked in this one until the first finding, 1,000 programs at most, and
it is not reduced: a census in a fraction of the time. With `--sound N` the sound planners alone are asked, each for N programs, one in five of them drawn by
Hypothesis and the rest in bulk: which of them is accused of what, and how many programs a CPU second that is. Beside the JSON a table for people is written. Of several seeds the worst one is in the table.
Before each run the processor time of an empty loop is measured (`loop_ns`), and the limit is `--seconds` where a turn of it takes `TURN` ns, more
where it takes longer; so is that of one answer. The JSON has seconds as they were, the table those of a machine where it takes `TURN`; of a run without `loop_ns`, as they were.

`missed` names the bugs that were not found in `SECONDS` of such a machine from some seed, and sound planners that were accused; exit status 1 where there is one.
"""

import time
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

from harness import Found, kept, loop_ns, run, spent

from broken_planners import TARGETS

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
    **{
        name: (kind, about, "")
        for kind, rows in TARGETS.items()
        for about, planners in rows.items()
        for name in planners
    },
}
"""Name -> what it is, what its bug is about, and the bug."""

ODD: Final = frozenset({"sound", "costly", "odd", "odd corner"})
"""What nothing may be found in."""

APART: Final = frozenset({"chance", "history", "process", "sound"})
"""What a planner may be about that only a process of its own shows."""

MOST: Final = 1000
"""Programs that a planner is asked within this process: those of a campaign of default size."""


class Enough(BaseException):
    """The time is up."""


def measure(
    *names: str, seeds: int = 2, seconds: float = SECONDS, within: bool = False, sound: int = 0, out: Path
) -> Iterator[Found]:
    """Fuzz the planners that are named, or all; `within`: in this process what needs none of its own; `sound`: ask the sound ones for so many programs."""
    before = kept(out)
    found: Found = {"unit": "CPU seconds of campaign and target", "aim": SECONDS, "planted": {}, "sound": {}} | before
    asked = list(names or ABOUT)
    if sound:
        wanted, rows = [name for name in asked if ABOUT[name][0] in ODD], found["sound"]
        row_of = partial(long, programs=sound)
    else:
        wanted, rows = asked, before.get("planted", {}) if names else {}
        row_of = partial(runs_of, seeds=seeds, seconds=seconds, in_process=within)
    for name in wanted:
        rows[name] = row_of(name)
        print(name, rows[name], flush=True) if sound else print(row(name, rows[name]), flush=True)
        found |= {"sound": rows} if sound else {"planted": {each: rows[each] for each in ABOUT if each in rows}}
        bad = accused if sound else lambda name, runs: not reaches(name, runs)
        out.with_suffix(".md").write_text(table(found["planted"]) + sound_table(found["sound"]))
        yield found | {"missed": [name for name in wanted if name in rows and bad(name, rows[name])]}


def runs_of(name: str, *, seeds: int, seconds: float, in_process: bool) -> list[Found]:
    """Return what each seed finds in one planner."""
    apart, runs = ABOUT[name][1] in APART or ABOUT[name][0] == "costly", []
    for seed in range(seeds):
        turn = loop_ns()
        way = within if in_process and not apart else fuzzed
        runs.append({**way(name, seed, seconds * turn / TURN, turn), "loop_ns": turn})
    return runs


def long(name: str, *, programs: int) -> Found:
    """Ask a sound planner for many programs."""
    found: Found = {}
    for source, count in (("hypothesis", programs // 5), ("bulk", programs - programs // 5)):
        turn = loop_ns()
        asked = CampaignSpec(target=target(name, turn), source=source, seed=33, examples=count, reduce_seconds=REDUCING)
        begun = spent()
        answer = campaign(asked)
        found[source] = {
            "programs": answer.tally.programs,
            "questions": answer.tally.questions,
            "seconds": round(spent() - begun, 1),
            "loop_ns": turn,
            "accused": [f"{finding.breaks}: {finding.cause}" for finding in answer.findings],
            "noted": sorted(note.cause for note in answer.notes),
        }
    return found


def accused(_: str, one: Found) -> bool:
    """Return whether a sound planner is accused of something."""
    return any(row["accused"] for row in one.values())


def sound_table(rows: dict[str, Any]) -> str:
    """Return the table of the sound planners that were asked for many programs."""
    if not rows:
        return ""
    asked = min(sum(row["programs"] for row in one.values()) for one in rows.values())
    wrong = sum(accused(name, one) for name, one in rows.items())
    lines = [
        "",
        f"{len(rows)} sound planners that look odd, asked for at least {asked:,} programs each: {wrong} are accused.",
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


def module_of(name: str) -> str:
    """Return where a planner is."""
    return "allocsim.fuzzing.mutants" if name in MUTANTS else "broken_planners"


def target(name: str, turn: float) -> Target:
    """Return a planner as a target that hangs after `HANGS` of a machine where a turn of an empty loop takes `TURN`."""
    return Target(name=f"{module_of(name)}:{name}", seconds=HANGS * turn / TURN)


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
        planner = find(f"{module_of(name)}:{name}")
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
    run(measure, failed="missed")
