"""No cure of a small document costs more than some single change that makes it clean: every move of a slot, wait, pin and lifetime is tried, without `allocsim.cure`."""

from collections.abc import Iterator
from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest
from culprits import PLANTS, culprits
from few import few_of
from retelling import with_programs

from allocsim.judge.fast import check
from allocsim.liveness import lifetimes
from allocsim.programs.streams import with_waits
from allocsim.verdict import judge

LARGEST = 9
"""Ops of a document, views too."""


def with_plans(document, changed, problems=None):
    """Return a document with some plans in place of others, by identity, and other problems."""
    plans = tuple(changed.get(id(plan), plan) for plan in document.plans)
    runs = tuple(replace(run, plan=changed.get(id(run.plan), run.plan)) for run in document.session or ())
    session = None if document.session is None else runs
    return replace(document, plans=plans, session=session, problems=problems or document.problems)


def with_belief(document, old, **columns):
    """Return a document with one belief changed."""
    new = replace(old, **columns)
    changed = {id(plan): replace(plan, problem=new) for plan in document.plans if plan.problem is old}
    return with_plans(document, changed, tuple(new if one is old else one for one in document.problems))


def moves(document, below) -> Iterator:
    """Yield (growth of the peak, document) of each slot moved to where another ends, or ends where another begins, if the peak grows by less than `below`."""
    for plan in document.plans:
        ends = np.concatenate([[0], plan.offset + plan.nbytes])
        for buffer in np.flatnonzero(plan.placed).tolist():
            size, step = int(plan.nbytes[buffer]), int(plan.program.buffers.alignment[buffer])
            size = max(size, int(plan.program.buffers.nbytes_high[buffer]))
            low = {-(-int(end) // step) * step for end in ends} | {int(at - size) // step * step for at in plan.offset}
            for at in sorted(low):
                offset, nbytes = plan.offset.copy(), plan.nbytes.copy()
                offset[buffer], nbytes[buffer] = at, size
                if at >= 0 and (at != plan.offset[buffer] or size != plan.nbytes[buffer]):
                    moved = replace(plan, offset=offset, nbytes=nbytes)
                    if moved.peak_bytes - plan.peak_bytes < below:
                        yield moved.peak_bytes - plan.peak_bytes, with_plans(document, {id(plan): moved})


def others(document) -> Iterator:
    """Yield (0, document) of each wait, each pin, each lifetime as the program has it and to the end, and each upload done."""
    for program in document.programs:
        if len(program.streams) > 1:
            for after, op in combinations(range(len(program.ops)), 2):
                waiting = {id(one): one for one in document.programs}
                waiting[id(program)] = with_waits(program, [(op, after)])
                yield 0, with_programs(document, waiting)
    for problem in document.problems:
        span, end = lifetimes(problem.program), len(problem.program.ops)
        for buffer in range(len(problem.start)):
            pinned, start, stop = problem.pinned.copy(), problem.start.copy(), problem.stop.copy()
            pinned[buffer] = True
            yield 0, with_belief(document, problem, pinned=pinned)
            for first, past in {tuple(span[buffer].tolist()), (0, end), (int(start[buffer]), end)}:
                start[buffer], stop[buffer] = first, past
                gaps = {other: gap for other, gap in problem.gaps.items() if other != buffer}
                yield 0, with_belief(document, problem, start=start.copy(), stop=stop.copy(), gaps=gaps)
    for number, run in enumerate(document.session or ()):
        for step in run.skip:
            whole = replace(run, skip=tuple(other for other in run.skip if other != step))
            yield 0, replace(document, session=(*document.session[:number], whole, *document.session[number + 1 :]))


def cheaper(document, below):
    """Return the least price below `below` at which a single change makes a document clean, None if there is none; and how many were tried."""
    found = sorted((*moves(document, below), *(others(document) if below > 0 else ())), key=lambda change: change[0])
    for tried, (price, changed) in enumerate(found, 1):
        if check(changed, limit=1).clean:
            return price, tried
    return None, len(found)


@pytest.mark.parametrize("seeds", few_of([150, 450], 1))
def test_no_cure_is_beaten_by_a_single_change(seeds):
    beaten, equal, tried, documents = [], 0, 0, 0
    for culprit in culprits(range(500_000, 500_000 + seeds), tuple(PLANTS)):
        document = culprit.evidence.document
        if max(len(program.ops) for program in document.programs) > LARGEST or culprit.evidence.audit:
            continue
        cure = judge(culprit.evidence).cure
        if cure is None:
            continue
        price, count = cheaper(document, cure.nbytes)
        documents, tried = documents + 1, tried + count
        if price is not None:
            beaten.append((culprit.name, price, cure.nbytes, cure.words))
        elif equal < 2:  # a search that finds nothing anywhere would say nothing
            equal += cheaper(document, cure.nbytes + 1)[0] == cure.nbytes
    assert beaten == []
    assert documents > seeds // 18
    assert tried > seeds // 3
    assert equal == 2
