"""Judges and verdicts at length: documents and faults by seed, in pieces.

    python benchmarks/verdicts.py judges [--all LOW:HIGH] [--screens LOW:HIGH] [--out FILE]
    python benchmarks/verdicts.py causes [--faults 0:14500] [--several 0:5000] [--documents 101:140] [--laws 0:500] [--evidence 0:2000] [--out FILE]
    python benchmarks/verdicts.py certificates [--documents 100000] [--first SEED] [--damaged 10000] [--out FILE] [--go-on]

`judges`: every judge on many random documents: the columns without a screen and with all of them, the plain judge, and the oracle of version 2. Documents of
version 2 are those of `tests/oracle2/generate.py`, one for each seed; to each piece of them a hundredth is drawn from `tests/strategies.py`: version 1, plans
with faults, wrong beliefs, events, stale plans. Each is judged by the columns with no screen and with all of them forced on, which must be one report, word
for word; with `--all` by the plain judge too (every field of every record but its words, order, counts, sizes), and those of version 2 by the oracle of
`tests/oracle2` (what it knows of a record, and the sizes). Each piece is added to the results as soon as it is done, joined with the one before it, so a
campaign goes on where it stopped; a seed is counted once. `differences` must be 0; exit status 1 where it is not. What was compared before, of earlier
versions of the judges, stands under `earlier` in FILE and is kept.

`causes`: guilt by counterfactual by the thousand: planted faults with the right answer, alone and together, and every cure judged again. `--faults` are seeds
of planted faults (`tests/culprits.py`), `--several` of two and of three faults within one program (`tests/several.py`), `--documents` seeds of pieces of 100
random documents each, `--laws` seeds of faults on which every law of company and names is tried (`tests/company.py`), `--evidence` seeds of faults executed
on the engine, on which no larger set of detectors may find less (`tests/evidences.py`). What is run for some hundreds in the suite, with the same seeds.
Every miss is printed, and each piece added to the results under its own name as soon as it is done, so that a campaign can be run in pieces and goes on where
it stopped. Exit status 1 where anything was missed.

`certificates`: the proved checker against the judge: random documents, certificates made false, samples of real systems, a long session. Needs `make proof`.

* `documents`: those of `tests/oracle2/generate.py` without ranges of sizes. A document that the judge finds clean, with
  nothing assumed (`strict`), must be accepted; one with a violation of `REFUSED` must be refused. Anything else a checker of
  reads, order and promises may accept or refuse; how many it did is said. So may a document in which a value reaches outside its
  buffer: to the checker, memory apart has no end.
* `damaged`: a claim of an accepted certificate made false, by the word of an oracle that knows neither judge nor checker
  (`tests/damaged_claims.py`). Each must be refused.
* `samples`: dumps and plans of real systems under `tests/data` that the judge finds clean. Each must be accepted.
* `session`: the training step of the scenario ggml-1501 as ggml plans it, 20 runs: CPU seconds of each part.

The account is written after every 100 documents, and `--go-on` takes it up again: documents that differed are asked once more, and those that agree by then
are listed as mended. Exit status 1 where anything differs.
"""

import json
import random
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from harness import DATA, ROOT, Found, cpu, kept, run_one_of, spent

import agreement_2
import strategies
from agreement_plain import compare, forced, whole
from answers import flagship
from company import LAWS, broken
from culprits import PLANTS, culprits
from cures import faults_of_cures, wrong_cures
from damaged_claims import damaged
from evidences import executed, lost
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st
from oracle2.features import FEATURES, features
from oracle2.generate import generate
from oracle2.reading import PACKED
from several import several, wrong_with_several
from strategies import documents
from terms_oracle import Truth, reaches_outside
from test_causes import wrong_with

import allocsim.outcomes  # noqa: F401 - first, so that what it imports is whole
from allocsim import document as native
from allocsim.certificates import certificate_of, certificate_text, certified, terms_of, terms_text
from allocsim.document import loads
from allocsim.errors import AllocsimError
from allocsim.judge.fast import check
from allocsim.model import Document, Run
from allocsim.systems import load
from allocsim.verdict import judge

