"""`allocsim fuzz TARGET`: judge the plans that a planner makes for generated programs.

A target is a planner, by any name that `--allocator` takes elsewhere, in a process of its own
(`allocsim.fuzzing`), those of tinygrad, ExecuTorch, TorchInductor, LiteRT and XLA among them where
the interpreter that `ALLOCSIM_PEERS` names has them (`allocsim.allocators.live_planners`); or
`ggml`, a real libggml (the service `fuzz_library`). The project's own planner after ggml is
`shelf:ggml`, and `shelf:` may stand before every name of the shelf.

| source | programs |
|---|---|
| (default) | drawn by Hypothesis |
| `--bulk` | drawn in batches, much faster |
| `--training` | training graphs of the engine, with backward and optimizer, drawn by Hypothesis |
| `--exhaustive N` | every program of up to N ops of a small scope; nothing found proves every property for it |

`--online` drives a target that answers while the program runs (`allocsim.online`, docs/online.md).

`--scheduler ADDRESS` has the workers of a Dask cluster do it; `--coverage` says what a campaign was
worth: branches of the target taken, known bugs found.

`--corpus DIR` keeps findings and progress as they come; a campaign that was ended in any way goes
on from there. `--out DIR` has, for each finding, `<key>/smallest.json`, `smallest.png` and
`test_smallest.py` to paste. The same seed finds the same causes.

Exit status 0 where nothing was found, 1 where something was, 2 for bad usage, a bad target, or a
folder that cannot be written.

What this module does not see: how programs are made and judged.
"""

import sys
from collections.abc import Collection, Mapping
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from allocsim.cli.output import print_json, print_line, print_table, show_path
from allocsim.cli.pictures import draw_beside
from allocsim.cli.progress import counting
from allocsim.errors import AllocsimError, UnknownNameError
from allocsim.files.folders import Content, replace_files, working_in
from allocsim.files.sizes import bytes_of
from allocsim.plugins import service, service_target

if TYPE_CHECKING:
    from allocsim.fuzzing import BrokenProperty, CampaignResult, CampaignSpec, JoinedFindings, Tally, Target

SHELF: Final = "shelf:"
LIVE: Final = "ggml"
"""The target that is a real library and no planner of ours."""

NEXT: Final = (
    "--out DIR writes each as a document, for `allocsim check` to tell its cause and cure, as a test, and as a "
    "picture if it has a plan"
)
"""What can be done with findings that were not written."""

DEFAULTS: Final = {"hypothesis": 1000, "training": 200, "bulk": 100_000}
"""Programs, unless `--examples` or `--minutes` says otherwise."""


