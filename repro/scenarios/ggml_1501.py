"""ggml issue 1501: LoRA on the CPU does not learn, because one kernel is not safe in place."""

from repro.scenario import OnGgml, Scenario, Training

TRAINING = Training(
    rate=0.1,
    embedding_std=0.1,
    attention_gain=2.0,
    output_gain=1.0,
    down_gain=0.5,
    lora_a_std=0.04,
    lora_b_std=0.05,
    lora_alpha=32.0,
    seed_before_labels=True,
)
"""Settings with which 20 steps of SGD learn one repeated sequence through LoRA on q and v only.
The settings work with 4 layers and with 30."""

SCENARIO = Scenario(
    name="ggml-1501",
    title="a 30-layer LoRA model does not learn; pinning every node cures it",
    source="https://github.com/ggml-org/ggml/issues/1501",
    story=(
        "rms_norm_back is on ggml's in-place list, so its result may take the memory of the incoming gradient. Before "
        "ggml 0.15.0 the CPU kernel copied x into the result first, and then read the gradient, which was overwritten "
        "by then. The plan is legal."
    ),
    training=TRAINING,
    expected=(("C04", "kernel"),),
    reports="D K",
    kernels={"rms_norm_back": "two_pass"},
    on_ggml=OnGgml(
        fixed="0.15.0",
        partial_pins_fixed="0.26.0",
        reports="D K",
        reports_fixed="K",  # pairs that no plan uses: rope, rope_back and soft_max over operand 2
        not_run="H P",
    ),
    caught=(
        "A test of every kernel on the in-place list, with its result over each operand. Or a comparison of every "
        "gradient of one training step with the same step without reuse."
    ),
)
