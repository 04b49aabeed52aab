"""A llama that goes on with its keys and values in pages: the same logits as a whole pass, a cache that the judge finds right, and three ways to break it."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from allocsim.allocators import find
from allocsim.errors import EngineError, PlannerError
from allocsim.judge.fast import check
from allocsim.model import Plan
from allocsim.recordings import judge
from engine.generation import Decoder, Pages, Sampling, generate
from engine.generation.decoder import PROMPT_ROWS
from engine.generation.sampling import chosen
from engine.graph import Graph
from engine.graph.lowering import lower
from engine.kernels.threads import allowed
from engine.models import llama
from engine.runtime import Runtime

CONFIG = llama.LlamaConfig(layers=2, hidden=16, ffn=24, heads=4, kv_heads=2, vocab=23, rank=2, dtype="f64")
"""In float64, so that what differs is never rounding: both ways sum in other orders."""
WEIGHTS = {
    name: array
    for name, array in llama.init_parameters(CONFIG, seed=5, embedding_std=0.3).items()
    if name != llama.HYPER
}


def whole(tokens):
    """Return the logits behind each token, by the graph that training has and no cache."""
    config = replace(CONFIG, seq=len(tokens))
    model = llama.llama(config, WEIGHTS)
    graph = Graph("whole")
    logits = model.build(graph, {"tokens": (1, len(tokens))})
    graph.expand(logits)
    lowered = lower(graph, [logits])
    plan = find("reference").plan(lowered.program)
    with Runtime(
        lowered, plan, parameters=WEIGHTS, resident={leaf.name: WEIGHTS[leaf.name] for leaf in graph.trainable}
    ) as runtime:
        return runtime.run({"tokens": np.array(tokens, np.int32), **llama.constants(config)})[logits.name]


def differs(tokens, logits):
    return float(np.abs(whole(tokens)[-1] - logits).max()) > 1e-9


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("begin"), st.integers(1, 11)),
        st.tuples(st.just("fork"), st.integers(0, 9)),
        st.tuples(st.just("drop"), st.integers(0, 9)),
        st.tuples(st.just("go on"), st.lists(st.integers(1, 3), min_size=5, max_size=5)),
    ),
    min_size=3,
    max_size=9,
)


@settings(max_examples=25)
@given(STEPS, st.sampled_from([1, 3, 4, 16]), st.integers(0, 1 << 20))
def test_any_schedule_gives_the_logits_of_a_whole_pass_and_a_cache_that_is_right(steps, cells, seed):
    random = np.random.default_rng(seed)
    with Decoder(CONFIG, WEIGHTS, pages=400 // cells, cells=cells, planner="greedy_by_size") as decoder:
        live = []
        for what, how in steps:
            if what == "begin" and len(live) < 4:
                live.append(decoder.sequence(random.integers(0, CONFIG.vocab, how).tolist()))
            elif what == "fork" and live and len(live) < 5:
                live.append(decoder.fork(live[how % len(live)]))
            elif what == "drop" and live:
                decoder.drop(live.pop(how % len(live)))
            for number, one in enumerate(live):
                more = how[number] if what == "go on" else int(one.cached == len(one.tokens))
                one.tokens += random.integers(0, CONFIG.vocab, more).tolist()
            if live:
                logits = decoder.step(live)
                for one, row in zip(live, logits, strict=True):
                    np.testing.assert_allclose(row, whole(one.tokens)[-1], rtol=0, atol=1e-10)
        for one in live:
            decoder.drop(one)
        events = decoder.drain()

        assert sorted(decoder.pool.free) == list(range(decoder.pool.count))
        assert not judge(events).findings
        assert judge(events, window=7).findings == []
        assert not decoder.plans or check(decoder.document()).clean


def test_a_long_prompt_is_read_in_pieces():
    tokens = (np.arange(2 * PROMPT_ROWS + 3) % CONFIG.vocab).tolist()
    with Decoder(CONFIG, WEIGHTS, pages=64) as decoder:
        (logits,) = decoder.step([decoder.sequence(tokens)])

        assert not differs(tokens, logits)
        assert decoder.steps == 3


# ------------------------------------------------------------------------------------------------------- what breaks it


class GivenAway(Pages):
    """Takes a page back though another sequence holds it."""

    def let_go(self, page):
        self.holders[page.number] = 1
        super().let_go(page)


class GivenTwice(Pages):
    """Gives the first page out again while it is held."""

    def take(self):
        page = super().take()
        if sum(map(bool, self.holders)) == 3:
            self.free.append(0)
        return page


class Overwriting(Decoder):
    """Lays the third position of its second sequence over the first of its first."""

    def cell(self, sequence, positions):
        found = super().cell(sequence, positions)
        return np.where((positions == 2) & (sequence.name == "s1"), 0, found).astype(np.int32)


@pytest.mark.parametrize(
    ("decoder", "pool", "found"),
    [
        (Decoder, GivenAway, ("C11", "plan", "keep 1#0 until its last holder has let go")),
        (Decoder, GivenTwice, ("C13", "plan", "give block '0#1' out, and back, once")),
        (Overwriting, Pages, ("C03", "plan", "copy 0#0 before one of its holders writes")),
    ],
)
def test_a_page_given_away_and_an_overwritten_cell_are_convicted_and_give_other_numbers(decoder, pool, found):
    with decoder(CONFIG, WEIGHTS, pages=12, cells=4, pool=pool) as broken:
        first = broken.sequence([1, 2, 3, 4, 5])
        broken.step([first])
        second = broken.sequence([6, 7, 8, 9, 10, 11]) if pool is Pages else broken.fork(first)
        second.tokens.append(12)
        live = [first, second]
        wrong = False
        for token in range(9):
            for one in live:
                one.tokens.append(token)
            wrong |= any(differs(one.tokens, row) for one, row in zip(live, broken.step(live), strict=True))
            if token == 2 and pool is GivenAway:
                broken.drop(live.pop(0))
                live.append(broken.sequence([20, 21, 22, 20, 21, 22, 20, 21]))
        findings = judge(broken.drain()).findings

    assert wrong
    assert found in [(one.class_, one.party, one.cure) for one in findings]
    if decoder is Decoder:  # what follows from it comes behind
        assert (findings[0].class_, findings[0].party, findings[0].cure) == found


class Stale:
    """Gives each program the slots that the first one got."""

    name = "stale"

    def __init__(self):
        self.first = None

    def plan(self, program):
        made = find("ggml").plan(program)
        self.first = self.first or made
        return Plan(
            program=program, arena=self.first.arena, offset=self.first.offset, nbytes=made.nbytes, source=self.name
        )


def test_a_stale_plan_is_refused_with_what_it_breaks():
    with Decoder(CONFIG, WEIGHTS, pages=12, cells=16, planner=Stale()) as decoder:
        sequence = decoder.sequence([1, 2])
        decoder.step([sequence])
        sequence.tokens += [3, 4, 5, 6, 7, 8, 9]
        with pytest.raises(PlannerError, match=r"stale: the plan of program .* is not sound: "):
            decoder.step([sequence])


# ------------------------------------------------------------------------------------------------------------- generate


def texts(made):
    return [one.tokens for one in made.sequences]


@pytest.mark.parametrize("sampling", [Sampling(), Sampling(temperature=0.9, top_k=7, top_p=0.9, seed=3)])
def test_what_is_generated_is_a_function_of_prompt_and_seed(sampling):
    prompts = [[1, 2, 3], [4, 5, 6, 7, 8, 9]]

    def made(pages, cells):
        with Decoder(CONFIG, WEIGHTS, pages=pages, cells=cells) as decoder:
            return generate(decoder, prompts, length=12, sampling=sampling, samples=2)

    found = made(40, 4)

    assert texts(found) == texts(made(80, 3))
    assert not found.judged.findings
    assert [len(one) for one in texts(found)] == [15, 15, 18, 18]
    assert (texts(found)[0] == texts(found)[1]) == (sampling.temperature == 0)
    if sampling.temperature == 0:
        for one in texts(found):
            assert one[-1] == int(whole(one[:-1])[-1].argmax())


def test_a_token_that_ends_is_the_last_and_its_pages_come_back():
    with Decoder(CONFIG, WEIGHTS, pages=40, cells=4) as decoder:
        whole_one = texts(generate(decoder, [[1, 2, 3]], length=20, sampling=Sampling(temperature=2.0)))[0]
    stop = whole_one[6]
    with Decoder(CONFIG, WEIGHTS, pages=40, cells=4) as decoder:
        made = generate(decoder, [[1, 2, 3]], length=20, sampling=Sampling(temperature=2.0), stop=[stop])

        assert texts(made)[0] == whole_one[: whole_one.index(stop, 3) + 1]
        assert len(decoder.pool.free) == 40


@given(st.integers(0, 1 << 30), st.floats(0.2, 3), st.integers(0, 9), st.floats(0.05, 1))
@settings(max_examples=60)
def test_what_is_drawn_has_the_probabilities_of_the_definition(seed, temperature, top_k, top_p):
    """Of one position all sequences draw apart: their share is held against a softmax by hand."""
    logits = np.random.default_rng(seed).normal(size=8).astype(np.float32)
    order = sorted(range(8), key=lambda token: -logits[token])[: top_k or None]
    mass = [float(np.exp((np.float64(logits[token]) - np.float64(logits[order[0]])) / temperature)) for token in order]
    kept = next(n for n in range(1, len(mass) + 1) if sum(mass[:n]) >= top_p * sum(mass) * (1 - 1e-12))
    want = {token: part / sum(mass[:kept]) for token, part in zip(order[:kept], mass, strict=False)}
    sampling = Sampling(temperature=temperature, top_k=top_k, top_p=top_p, seed=seed)
    draws = [chosen(logits, sampling, sequence=number, position=4) for number in range(400)]

    assert set(draws) <= set(want)
    for token, share in want.items():
        assert abs(draws.count(token) / 400 - share) < 6 * (share * (1 - share) / 400) ** 0.5 + 1e-9
    assert draws[:3] == [chosen(logits, sampling, sequence=number, position=4) for number in range(3)]


def test_equal_logits_are_the_first_and_logits_that_are_no_numbers_are_refused():
    assert chosen(np.array([0, 2, 2], np.float32), Sampling(), sequence=0, position=0) == 1
    assert chosen(np.array([0, np.inf, 2], np.float32), Sampling(temperature=1.0), sequence=0, position=0) == 1
    for wrong in ([np.nan, 1], [-np.inf, -np.inf]):
        with pytest.raises(EngineError, match="are not finite"):
            chosen(np.array(wrong, np.float32), Sampling(), sequence=0, position=0)


@pytest.mark.parametrize(
    ("how", "line"),
    [
        ({"prompts": [], "length": 1}, "0 prompts"),
        ({"prompts": [[1]], "length": 0}, "0 tokens"),
        ({"prompts": [[]], "length": 1}, "at least one token"),
        ({"prompts": [[23]], "length": 1}, "from 0 to 22"),
        ({"prompts": [[1] * 9], "length": 1}, "cache of 2 pages with 4 positions each is full"),
    ],
)
def test_what_cannot_be_generated_is_refused_in_a_line(how, line):
    with Decoder(CONFIG, WEIGHTS, pages=2, cells=4) as decoder, pytest.raises(EngineError, match=line):
        generate(decoder, **how)


@pytest.mark.parametrize(
    "how",
    [{"temperature": -1.0}, {"temperature": float("nan")}, {"top_k": -1}, {"top_p": 0.0}, {"top_p": 1.5}, {"seed": -1}],
)
def test_a_sampling_that_keeps_nothing_is_refused(how):
    with pytest.raises(EngineError, match="temperature, top_k and seed are at least 0"):
        Sampling(**how)


def test_a_weight_that_is_missing_is_named():
    fewer = {name: array for name, array in WEIGHTS.items() if name != "output_norm"}
    with (
        Decoder(CONFIG, fewer, pages=2) as decoder,
        pytest.raises(EngineError, match="the weights have no 'output_norm'"),
    ):
        decoder.step([decoder.sequence([1])])


def test_a_decoder_generates_again_and_after_a_step_that_failed():
    with Decoder(CONFIG, WEIGHTS, pages=6, cells=4) as decoder:
        first = generate(decoder, [[1, 2, 3]], length=6)
        with pytest.raises(EngineError, match="is full"):
            generate(decoder, [[1] * 9, [2] * 9, [3] * 9], length=2)
        again = generate(decoder, [[1, 2, 3]], length=6)
        held = decoder.sequence([1])
        decoder.step([held])
        with pytest.raises(EngineError, match="drop them before others are recorded"):
            generate(decoder, [[1]], length=1)

    assert texts(first) == texts(again)
    assert again.judged.events == first.judged.events
    assert not again.judged.findings


def test_a_fork_after_a_step_that_failed_counts_on_what_is_cached():
    with Decoder(CONFIG, WEIGHTS, pages=3, cells=4) as decoder:
        one = decoder.sequence([1, 2, 3])
        decoder.step([one])
        one.tokens += [4] * 12
        with pytest.raises(EngineError, match="is full"):
            decoder.step([one])
        two = decoder.fork(one)
        two.tokens[3:] = [7]
        decoder.drop(one)
        (logits,) = decoder.step([two])

        assert not differs([1, 2, 3, 7], logits)
        assert not judge(decoder.drain()).findings


def test_a_model_that_is_trained_with_dropout_is_continued_without():
    with Decoder(replace(CONFIG, dropout=0.5), WEIGHTS, pages=3) as decoder:
        (logits,) = decoder.step([decoder.sequence([1, 2, 3])])

        assert not differs([1, 2, 3], logits)


def test_closing_gives_back_the_threads_that_were_there():
    before = allowed()
    with Decoder(CONFIG, WEIGHTS, pages=9, threads=1) as decoder:
        generate(decoder, [[1, 2, 3], [4]], length=3)

    assert allowed() == before