def fuzz(
    target: Annotated[
        str, typer.Argument(metavar="TARGET", help="An allocator, package.module:function, or ggml (the library).")
    ],
    *,
    examples: Annotated[int | None, typer.Option(min=1, max=1_000_000_000, help="How many programs.")] = None,
    minutes: Annotated[float | None, typer.Option(min=0, help="Stop after this long.")] = None,
    seed: Annotated[int, typer.Option(min=0, help="Seed of everything that is drawn.")] = 0,
    jobs: Annotated[int, typer.Option(min=1, max=1024, help="Processes, each with a target of its own.")] = 1,
    bulk: Annotated[bool, typer.Option("--bulk", help="Draw programs in batches, much faster.")] = False,
    training: Annotated[bool, typer.Option("--training", help="Draw training graphs of the engine.")] = False,
    exhaustive: Annotated[int | None, typer.Option(metavar="N", min=0, help="Every program of up to N ops.")] = None,
    execute: Annotated[
        bool, typer.Option("--execute", help="Run each plan on the engine as well, and compare.")
    ] = False,
    corpus: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Keep findings and progress here; go on from it.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", metavar="DIR", help="Write each finding here: file, picture, test.")
    ] = None,
    scheduler: Annotated[
        str | None, typer.Option(metavar="ADDRESS", help="Use the workers of this Dask scheduler (tcp://host:8786).")
    ] = None,
    coverage: Annotated[
        bool,
        typer.Option("--coverage", help="Say which branches of the target were taken, and which known bugs are found."),
    ] = False,
    timeout: Annotated[float | None, typer.Option(min=0.01, help="Seconds for one plan.  [default: 10]")] = None,
    memory: Annotated[
        str | None, typer.Option(help="What the target may take beyond its import.  [default: 2GiB]")
    ] = None,
    guarantee: Annotated[
        list[str] | None,
        typer.Option(
            help="Hold it to this (no_worse, deterministic, streams), and to no other property that is by choice."
        ),
    ] = None,
    without: Annotated[list[str] | None, typer.Option(metavar="NAME", help="Leave out this property.")] = None,
    strict: Annotated[bool, typer.Option("--strict", help="Exit with 1 also if something is noted.")] = False,
    shrink: Annotated[bool, typer.Option(help="Make each finding small.")] = True,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
    online: Annotated[
        bool,
        typer.Option(
            "--online",
            help="TARGET answers while the program runs: buddy, caching, tlsf, module:function, lib:PATH, malloc:PATH.",
        ),
    ] = False,
    ggml: Annotated[
        str | None, typer.Option(help="For the target ggml: before, after, or the path of a libggml.  [default: after]")
    ] = None,
) -> int:
    """Exit status: 0 no finding, 1 findings (a crash is one), 2 bad usage or target.

    Example: allocsim fuzz my_planner:plan --examples 200
    """
    for folder in (out, corpus):
        if folder is not None:
            with working_in(folder):  # refused before long work
                pass
    given = {
        "--bulk": bulk,
        "--training": training,
        "--exhaustive": exhaustive is not None,
        "--execute": execute,
        "--corpus": corpus is not None,
        "--scheduler": scheduler is not None,
        "--coverage": coverage,
        "--timeout": timeout is not None,
        "--memory": memory is not None,
        "--guarantee": guarantee is not None,
        "--without": without is not None,
        "--strict": strict,
        "--ggml": ggml is not None,
        "--jobs": jobs > 1,
    }
    if online:
        _refuse("an online allocator", given, but=("--timeout", "--guarantee"))
        from allocsim.cli.fuzz_online import fuzz_online  # not for --help

        return fuzz_online(
            target,
            examples=examples,
            minutes=minutes,
            seed=seed,
            timeout=timeout,
            guarantees=tuple(guarantee or ()),
            shrink=shrink,
            out=out,
            as_json=as_json,
        )
    if target == LIVE:
        _refuse("the target ggml", given, but=("--corpus", "--ggml", "--jobs"))
        status: int = service("fuzz_library")(
            library=ggml or "after",
            examples=examples,
            seed=seed,
            shrink=shrink,
            out=out,
            as_json=as_json,
            minutes=minutes,
            corpus=corpus,
            jobs=jobs,
        )
        return status
    if ggml is not None:
        raise AllocsimError(f"--ggml names the library of the target ggml; it is not for the target {target}")
    if scheduler is not None and jobs > 1:
        raise AllocsimError("--jobs are processes here, --scheduler names a cluster; choose one")
    from allocsim.fuzzing.properties import asked_of  # not for --help

    _known(target)
    asked = _asked(target, bulk, training, exhaustive, execute, examples, minutes, seed, shrink, timeout, memory)
    asked = replace(
        asked, guarantees=None if guarantee is None else _known_guarantees(guarantee), without=tuple(without or ())
    )
    asked_of(None, without=asked.without)  # a name that is none is said before anything starts
    if coverage:
        asked = replace(asked, target=replace(asked.target, trace=True))
    found, noted = _campaign(
        asked, corpus=corpus, jobs=jobs, scheduler=scheduler, minutes=minutes, out=out, as_json=as_json
    )
    return int(found or (strict and noted))


def _known_guarantees(names: list[str]) -> tuple[str, ...]:
    """Return what a planner is to be held to. Raises UnknownNameError for what is no guarantee."""
    from allocsim.allocators import GUARANTEES  # not for --help
    from allocsim.fuzzing.properties import GUARANTEED  # as above

    for name in names:
        if name not in {*GUARANTEES, *GUARANTEED}:
            raise UnknownNameError("guarantee", name, {*GUARANTEES, *GUARANTEED})
    return ("sound", *names)


