"""The proved checker against the judge: random documents, certificates made false, samples of real systems, a long session.

    make proof
    python benchmarks/certificates.py [--documents 100000] [--first SEED] [--damaged 10000] [--out FILE] [--go-on]

* `documents`: those of `tests/oracle2/generate.py` without ranges of sizes. A document that the judge finds clean, with
  nothing assumed (`strict`), must be accepted; one with a violation of `REFUSED` must be refused. Anything else a checker of
  reads, order and promises may accept or refuse; how many it did is said. So may a document in which a value reaches outside its
  buffer: to the checker, memory apart has no end.
* `damaged`: a claim of an accepted certificate made false, by the word of an oracle that knows neither judge nor checker
  (`tests/damaged_claims.py`). Each must be refused.
* `samples`: dumps and plans of real systems under `tests/data` that the judge finds clean. Each must be accepted.
* `session`: the training step of the scenario ggml-1501 as ggml plans it, 20 runs: CPU seconds of each part.

The account is written after every 100 documents, and `--go-on` takes it up again: documents that differed are asked once more, and
those that agree by then are listed as mended. Exit status 1 where anything differs.
"""

import json
import random
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from harness import DATA, ROOT, Found, cpu, kept, run, spent

from answer import flagship
from damaged_claims import damaged
from oracle2.generate import generate
from oracle2.reading import PACKED
from terms_oracle import Truth, reaches_outside

from allocsim.certificates import certificate_of, certificate_text, certified, terms_of, terms_text
from allocsim.document import loads
from allocsim.errors import AllocsimError
from allocsim.judge.fast import check
from allocsim.model import Document, Run
from allocsim.systems import load

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
    for seed in account["differ"]:
        report, refuse, *_, answer = asked(generate(seed, leave_out=frozenset({"nbytes range"})))
        wrong = (report.clean and not answer.holds) or (refuse and answer.holds)
        found["differ" if wrong else "mended"].append(seed)
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
        tally.update(features(parsed))
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


def features(parsed: dict[str, Any]) -> list[str]:
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


def measure(
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
    run(measure, failed="wrong")
