"""The hypothesis in ggml issue 1501: the planner misses a reader of a gradient."""

from dataclasses import replace

from allocsim.allocators import Constraints
from allocsim.errors import ModelError
from allocsim.model import Problem, Program
from repro.overlooked_reads import without_read
from repro.scenario import Belief, Scenario
from repro.scenarios.ggml_1501 import TRAINING


def forget_residual(belief: Belief) -> Belief:
    """The read of a gradient by the residual path past the last attention block is not counted."""

    def believe(program: Program, constraints: Constraints) -> Problem:
        step, position = residual_read(program)
        return replace(belief(without_read(program, step, position), constraints), program=program)

    return believe


def residual_read(program: Program) -> tuple[int, int]:
    """Return the op and the operand position of the read that the planner overlooks.

    The op is the first `add` of a sum of gradients and the result of an `rms_norm_back`. That sum
    is the gradient that enters the last layer's attention block. The sum has two readers. The first
    reader is the block, through a view. The second reader is this `add`, some fifty ops later,
    which passes the gradient on to every lower layer. If the slot of the sum is reused before the
    `add`, all lower layers compute with the bytes of another value.
    """
    ops, producer = program.ops, program.producer

    def made_by(value: int) -> str:
        step = int(producer[value])
        return ops.kinds[ops.kind[step]] if step >= 0 else ""

    for op in ops:
        if op.kind == "add" and [made_by(value) for value in op.operands] == ["add", "rms_norm_back"]:
            return op.step, 0
    raise ModelError(
        "ops", "no `add` passes a gradient on past an attention block; the scenario needs at least 2 layers"
    )


SCENARIO = Scenario(
    name="ggml-1501-as-reported",
    title="the planner misses a reader of a gradient and reuses its slot, and the loss stays high",
    source="https://github.com/ggml-org/ggml/issues/1501",
    story=(
        "The hypothesis of the report is that the planner undercounts the consumers of a gradient, and gives its slot "
        "away while an op still has to read it. Real ggml does not undercount them. A planner with this bug has the same "
        "symptom."
    ),
    training=TRAINING,
    expected=(("C01", "plan"),),
    reports="S L P D",
    belief=forget_residual,
    reasons={"class": "the real bug of the report is the scenario ggml-1501; this scenario is what the report assumed"},
    caught=(
        "A replay of the plan on the graph that runs: the add reads bytes that another op wrote. Or a comparison of "
        "believed with derived lifetimes, which names the missed reader."
    ),
)