def _known(target: str) -> None:
    """Refuse a name that nobody has; a stranger's module is looked at by the process it runs in."""
    from allocsim.allocators import ALLOCATORS  # not for --help
    from allocsim.allocators.live_planners import LIVE_PLANNERS  # as above
    from allocsim.allocators.strangers import entry_points, meant  # as above

    name = target.removeprefix(SHELF)
    known = {*ALLOCATORS, *LIVE_PLANNERS, *entry_points()}
    if ":" not in name and name not in known:
        raise UnknownNameError("target", target, meant(name) or {LIVE, *known})


def _refuse(what: str, options: Mapping[str, bool], *, but: Collection[str]) -> None:
    """Refuse the options that are given, but those that are for this as well."""
    given = [name for name, is_given in options.items() if is_given and name not in but]
    if given:
        raise AllocsimError(f"{', '.join(given)}: not for {what}")


def _asked(  # noqa: PLR0917 - the options, in order
    target: str,
    bulk: bool,  # noqa: FBT001
    training: bool,  # noqa: FBT001
    exhaustive: int | None,
    execute: bool,  # noqa: FBT001
    examples: int | None,
    minutes: float | None,
    seed: int,
    shrink: bool,  # noqa: FBT001
    timeout: float | None,
    memory: str | None,
) -> "CampaignSpec":
    from allocsim.fuzzing import CampaignSpec, Target  # not for --help
    from allocsim.fuzzing.exhaustive import DEEPEST  # as above
    from allocsim.fuzzing.target import MEMORY, SECONDS  # as above

    chosen = [
        f"--{name}"
        for name, given in {"bulk": bulk, "training": training, "exhaustive": exhaustive is not None}.items()
        if given
    ]
    if len(chosen) > 1:
        raise AllocsimError(f"{' and '.join(chosen)} are two sources of programs; choose one")
    if exhaustive is not None and examples is not None:
        raise AllocsimError("--exhaustive makes every program of its scope; --examples cannot limit it")
    if exhaustive is not None and exhaustive > DEEPEST:
        raise AllocsimError(
            f"--exhaustive takes at most {DEEPEST} ops; programs of {exhaustive} ops are too many to enumerate"
        )
    source = "exhaustive" if exhaustive is not None else "bulk" if bulk else "hypothesis"
    if execute and source == "exhaustive":
        raise AllocsimError("--execute runs programs that the engine has kernels for; --exhaustive makes others")
    options: dict[str, Any] = (
        {"strategy": service_target("training_programs")}
        if training
        else {}
        if exhaustive is None
        else {"ops": exhaustive}
    )
    runs = service("execute") if execute else None
    if execute and not training:
        options["runnable"] = True
    wanted = (
        examples if examples is not None or minutes is not None else DEFAULTS.get("training" if training else source)
    )
    return CampaignSpec(
        target=Target(
            name=target.removeprefix(SHELF),
            seconds=timeout or SECONDS,
            memory=MEMORY if memory is None else bytes_of(memory),
        ),
        source=source,
        seed=seed,
        examples=wanted,
        options=options,
        execute=runs,
        reduce_seconds=30.0 if shrink else 0.0,
    )


def _campaign(
    asked: "CampaignSpec",
    *,
    corpus: Path | None,
    jobs: int,
    scheduler: str | None,
    minutes: float | None,
    out: Path | None,
    as_json: bool,
) -> tuple[bool, bool]:
    from allocsim.document import dumps  # not for --help
    from allocsim.fuzzing import campaign  # as above

    with ExitStack() as claims, counting("fuzz", asked.examples) as advance:
        for folder in dict.fromkeys(folder.resolve() for folder in (corpus, out) if folder is not None):
            claims.enter_context(working_in(folder))
        tell = partial(_say_at_once, set()) if not as_json else lambda _: None
        result = campaign(
            asked, corpus=corpus, jobs=jobs, scheduler=scheduler, minutes=minutes, tell=tell, advance=advance
        )
        for finding in result.findings:
            if out is not None:
                _write(finding, asked.target, out)
        for note in result.notes:
            if out is not None:
                replace_files(out / note.key, {"smallest.json": dumps(note.as_document())})
    if as_json:
        print_json(_record(asked, result))
    else:
        _say(asked, result, out)
        if asked.target.trace:
            from allocsim.fuzzing.exercised import exercised  # not for --help

            for line in exercised(asked, result.tally).lines():
                print_line(line)
    return bool(result.findings), bool(result.tally.noted)


