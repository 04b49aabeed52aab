"""Every scenario by name, and a user's own scenarios by `package.module:attribute`.

To add a scenario, put a file with a `SCENARIO` into this folder, and add a row to a table here.

`from_file` runs a user's Python file and returns its `SCENARIO`, which needs no row here.
"""

from importlib import import_module, util
from pathlib import Path
from typing import Final

from allocsim.errors import ModelError, UnknownNameError
from repro.scenario import GgmlFault, Scenario, SmallScenario, join

AnyScenario = Scenario | GgmlFault | SmallScenario

MODULES: Final[dict[str, str]] = {
    "ggml-1501": "ggml_1501",
    "ggml-1501-as-reported": "ggml_1501_as_reported",
    "ggml-1501-seed": "ggml_1501_seed",
    "parallel-branches": "parallel_branches",
}
"""Scenarios that run on the engine: name -> module of this folder."""

ON_GGML: Final[dict[str, str]] = {
    "ggml-stale-plan": "ggml_stale_plan",
    "ggml-late-output": "ggml_late_output",
    "ggml-none-view": "ggml_none_view",
    "ggml-output-on-view": "ggml_output_on_view",
    "ggml-shared-gradient": "ggml_shared_gradient",
    "ggml-opt-accumulators": "ggml_opt_accumulators",
    "ggml-forward-backward": "ggml_forward_backward",
}
"""Faults of ggml itself, which run on a library of ggml: name -> module of this folder."""

SMALL: Final[dict[str, str]] = {
    "address-of": "address_of",
    "consumerless-output": "consumerless_output",
    "dropped-reader": "dropped_reader",
    "window-rolled-back": "window_rolled_back",
    "branch-outputs": "branch_outputs",
    "unused-input": "unused_input",
    "loop-body": "loop_body",
    "loop-invariant-scratch": "loop_invariant_scratch",
    "scope-opening-kill": "scope_opening_kill",
    "loop-live-epochs": "loop_live_epochs",
    "read-only-mutation": "read_only_mutation",
    "fallback-alias": "fallback_alias",
    "lowered-reshape": "lowered_reshape",
    "match-cast": "match_cast",
    "nested-alias": "nested_alias",
    "slice-of-base": "slice_of_base",
    "accumulator-returned": "accumulator_returned",
    "duplicate-operand": "duplicate_operand",
    "foreign-view": "foreign_view",
    "inherited-donation": "inherited_donation",
    "loop-destination": "loop_destination",
    "mutated-concat": "mutated_concat",
    "refcounted-identity": "refcounted_identity",
    "tied-operand": "tied_operand",
    "two-donors": "two_donors",
    "add-n-zero-fill": "add_n_zero_fill",
    "fused-norm-overlap": "fused_norm_overlap",
    "one-binding": "one_binding",
    "rms-norm-back": "rms_norm_back",
    "rmsnorm-back-30": "rmsnorm_back_30",
    "softmax-back-partial-pin": "softmax_back_partial_pin",
    "output-read-inside": "output_read_inside",
    "pin-on-view": "pin_on_view",
    "unflagged-look": "unflagged_look",
    "yielded-buffer": "yielded_buffer",
    "constant-leaf": "constant_leaf",
    "features-in-input": "features_in_input",
    "index-leaf": "index_leaf",
    "encoder-result": "encoder_result",
    "escaping-grad": "escaping_grad",
    "expert-cache": "expert_cache",
    "static-output": "static_output",
    "stale-plan": "stale_plan",
    "train-infer-train": "train_infer_train",
    "concurrent-chains": "concurrent_chains",
    "double-buffer": "double_buffer",
    "barrier-between-types": "barrier_between_types",
    "copy-before-read": "copy_before_read",
    "freed-gathered-weights": "freed_gathered_weights",
    "inputless-split": "inputless_split",
    "parallel-in-place": "parallel_in_place",
    "pending-host-copy": "pending_host_copy",
    "pipelined-copies": "pipelined_copies",
    "reduce-scatter-output": "reduce_scatter_output",
    "request-in-flight": "request_in_flight",
    "reuse-chain": "reuse_chain",
    "rewritten-input": "rewritten_input",
    "saved-activation-order": "saved_activation_order",
    "sent-activation": "sent_activation",
    "side-stream-copy": "side_stream_copy",
    "two-views-of-a-state": "two_views_of_a_state",
    "unmapped-page": "unmapped_page",
    "window-in-flight": "window_in_flight",
    "wrong-stream-gradient": "wrong_stream_gradient",
    "n-copies": "n_copies",
    "donated-twice": "donated_twice",
    "donation-order": "donation_order",
    "fusion-slot": "fusion_slot",
    "merged-empty-outputs": "merged_empty_outputs",
    "double-free": "double_free",
    "scattered-row": "scattered_row",
    "short-workspace": "short_workspace",
    "stolen-prefix": "stolen_prefix",
    "tail-free": "tail_free",
    "unallocated-free": "unallocated_free",
    "copy-not-in-graph": "copy_not_in_graph",
    "padded-attention": "padded_attention",
    "two-conds": "two_conds",
}
"""Small scenarios, in the order of their classes: name -> module of this folder."""


