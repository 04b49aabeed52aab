"""The reporter's five smokes agree on the library with the bug, and the reason is in their plans."""

import pytest
from ggml_live import BOTH, live

from allocsim.systems.ggml.access.child import ChildDiedError
from allocsim.systems.ggml.faults.smokes import SMOKES, smoke, unsafe_aliases
from allocsim.systems.ggml.lora_training.plan_modes import transformer_rows
from allocsim.systems.ggml.lora_training.transformer import TINY


@pytest.mark.parametrize("which", BOTH)
@pytest.mark.parametrize("name", [name for name in SMOKES if name != "concat"])
def test_a_smoke_learns_alike_by_default_and_apart_because_its_plan_meets_no_unsafe_alias(which, name):
    found = live(which).call(smoke, name)

    assert found["default"] == found["apart"]
    assert found["default"][-1] < found["default"][0]
    assert (found["norm_backs"], found["unsafe"]) == (0, 0)


@pytest.mark.parametrize("which", BOTH)
def test_the_concat_smoke_cannot_be_built_without_a_backward_op_of_its_own(which):
    with pytest.raises(ChildDiedError, match="CONCAT"):
        live(which).call(smoke, "concat")


@pytest.mark.parametrize("which", BOTH)
def test_the_whole_model_meets_the_unsafe_alias_at_every_norm_but_the_first(which):
    default, pinned, backward = (
        unsafe_aliases(live(which).call(transformer_rows, TINY.deep(6), mode=mode))
        for mode in ("default", "pinned", "backward")
    )

    assert default == 2 * 6
    assert pinned == 0
    assert backward == 6