# what is said -------------------------------------------------------------------------------------


def _say_at_once(said: set[str], finding: "BrokenProperty") -> None:
    """Print a finding as it comes, of each cause the first; all stand at the end, made small."""
    from allocsim.fuzzing.broken_property import NOTED  # not for --help

    if finding.key not in said and finding.breaks != NOTED:
        said.add(finding.key)
        print_line(f"found: {finding.breaks}: {finding.cause} ({finding.ops} op{'s'[: finding.ops != 1]} as yet)")
        sys.stdout.flush()


def _say(asked: "CampaignSpec", result: "CampaignResult", out: Path | None) -> None:
    from allocsim.fuzzing.exhaustive import SCOPE  # not for --help

    defects = result.defects
    for defect in defects:
        _say_defect(defect, out)
    many = result.tally.programs
    what = f"every program of up to {asked.options['ops']} ops" if asked.source == "exhaustive" else f"{many} programs"
    if result.findings:
        symptoms = f" of {len(result.findings)} symptoms" if len(result.findings) > len(defects) else ""
        print_line(f"{len(defects)} finding{'s'[: len(defects) != 1]}{symptoms} in {many} programs")
        if not asked.target.trace:
            print_line(
                NEXT if out is None else f"`allocsim check {show_path(out)}/*/smallest.json` tells causes and cures"
            )
    elif asked.source == "exhaustive" and result.complete:
        proven = ", ".join(_proven(result))
        print_line(
            f"nothing found in {what} over {SCOPE}: {many} of them; proven of these programs, and of no others: {proven or 'nothing'}"
        )
    else:
        print_line(f"nothing found in {many} programs")
    if not result.complete:
        print_line("the campaign was ended before it was done")
    first = {note.cause: note for note in result.notes}
    for what, answers in sorted(result.tally.noted.items()):
        at = f", first after a program of {first[what].ops} ops" if what in first else ""
        where = f": {show_path(out / first[what].key)}" if what in first and out is not None else ""
        print_line(f"noted: the target {what} ({answers} answer{'s'[: answers != 1]}{at}){where}")
    _say_exercised(result.tally, asked.source, features=not asked.target.trace)


def _say_defect(defect: "JoinedFindings", out: Path | None) -> None:
    """Print the smallest finding of a defect, and in one line what else is explained with it."""
    from allocsim.fuzzing.joining import MENDED  # not for --help

    finding = defect.smallest
    small = "" if finding.reduced else ", not shown minimal"
    print_line(f"{finding.breaks}: {finding.cause} ({finding.ops} op{'s'[: finding.ops != 1]}{small})")
    print_line(f"  {finding.message}")
    if out is not None:
        print_line(f"  {show_path(out / finding.key)}")
    others = defect.symptoms[1:]
    if others:
        shown = "; ".join(f"{other.breaks} {other.cause}" for other in others)
        mend = MENDED[defect.mend]
        print_line(
            f"  one mend would explain all {len(defect.symptoms)}: {mend}; there may be more than one defect. "
            f"The others: {shown}"
        )


def _proven(result: "CampaignResult") -> list[str]:
    """Return the properties that hold of every program of a scope.

    Of capacities it has none, so nothing is said; and of all that may be told, and of all gaps,
    each program is asked with one choice, which proves nothing of the rest.
    """
    return [name for name in result.tally.of_all if name not in {"capacity", "told", "gaps"}]


def _say_exercised(tally: "Tally", source: str, *, features: bool) -> None:
    """Print what was exercised.

    Without `features`, which `--coverage` prints with the rest of its figures, the work alone.
    """
    executed = f", {tally.executed} executed" if tally.executed else ""
    print_line(f"exercised: {tally.questions} questions, {tally.plans} plans, {tally.refusals} refusals{executed}")
    if features:
        _say_features(tally, source)
    spent = ", ".join(f"{what} {spent / 1e6:.3g} s" for what, spent in sorted(tally.microseconds.items()))
    print_line(f"CPU time: {spent or 'none'}; {_rates(tally)}")