def find(name: str) -> Scenario:
    """Return the scenario called `name`; for names joined by `+`, return their scenarios joined.

    Raises UnknownNameError for a name that is in no table. Raises ModelError for scenarios that
    cannot be joined, and for those of `ON_GGML` and `SMALL`.
    """
    parts = [part.strip() for part in name.split("+")]
    for part in parts:
        if part in ON_GGML:
            raise ModelError(
                "", f"{part} is a fault of real ggml; it cannot be joined with another scenario or run on the engine"
            )
        if part in SMALL:
            raise ModelError("", f"{part} is a small scenario; it cannot be joined with another scenario")
        if part not in MODULES:
            raise UnknownNameError("scenario", part, {**MODULES, **ON_GGML, **SMALL})
    if len(set(parts)) != len(parts):
        raise ModelError("", f"{name}: a scenario is joined with itself")
    found: Scenario = import_module(f"repro.scenarios.{MODULES[parts[0]]}").SCENARIO
    for part in parts[1:]:
        found = join(found, import_module(f"repro.scenarios.{MODULES[part]}").SCENARIO)
    return found


def find_beside_files(name: str) -> Scenario:
    """Return the scenario called `name`, as `find` does. The caller has found no file of that name,
    so the UnknownNameError says that `name` is neither a file nor a scenario.
    """
    try:
        return find(name)
    except UnknownNameError as error:
        raise UnknownNameError("file or scenario", name, MODULES) from error


def find_any(name: str) -> AnyScenario:
    """Return the scenario called `name` of any table, or the user's own scenario that
    `package.module:attribute` names. Errors are those of `find` and of `repro.own_models`.
    """
    if ":" in name:
        from repro.own_models import find_own  # noqa: PLC0415 - a stranger's import may be anything

        return find_own(name)
    if name in SMALL:
        return find_small(name)
    if name not in ON_GGML:
        return find(name)
    found: GgmlFault = import_module(f"repro.scenarios.{ON_GGML[name]}").SCENARIO
    return found


def find_small(name: str) -> SmallScenario:
    """Return the small scenario called `name`; raises UnknownNameError for an unknown name."""
    if name not in SMALL:
        raise UnknownNameError("scenario", name, SMALL)
    found: SmallScenario = import_module(f"repro.scenarios.{SMALL[name]}").SCENARIO
    return found


def named(name: str) -> AnyScenario:
    """Return the scenario of a file if `name` ends in .py (`from_file`), else `find_any(name)`."""
    return from_file(Path(name)) if name.endswith(".py") else find_any(name)


def from_file(path: Path) -> AnyScenario:
    """Run a Python file and return its `SCENARIO`.

    Raises ModelError for a file that cannot be read or run, or that has no `SCENARIO`.
    """
    spec = util.spec_from_file_location(f"scenario_{path.stem}", path)
    if spec is None or spec.loader is None or not path.is_file():
        raise ModelError(str(path), "is no Python file")
    module = util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except ModelError:
        raise
    except Exception as error:
        raise ModelError(str(path), f"cannot be run: {type(error).__name__}: {error}") from error
    found = getattr(module, "SCENARIO", None)
    if not isinstance(found, Scenario | GgmlFault | SmallScenario):
        raise ModelError(str(path), "has no SCENARIO; CONTRIBUTING.md says how to write one")
    return found


def every() -> tuple[Scenario, ...]:
    """Return all scenarios that run on the engine, in the order of `MODULES`."""
    return tuple(find(name) for name in MODULES)


def every_on_ggml() -> tuple[GgmlFault, ...]:
    """Return all faults of real ggml, in the order of `ON_GGML`."""
    return tuple(fault for name in ON_GGML if isinstance(fault := find_any(name), GgmlFault))


def every_small() -> tuple[SmallScenario, ...]:
    """Return all small scenarios, in the order of `SMALL`."""
    return tuple(find_small(name) for name in SMALL)
