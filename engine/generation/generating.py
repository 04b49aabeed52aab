"""Sequences that are continued together, while the judge looks at what is done to the cache.

    generated = generate(decoder, [[1, 2, 3]], length=64, sampling=Sampling(temperature=0.8), samples=2)
    generated.sequences[0].tokens        # the prompt and 64 tokens more
    generated.judged.findings            # what the judge of recordings says of the cache

Each prompt is read once; its other samples begin as forks, which share its pages until they write.
All sequences that have not ended go on together, a token each in a step. The steps run while the
judge of recordings (`allocsim.recordings`) asks for their events, so it has seen each window of
them before the next is made, and memory grows with what is in the cache, not with what was done.

What this module does not see: text.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from allocsim.errors import EngineError
from allocsim.recordings import JudgedRecording, judge
from engine.generation.decoder import Continued, Decoder
from engine.generation.sampling import Sampling, chosen

WINDOW: Final = 2000
"""Events that are judged together."""

Heard = Callable[[Continued, int], None]
"""Is told each token, and of which sequence, when it is chosen."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Generated:
    """What was generated, and what the judge says of the cache."""

    sequences: tuple[Continued, ...]
    """`samples` of the first prompt, then of the second, and so on."""
    judged: JudgedRecording


def generate(
    decoder: Decoder,
    prompts: Sequence[Sequence[int]],
    *,
    length: int,
    sampling: Sampling = Sampling(),  # noqa: B008 - frozen
    samples: int = 1,
    stop: Iterable[int] = (),
    heard: Heard | None = None,
    recorded: Callable[[Mapping[str, Any]], None] | None = None,
) -> Generated:
    """Continue each prompt by up to `length` tokens.

    Args:
        decoder: the model and its cache; what it did since it was made, or since its events were
            drained, is judged with it.
        prompts: tokens.
        length: most tokens of a continuation.
        sampling: how a token is chosen.
        samples: continuations of each prompt.
        stop: tokens that end a continuation; they are its last.
        heard: is told each token.
        recorded: is given each event of the cache.

    Raises EngineError for no prompt, a token that the model has not, and a cache that is too small.
    """
    if not prompts or length < 1 or samples < 1:
        raise EngineError(f"{len(prompts)} prompts, {length} tokens, {samples} samples: at least one of each is needed")
    made: list[Continued] = []
    decoder.begin()
    steps = _steps(decoder, prompts, length, sampling, samples, frozenset(stop), heard, made)

    def events() -> Iterator[Mapping[str, Any]]:
        for _ in steps:
            for event in decoder.drain():
                if recorded is not None:
                    recorded(event)
                yield event

    judged = judge(events(), window=WINDOW)
    return Generated(sequences=tuple(made), judged=judged)


def _steps(  # noqa: PLR0917 - those of `generate`
    decoder: Decoder,
    prompts: Sequence[Sequence[int]],
    length: int,
    sampling: Sampling,
    samples: int,
    stop: frozenset[int],
    heard: Heard | None,
    made: list[Continued],
) -> Iterator[None]:
    """Do one step after the other, and add sequences to `made`."""
    ends: dict[Continued, int] = {}
    numbers: dict[Continued, int] = {}

    def take(sequence: Continued, logits: Any) -> None:
        token = chosen(logits, sampling, sequence=numbers[sequence], position=len(sequence.tokens))
        sequence.tokens.append(token)
        if heard is not None:
            heard(sequence, token)
        if token in stop or len(sequence.tokens) == ends[sequence]:
            decoder.drop(sequence)
            del ends[sequence]

    try:
        for prompt in prompts:
            made.append(decoder.sequence(prompt))
            (logits,) = decoder.step(made[-1:])
            yield
            made += [decoder.fork(made[-1]) for _ in range(samples - 1)]
            begun = made[-samples:]
            for number, sequence in enumerate(begun, len(made) - samples):
                numbers[sequence], ends[sequence] = number, len(prompt) + length
            for sequence in begun:
                take(sequence, logits)
            yield
        while going := list(ends):
            for sequence, logits in zip(going, decoder.step(going), strict=True):
                take(sequence, logits)
            yield
    finally:  # of a step that fails, too, nothing stays held
        for sequence in made:
            decoder.drop(sequence)