def _say_features(tally: "Tally", source: str) -> None:
    from allocsim.fuzzing.features import singly, size_in_words  # not for --help
    from allocsim.fuzzing.pairwise import in_words  # as above
    from allocsim.fuzzing.told_constraints import TOLD  # as above

    counts = {**singly(tally.features), **{name: tally.told[name] for name in TOLD}}
    share = max(tally.programs, 1)
    print_table(
        ("feature", "programs", "share"),
        [(name, number, f"{100 * number / share:.1f}%") for name, number in counts.items()],
        right=("programs", "share"),
    )
    print_line(f"never drawn: {', '.join(name for name, number in counts.items() if not number) or 'none'}")
    print_line(size_in_words(tally.sizes, tally.programs))
    print_line(in_words(tally.pairs, source))


def _rates(tally: "Tally") -> str:
    planning = tally.microseconds["planning"]
    ours = sum(tally.microseconds.values()) - planning
    plans = max(tally.questions, 1)
    return (
        f"{plans / max(planning / 1e6, 1e-9):.0f} questions/s by the target, {plans / max(ours / 1e6, 1e-9):.0f} "
        "by the rest"
    )


def _record(asked: "CampaignSpec", result: "CampaignResult") -> dict[str, Any]:
    from allocsim.fuzzing.exhaustive import SCOPE  # not for --help
    from allocsim.fuzzing.features import in_pairs, singly  # not for --help
    from allocsim.fuzzing.pairwise import cells, empty  # as above
    from allocsim.fuzzing.told_constraints import TOLD  # as above

    believe: dict[str, Any] = {}
    if asked.target.trace:
        from allocsim.fuzzing.exercised import exercised  # as above

        shown = exercised(asked, result.tally).as_json()
        believe = {"coverage": {name: shown[name] for name in ("branches", "mutants")}}
    return {
        **asked.identity,
        **believe,
        "complete": result.complete,
        **({"proven": _proven(result), "scope": SCOPE} if asked.source == "exhaustive" and result.complete else {}),
        "findings": [
            {
                "key": finding.key,
                "property": finding.breaks,
                "cause": finding.cause,
                "message": finding.message,
                "ops": finding.ops,
                "buffers": len(finding.case.program.buffers),
                "minimal": finding.reduced,
                "origin": finding.origin,
            }
            for finding in result.findings
        ],
        "defects": [
            {"mend": defect.mend or None, "symptoms": [finding.key for finding in defect.symptoms]}
            for defect in result.defects
        ],
        "exercised": {
            "programs": result.tally.programs,
            "questions": result.tally.questions,
            "plans": result.tally.plans,
            "refusals": result.tally.refusals,
            "executed": result.tally.executed,
            "noted": dict(result.tally.noted),
            "sizes": dict(result.tally.sizes),
            "features": {**singly(result.tally.features), **{name: result.tally.told[name] for name in TOLD}},
            "pairs": {f"{one} + {other}": number for (one, other), number in in_pairs(result.tally.features).items()},
            "choices": {f"{one} + {other}": number for (one, other), number in cells(result.tally.pairs).items()},
            "never": {
                f"{one} + {other}": why or "not drawn in this campaign"
                for (one, other), why in empty(result.tally.pairs, asked.source).items()
            },
            "cpu_seconds": {what: spent / 1e6 for what, spent in result.tally.microseconds.items()},
        },
    }


def _write(finding: "BrokenProperty", target: "Target", out: Path) -> None:
    """Write a finding for people: the document, its picture and a test."""
    from allocsim.document import dumps  # not for --help
    from allocsim.fuzzing.pasting import pasted  # as above

    document = finding.as_document()
    files: dict[str, Content] = {"test_smallest.py": pasted(finding, target, by="allocsim fuzz").encode()}
    if document.plans:
        files["smallest.png"] = partial(draw_beside, "the finding", document)
    files["smallest.json"] = dumps(document)
    replace_files(out / finding.key, files)