PIECE = 200
QUIET = settings(database=None, deadline=None, phases=[Phase.generate], suppress_health_check=list(HealthCheck))
"""How documents are drawn by a campaign: all that are asked for, whatever comes."""
FAULTY = st.one_of(strategies.documents(), strategies.documents(sound=True), strategies.instances())


def differing(written: Any, options: dict[str, Any], judges: str, *, oracle: bool) -> list[str]:
    """Return which judges differ from the columns without a screen on a document, as parsed JSON; a crash is a difference."""
    try:
        document = native.loads(json.dumps(written))
        report = check(document, plain=True, **options)
        found = ["screens"] * (whole(forced(document, **options)) != whole(report))
        if judges == "all":
            found += ["plain"] * bool(compare(written, report=report, **options))
            found += ["oracle"] * bool(oracle and agreement_2.differences(written, report, options))
    except Exception as error:  # noqa: BLE001 - as said
        return [f"{type(error).__name__}: {error}"]
    return found


def piece(low: int, high: int, judges: str) -> dict[str, Any]:
    """Judge the documents of a range of seeds, and count them."""
    began, counts, wrong = time.process_time(), Counter[str](), dict[str, list[str]]()

    def note(name: str, found: list[str]) -> None:
        if found:
            wrong[name] = found
            print(name, found, flush=True)

    for number in range(low, high):
        written = generate(number)
        note(f"seed {number}", differing(written, agreement_2.asked(number), judges, oracle=True))
        counts.update(version_2=1)
        counts.update(FEATURES & features(written))

    @seed(low)
    @settings(QUIET, max_examples=max((high - low) // 100, 1))
    @given(FAULTY)
    def drawn(document: Any) -> None:
        counts.update(version_1=1)
        found = differing(json.loads(native.dumps(document)), {}, judges, oracle=False)
        note(f"drawn {counts['version_1']} of {low}", found)

    drawn()
    return {"counts": dict(counts), "differing": wrong, "cpu_seconds": round(time.process_time() - began, 1)}


def summary(pieces: dict[str, dict[str, Any]], earlier: Any) -> Found:
    """Return the counts of all pieces together, and the pieces."""
    counts, by = Counter[str](), Counter[str]()
    for name, one in pieces.items():
        counts.update(one["counts"])
        by[name.split()[0]] += one["counts"]["version_2"]
    whole = {name: counts.pop(name, 0) for name in ("version_2", "version_1")}
    differences = sum(len(one["differing"]) for one in pieces.values())
    seconds = round(sum(one["cpu_seconds"] for one in pieces.values()))
    about = {**whole, "by_all_judges": by["all"], "differences": differences, "cpu_seconds": seconds}
    found = {**about, "features": dict(sorted(counts.items()))}
    return {"differences": differences, "summary": found, "earlier": earlier, "pieces": pieces}


def spanned(name: str) -> tuple[str, int, int]:
    """Return the judges of a piece and its half-open range."""
    judges, low, high = name.replace(":", " ").split()
    return judges, int(low), int(high)


def joined(pieces: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Return the pieces with those as one that follow each other, by the same judges."""
    found: dict[str, dict[str, Any]] = {}
    for name in sorted(pieces, key=spanned):
        (judges, low, high), one = spanned(name), pieces[name]
        before = next((name for name in found if spanned(name)[::2] == (judges, low)), None)
        if before is not None:
            other, low = found.pop(before), spanned(before)[1]
            one = {
                "counts": dict(Counter(other["counts"]) + Counter(one["counts"])),
                "differing": {**other["differing"], **one["differing"]},
                "cpu_seconds": round(other["cpu_seconds"] + one["cpu_seconds"], 1),
            }
        found[f"{judges} {low}:{high}"] = one
    return found


def judges(*, all: tuple[int, ...] = (0, 0), screens: tuple[int, ...] = (0, 0), out: Path) -> Iterator[Found]:  # noqa: A002 - as it is asked
    """Judge what is asked for and not yet there."""
    before = kept(out)
    done, earlier = before.get("pieces", {}), before.get("earlier", {})
    for judges, (begin, end) in {"all": all, "screens": screens}.items():
        for low in range(begin, end, PIECE):
            high = min(low + PIECE, end)
            if not any(first <= low and high <= last for _, first, last in map(spanned, done)):
                done = joined({**done, f"{judges} {low}:{high}": piece(low, high, judges)})
                yield summary(done, earlier)
    yield summary(done, earlier)


DOCUMENTS = 100
"""Random documents of a piece."""


def planted_faults(first: int, stop: int) -> Counter[str]:
    """Return how many faults of each plant there were, and how many were answered wrong."""
    counts: Counter[str] = Counter()
    for culprit in culprits(range(first, stop), tuple(PLANTS)):
        counts[culprit.name.split()[0]] += 1
        verdict = judge(culprit.evidence)
        _told(counts, culprit.name, verdict, wrong_with(culprit, verdict))
    return counts


def _told(counts: Counter[str], name: str, verdict: Any, wrong: str) -> None:
    """Count the cures of a verdict, judged again, and what is wrong with them or with it; print the latter."""
    faults, cures = wrong_cures(verdict)
    counts["cures"] += cures
    for what in [wrong] * bool(wrong) + faults:
        counts["wrong: " + what.split(":")[0]] += 1
        print(name, what, flush=True)


def together(first: int, stop: int) -> Counter[str]:
    """Return how many documents had two or three planted faults, how many of these show, and how many were answered wrong."""
    counts: Counter[str] = Counter()
    for count in (2, 3):
        for one in several(range(first, stop), count):
            shown = sum(shows for *_, shows in one.faults)
            counts.update({f"{count} planted": 1, f"{count} planted, {shown} to be seen": 1})
            verdict = judge(one.evidence)
            _told(counts, one.name, verdict, wrong_with_several(one, verdict))
    return counts


def of_documents(piece: int, stop: int) -> Counter[str]:
    """Return how many random documents were faulty, how many cures they had, and what was wrong with them."""
    assert stop == piece + 1
    counts: Counter[str] = Counter()

    @seed(piece)
    @settings(QUIET, max_examples=DOCUMENTS)
    @given(documents())
    def one(document: object) -> None:
        if check(document, limit=1).clean:
            counts["clean"] += 1
            return
        wrong, cures = faults_of_cures(document)
        counts.update(faulty=1, cures=cures)
        for word in wrong:
            counts["wrong: " + word] += 1
            print(f"piece {piece}, faulty document {counts['faulty']}: {word}", flush=True)

    one()
    return counts


def laws(first: int, stop: int) -> Counter[str]:
    """Return how often each law of company and names was tried on planted faults, and how often it was broken."""
    counts: Counter[str] = Counter()
    for culprit in culprits(range(first, stop), tuple(PLANTS)):
        for name in LAWS:
            wrong = broken(name, culprit)
            if wrong is None:
                continue
            counts[name] += 1
            if wrong:
                counts["wrong: " + name] += 1
                print(culprit.name, name, wrong, flush=True)
    return counts


def evidence(first: int, stop: int) -> Counter[str]:
    """Return how many pairs of sets of detectors were compared on executed faults, and where the larger found less."""
    counts: Counter[str] = Counter()
    for name, one in executed(range(first, stop)):
        less, pairs = lost(one)
        counts.update(executed=1, pairs=pairs)
        if less:
            counts["wrong: less found"] += 1
            print(name, less[0], flush=True)
    return counts


PIECES = {
    "faults": (1000, planted_faults), "several": (250, together), "laws": (50, laws), "evidence": (100, evidence), "documents": (1, of_documents),
}  # fmt: skip
"""What is run by seeds: its name, how many seeds a piece has, and what runs it."""


def causes(
    *,
    faults: tuple[int, ...] = (0, 0),
    several: tuple[int, ...] = (0, 0),
    documents: tuple[int, ...] = (0, 0),
    laws: tuple[int, ...] = (0, 0),
    evidence: tuple[int, ...] = (0, 0),
    out: Path,
) -> Iterator[Found]:
    """Run what is asked for and not yet there."""
    asked = {"faults": faults, "several": several, "laws": laws, "evidence": evidence, "documents": documents}
    done: dict[str, Any] = kept(out).get("pieces", {})
    for sort, (step, work) in PIECES.items():
        for low in range(*asked[sort], step):
            high = min(low + step, asked[sort][1])
            name = f"documents {low} of {DOCUMENTS}" if sort == "documents" else f"{sort} {low}:{high}"
            if name not in done:
                seconds, counts = cpu(lambda low=low, high=high, work=work: work(low, high))
                done[name] = {"counts": dict(sorted(counts.items())), "cpu_seconds": round(seconds, 1)}
                print(name, done[name], flush=True)
                yield summed(done)
    yield summed(done)


def summed(done: dict[str, Any]) -> Found:
    """Return the counts of all pieces together, by what was run, and the pieces."""
    whole: dict[str, Counter[str]] = {}
    for name, piece in done.items():
        whole.setdefault(name.split()[0], Counter()).update(piece["counts"])
    found = {name: dict(sorted(counts.items())) for name, counts in sorted(whole.items())}
    wrong = sum(count for counts in whole.values() for word, count in counts.items() if word.startswith("wrong"))
    return {"summary": found, "wrong": wrong, "pieces": done}


REFUSED = ("StaleRead", "UninitialisedRead", "Race", "ResultsOverlap", "UnsafeInPlace", "AssumedInPlace")
"""What the checker must refuse."""
BATCH = 100
"""Documents after which the account is written."""


def asked(parsed: dict[str, Any]) -> tuple[Any, ...]:
    """Return report, whether the checker must refuse, terms, certificate, the terms as text, and what the checker says."""
    document = loads(json.dumps(parsed))
    report, terms = check(document, strict=True), terms_of(document)
    refuse = any(violation.kind in REFUSED for violation in report.violations) and not reaches_outside(parsed)
    certificate, text = certificate_of(terms), terms_text(terms)
    return report, refuse, terms, certificate, text, certified(text, certificate_text(certificate))


def again(account: dict[str, Any]) -> dict[str, Any]:
    """Ask the documents that differed once more; return the account with those that agree now as mended."""
    found = {"differ": [], "mended": list(account.get("mended", []))}
    for number in account["differ"]:
        report, refuse, *_, answer = asked(generate(number, leave_out=frozenset({"nbytes range"})))
        wrong = (report.clean and not answer.holds) or (refuse and answer.holds)
        found["differ" if wrong else "mended"].append(number)
    return {**account, **found}


def random_documents(account: dict[str, Any], count: int, wanted: int) -> dict[str, Any]:
    """Compare the checker with the judge on more documents, and have it refuse false claims; return the account with them."""
    tally, damages = Counter(account["tally"]), Counter(account["damages"])
    differ, survived = list(account["differ"]), list(account["damaged and accepted"])
    first, seed = account["seeds"]
    until = min(tally["documents"] + BATCH, count)
    while tally["documents"] < until:
        parsed = generate(seed, leave_out=frozenset({"nbytes range"}))
        seed += 1
        if any(buffer.get("nbytes_range") for program in parsed["programs"] for buffer in program["buffers"]):
            continue
        report, refuse, terms, certificate, text, answer = asked(parsed)
        tally["documents"] += 1
        tally["clean"] += report.clean
        tally["to be refused"] += refuse
        tally["accepted"] += answer.holds
        tally["neither, accepted"] += answer.holds and not report.clean
        tally.update(of_version_2(parsed))
        if (report.clean and not answer.holds) or (refuse and answer.holds):
            differ.append(seed - 1)
        rng = random.Random(seed)  # noqa: S311 - a draw, no secret
        more = answer.holds and sum(damages.values()) < wanted and not reaches_outside(parsed)
        truth = Truth(parsed, terms) if more else None
        for _ in range(8 if more else 0):
            wrong = damaged(rng, truth, certificate)
            if wrong is None:
                continue
            damages[wrong[1]] += 1
            if certified(text, certificate_text(wrong[0])).holds:
                survived.append(seed - 1)
    counts = {"tally": dict(tally), "damages": dict(sorted(damages.items()))}
    return {**account, "seeds": [first, seed], **counts, "differ": differ, "damaged and accepted": survived}


def of_version_2(parsed: dict[str, Any]) -> list[str]:
    """Return which features of version 2 a document has."""
    programs, runs = parsed["programs"], parsed.get("session") or []
    ops = [op for program in programs for op in program["ops"]]
    said = {
        "with same": any(op["kind"] == "same" for op in ops),
        "with packed": any(value["dtype"] in PACKED for program in programs for value in program["values"]),
        "with streams": any(op.get("stream") for op in ops),
        "with runs": len(runs) > 1,
        "with named waits": any(run.get("after") is not None for run in runs),
        "with late reads": any(run.get("read_after") is not None for run in runs),
    }
    return [name for name, holds in said.items() if holds]


def samples() -> dict[str, Any]:
    """Ask of every dump and plan of a real system that the judge finds clean."""
    tally: Counter[str] = Counter()
    differ = []
    for path in sorted(DATA.rglob("*")):
        if not path.is_file() or path.suffix in {".md", ".py", ".c", ".h"}:
            continue
        try:
            document = load(path)
            report = check(document, strict=True)
        except AllocsimError:
            continue
        if not document.runs or not any(len(run.program.ops) for run in document.runs):
            continue
        tally["judged"] += 1
        if not report.clean:
            continue
        terms = terms_of(document)
        tally["clean"] += 1
        certificate = certificate_of(terms)
        tally["ops"] += len(certificate.claims)
        answer = certified(terms_text(terms), certificate_text(certificate))
        if not answer.holds:
            differ.append(str(path.relative_to(ROOT)))
    return {**tally, "differ": differ}


def long_session(runs: int) -> dict[str, Any]:
    """Certify many runs of the flagship's step."""
    plan = flagship()[2]
    document = Document.of(plan, *[Run.of(plan) for _ in range(runs)])
    first, terms = cpu(lambda: terms_of(document))
    second, claims = cpu(lambda: certificate_of(terms))
    third, texts = cpu(lambda: (terms_text(terms), certificate_text(claims)))
    before = spent() - time.process_time()
    answer = certified(*texts)
    steps = (first, second, third, spent() - time.process_time() - before)
    return {
        "ops": len(plan.program.ops),
        "runs": runs,
        "reads": sum(map(len, claims.claims)),
        "accepted": answer.holds,
        "cpu_seconds": dict(zip(("terms", "claims", "text", "checker"), (round(s, 2) for s in steps), strict=True)),
        "whole": round(sum(steps), 2),
    }


def certificates(
    *, documents: int = 100_000, first: int = 0, damaged: int = 10_000, go_on: bool = False, out: Path
) -> Iterator[Found]:
    """Compare; `go_on` from where `out` stopped."""
    found = kept(out) if go_on else {}
    if found:
        found["random"] = again(found["random"])
    else:
        fresh = {"seeds": [first, first], "tally": {}, "differ": [], "damages": {}, "damaged and accepted": []}
        found = {"session": long_session(20), "samples": samples(), "random": fresh}
    while True:
        account, sampled = found["random"], found["samples"]["differ"]
        wrong = len(sampled) + len(account["differ"]) + len(account["damaged and accepted"])
        yield {**found, "wrong": wrong + (not found["session"]["accepted"])}
        if account["tally"].get("documents", 0) >= documents:
            break
        found["random"] = random_documents(account, documents, damaged)


if __name__ == "__main__":
    run_one_of(
        judges, causes, certificates, failed={"judges": "differences", "causes": "wrong", "certificates": "wrong"}
    )
