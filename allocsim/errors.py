"""Every exception this project raises on purpose.

    AllocsimError               anything a user can cause; the command line prints it in one line and exits with 2
    ├── ModelError              a program, problem, plan or session contradicts itself
    │   └── DocumentError       the same, found while reading a file; names the file
    ├── PlannerError            an allocator raised, returned nonsense, or cannot place the problem
    │   ├── EndedError          a planner's own process ended without an answer
    │   └── CapacityError       the problem does not fit where it was told to fit
    │       └── ExceededError   a planner did not say so, and returned a plan that does not
    ├── UnknownNameError        no scenario, allocator, format or kernel of that name
    ├── EngineError             a graph, shape, dtype or binding the engine cannot run
    ├── OutputError             a result cannot be written where it was asked to go
    ├── NotInstalledError       a command, a service or a library that another package or an extra brings is not there
    ├── AskedError              a command that is asked in lines does not answer one
    └── ClusterError            a scheduler cannot be reached, or its workers cannot do what is asked

Defects of a plan are not errors: checks *return* them (`allocsim.judge.violations`). An exception
means that the question itself was malformed. Each message shows the thing, the value and the rule
it breaks.
"""

from collections.abc import Iterable
from difflib import get_close_matches


class AllocsimError(Exception):
    """Something the caller can mend; the message is one line that says how."""


class ModelError(AllocsimError):
    """A program, problem, plan or session contradicts itself.

    `place` is the path of the offending thing as a document spells it (`ops[17].operands[1]`),
    empty for the whole; `rule` is what is wrong there, with the value.
    """

    def __init__(self, place: str, rule: str) -> None:
        self.place = place
        self.rule = rule
        super().__init__(f"{place}: {rule}" if place else rule)

    def within(self, prefix: str) -> "ModelError":
        """Return the same error with `prefix` (`programs[0]`) in front of its place."""
        return ModelError(f"{prefix}.{self.place}" if self.place else prefix, self.rule)


class DocumentError(ModelError):
    """A file is not a readable document; `source` names it, `place` says where in it."""

    def __init__(self, source: str, place: str, rule: str) -> None:
        super().__init__(place, rule)
        self.source = source
        self.args = (f"{source}: {self.args[0]}",)


class PlannerError(AllocsimError):
    """An allocator raised, returned something that is no plan, or a plan for another program."""


class EndedError(PlannerError):
    """A planner's own process ended without an answer.

    `how` it did: a signal, an exit status, half an answer, with the last line it wrote; `memory`
    says whether that line is about memory that it was not given.
    """

    def __init__(self, name: str, how: str, said: str = "") -> None:
        self.how = how
        self.memory = any(words in said.lower() for words in OUT_OF_MEMORY)
        super().__init__(f"allocator {name!r} ended without an answer: {how}{': ' if said else ''}{said}")


OUT_OF_MEMORY = (
    "memoryerror",
    "bad_alloc",
    "out of memory",
    "outofmemory",
    "cannot allocate memory",
    "memory allocation of",
)
"""What runtimes write where the system gives them no more memory, in small letters."""


class CapacityError(PlannerError):
    """The problem does not fit into the capacity or the budget it was given."""


class ExceededError(CapacityError):
    """A plan ends beyond the capacity of an arena: the planner should have refused, and did not."""


class UnknownNameError(AllocsimError):
    """A name that is in no table.

    The message lists near matches, or all names where there are few.
    """

    def __init__(self, what: str, name: str, known: Iterable[str]) -> None:
        names = sorted(known)
        near = _anagrams(name, names) or get_close_matches(name, names, n=3) or names[:12]
        hint = f"; did you mean {', '.join(near)}?" if near else ""
        super().__init__(f"{what} {name!r} does not exist{hint}")


def _anagrams(name: str, names: list[str]) -> list[str]:
    """Return the names of the same letters, as words that are joined in another way or order have
    them: `matmul` and `mul_mat`.
    """
    joined = name.lower().replace("_", "")
    others = {other: other.lower().replace("_", "") for other in names}
    return [other for other, word in others.items() if word != joined and sorted(word) == sorted(joined)]


class EngineError(AllocsimError):
    """A graph, shape, dtype, plan or binding that the engine cannot run.

    Names the op and the value.
    """


class OutputError(AllocsimError):
    """A report, document or figure cannot be written to the path given."""


class NotInstalledError(AllocsimError):
    """What another package or an extra brings is not there.

    Says what is missing, and what brings it or what is in the way.
    """


class AskedError(AllocsimError):
    """A command that is asked in lines did something else than answer one.

    `cause` says what, without names and numbers: it follows "the target".
    """

    def __init__(self, cause: str, how: str) -> None:
        self.cause = cause
        super().__init__(f"the target {cause}: {how}")


class ClusterError(AllocsimError):
    """A cluster's scheduler cannot be reached, or its workers are not fit for the work.

    Names the address.
    """


def os_error_line(error: OSError) -> str:
    """Return what the operating system said, with the file it is about."""
    said = error.strerror or str(error)
    return f"{error.filename}: {said}" if error.filename is not None else said
