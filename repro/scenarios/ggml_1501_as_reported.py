"""What the reporter of ggml issue 1501 believed: the planner forgets one consumer of a gradient."""

from dataclasses import replace

from allocsim.allocators import Constraints
from allocsim.errors import ModelError
from allocsim.model import Problem, Program
from repro.overlooked_reads import without_read
from repro.scenario import Belief, Scenario
from repro.scenarios.ggml_1501 import TRAINING


def forget_residual(belief: Belief) -> Belief:
    """The residual path round the last attention block is not counted as a reader of the
    gradient.
    """

    def believe(program: Program, constraints: Constraints) -> Problem:
        step, position = residual_read(program)
        return replace(belief(without_read(program, step, position), constraints), program=program)

    return believe


def residual_read(program: Program) -> tuple[int, int]:
    """Return the op and operand position of the lost edge.

    The first `add` of a sum of gradients and an `rms_norm_back`.

    That sum is the gradient that enters the last layer's attention block. It has two readers: the
    block, through a view, and this `add`, some fifty ops later, which carries it past the block to
    every layer below. What lies in its slot by then is what they learn from.
    """
    ops, producer = program.ops, program.producer

    def made_by(value: int) -> str:
        step = int(producer[value])
        return ops.kinds[ops.kind[step]] if step >= 0 else ""

    for op in ops:
        if op.kind == "add" and [made_by(value) for value in op.operands] == ["add", "rms_norm_back"]:
            return op.step, 0
    raise ModelError("ops", "no gradient goes past an attention block; the scenario needs at least 2 layers")


SCENARIO = Scenario(
    name="ggml-1501-as-reported",
    title="the belief misses a reader of a gradient, its slot is reused, the loss stays high",
    source="https://github.com/ggml-org/ggml/issues/1501",
    story=(
        "The report's own hypothesis: the planner undercounts the consumers of a gradient and gives its slot "
        "away while an op still has "
        "to read it. Real ggml does not do this; a planner that does looks the same from outside."
    ),
    training=TRAINING,
    expected=(("C01", "plan"),),
    reports="S L P D",
    belief=forget_residual,
    reasons={"class": "the bug behind the report is ggml-1501; this one is what the report took it for"},
    caught=(
        "A replay of the plan over the graph that runs: the add reads what another op wrote. Comparing "
        "believed with derived lifetimes names the reader that was left out."
    ),
)
