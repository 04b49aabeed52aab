"""ggml's counting rules, each on a graph small enough to count by hand."""

import pytest

from allocsim.allocators import Constraints, ggml_belief, ggml_kinds
from allocsim.errors import ModelError
from allocsim.model import Role


def believe(program, **told):
    return ggml_belief.believe(program, Constraints.of(program, **{"pins": "none", **told}))


def lifetimes(problem):
    return list(zip(problem.start.tolist(), problem.stop.tolist(), strict=True))


def pairs(problem):
    return [tuple(pair) for pair in problem.may_share.tolist()]


def test_a_source_is_freed_by_its_last_reader_and_what_nobody_reads_is_never_freed(graph):
    x = graph.leaf(1)  # step 0
    y = graph.op("mul_mat", x, units=1)  # step 1
    graph.op("mul_mat", y, units=1)  # step 2

    assert lifetimes(believe(graph.build())) == [(0, 2), (1, 3), (2, 3)]


def test_leafs_are_placed_first_in_the_order_of_the_values(graph):
    x = graph.leaf(1)
    y = graph.op("mul_mat", x, units=1)
    late = graph.leaf(1)
    graph.op("mul_mat", y, late, units=1)

    problem = believe(graph.build())

    assert problem.order.tolist() == [0, 2, 1, 3]
    assert problem.start.tolist() == [0, 1, 0, 3], "an upload behind the first node holds its place from the beginning"


def test_reading_one_tensor_in_two_slots_counts_two(graph):
    x = graph.leaf(1)
    graph.op("mul", x, x, units=1)

    problem = believe(graph.build())

    assert pairs(problem) == []
    assert problem.stop[0] == 2


def test_a_listed_op_may_take_any_source_it_is_the_last_reader_of_in_slot_order(graph):
    x, y = graph.leaf(1), graph.leaf(1)
    graph.op("add", x, y, units=1)

    assert pairs(believe(graph.build())) == [(0, 2), (1, 2)]


@pytest.mark.parametrize(
    "kind", ["mul_mat", "out_prod", "cont", "cpy", "acc", "set", "sum", "repeat", "repeat_back", "get_rows"]
)
def test_an_op_that_is_not_listed_takes_nothing(graph, kind):
    graph.op(kind, graph.leaf(1), units=1)

    assert pairs(believe(graph.build())) == []


@pytest.mark.parametrize("kind", ["ADD", "Rms_Norm_Back", "silu", "unary", "fill", "soft_max_back", "clamp"])
def test_kinds_are_compared_without_case_and_unary_functions_by_their_own_names(graph, kind):
    graph.op(kind, graph.leaf(1), units=1)

    assert pairs(believe(graph.build())) == [(0, 1)]


def test_clamp_joined_the_list_later(graph):
    graph.op("clamp", graph.leaf(1), units=1)
    program = graph.build()

    problem = ggml_belief.believe(program, Constraints.of(program), in_place=ggml_kinds.IN_PLACE_BEFORE_0_25_3)

    assert pairs(problem) == []


def test_of_a_kind_that_is_not_ggmls_only_declared_sources_are_offered(graph):
    x, y, z = graph.leaf(1), graph.leaf(1), graph.leaf(1)
    graph.builder.op("mine", (x, y, z), (graph.tensor(1),), in_place=((2, 0), (1, 0)))

    assert pairs(believe(graph.build())) == [(1, 3), (2, 3)], "in slot order"


def test_what_a_kind_of_ggmls_declares_beyond_the_list_is_not_offered(graph):
    x = graph.leaf(1)
    graph.builder.op("cross_entropy_loss_back", (x,), (graph.tensor(1),), in_place=((0, 0),))

    assert pairs(believe(graph.build())) == []


@pytest.mark.parametrize("pairs_known", [(), None])
def test_a_kind_that_is_not_ggmls_and_declares_nothing_takes_nothing(graph, pairs_known):
    x = graph.leaf(1)
    graph.builder.op("mine", (x,), (graph.tensor(1),), in_place=pairs_known)

    assert pairs(believe(graph.build())) == []


def test_each_result_of_a_foreign_kind_is_offered_what_is_declared_for_it(graph):
    x, y = graph.leaf(1), graph.leaf(1)
    graph.builder.op("mine", (x, y), (graph.tensor(1), graph.tensor(1)), in_place=((1, 0), (0, 1)))

    assert pairs(believe(graph.build())) == [(1, 2), (0, 3)]


@pytest.mark.parametrize("reader", ["twice", "later", "through a view", "pinned", "another layout"])
def test_a_declared_source_is_taken_only_where_ggml_would_take_one(graph, reader):
    x = graph.leaf(2 if reader == "another layout" else 1)
    other = graph.view(x, 1) if reader == "through a view" else x if reader == "twice" else graph.leaf(1)
    y = graph.tensor(1)
    graph.builder.op("mine", (x, other), (y,), in_place=((0, 0),))
    if reader == "later":
        graph.op("mul_mat", x, units=1)

    assert (0, y) not in pairs(believe(graph.build(), pins=[0] if reader == "pinned" else "none"))


def test_a_source_that_only_one_of_two_slots_declares_is_kept(graph):
    x = graph.leaf(1)
    graph.builder.op("mine", (x, x), (graph.tensor(1),), in_place=((0, 0),), meta={"src": [x]})

    assert pairs(believe(graph.build())) == [], "slots that `src` hides are read all the same"


def test_a_source_with_another_reader_to_come_is_not_taken(graph):
    x = graph.leaf(1)
    y = graph.op("scale", x, units=1)
    graph.op("add", x, y, units=1)

    assert pairs(believe(graph.build())) == [(0, 2), (1, 2)], "by the second reader, and not by the first"


def test_a_source_of_another_layout_is_not_taken(graph):
    graph.op("add", graph.leaf(2), graph.leaf(1), units=1)

    assert pairs(believe(graph.build())) == [(1, 2)]


def test_a_pin_moves_the_victim_to_source_one(graph):
    x, y = graph.leaf(1), graph.leaf(1)
    graph.op("soft_max_back", x, y, units=1)

    problem = believe(graph.build(), pins=[0])

    assert pairs(problem) == [(1, 2)]
    assert problem.stop.tolist() == [3, 3, 3]


def test_a_pinned_buffer_is_never_freed_nor_taken(graph):
    x = graph.leaf(1)
    y = graph.op("scale", x, units=1)
    graph.op("mul_mat", y, units=1)

    problem = believe(graph.build(), pins="all")

    assert pairs(problem) == []
    assert problem.stop.tolist() == [3, 3, 3]


def test_a_buffer_kept_elsewhere_is_not_taken(graph):
    graph.op("scale", graph.leaf(1), units=1)

    assert pairs(believe(graph.build(), own=[0])) == []


def test_a_view_keeps_its_root_until_the_view_is_read(graph):
    x = graph.leaf(1)
    y = graph.op("mul_mat", x, units=2)  # step 1
    v = graph.view(y, 1)  # step 2
    graph.op("mul_mat", x, units=1)  # step 3
    graph.op("scale", v, units=1)  # step 4

    problem = believe(graph.build())

    assert problem.stop[1] == 5
    assert pairs(problem) == [], "a view is never taken"


def test_a_view_that_is_never_read_keeps_its_root_for_ever(graph):
    y = graph.op("mul_mat", graph.leaf(1), units=1)
    graph.view(y, 1)
    graph.op("scale", y, units=1)
    graph.op("scale", graph.leaf(1), units=1)

    problem = believe(graph.build())

    assert problem.stop[1] == 6
    assert (1, 2) not in pairs(problem)


def test_a_view_of_a_view_counts_on_the_root(graph):
    y = graph.op("mul_mat", graph.leaf(1), units=4)  # step 1
    v = graph.view(y, 2)  # step 2
    w = graph.view(v, 1)  # step 3
    graph.op("mul_mat", w, units=1)  # step 4

    assert believe(graph.build()).stop[1] == 5


def test_a_result_in_an_existing_buffer_is_a_view_and_keeps_it(graph):
    x = graph.leaf(1)  # step 0
    m = graph.mutate("add_inplace", x)  # step 1
    graph.op("mul_mat", x, units=1)  # step 2
    graph.op("mul_mat", m, units=1)  # step 3

    assert believe(graph.build()).stop[0] == 4


def test_a_view_that_no_op_makes_is_taken_off_without_having_been_counted(graph):
    """The one true undercount: the root is freed though another view still has a reader."""
    y = graph.op("mul_mat", graph.leaf(1), units=1)  # step 1
    real = graph.view(y, 1)  # step 2: n_views 1
    none = graph.none_view(y, 1)
    graph.op("mul_mat", none, units=1)  # step 3: n_views 0, the root is freed
    graph.op("mul_mat", real, units=1)  # step 4 reads it all the same

    assert believe(graph.build()).stop[1] == 4


def test_the_host_is_no_reader(graph):
    x = graph.leaf(1)
    y = graph.op("mul_mat", x, units=1)  # step 1
    graph.op("mul_mat", y, units=1)  # step 2
    graph.read(y)  # step 3

    assert believe(graph.build()).stop[1] == 3
    assert believe(graph.build(), pins="reads").stop[1] == 4


def test_meta_src_is_what_counts_where_it_is_given(graph):
    x, y = graph.leaf(1), graph.leaf(1)
    z = graph.tensor(1)
    graph.builder.op("cpy", (x,), (z,), meta={"src": [x, y]})  # step 2
    graph.op("mul_mat", z, units=1)

    assert believe(graph.build()).stop.tolist()[:2] == [3, 3]


def test_side_effects_of_a_captured_op_are_no_views(graph):
    w, m = graph.leaf(1), graph.leaf(1)
    results = [graph.builder.value(name, buffer, "u8", (32,)) for name, buffer in (("w2", 0), ("m2", 1))]
    graph.builder.op("opt_step_adamw", (w, m), results, in_place=((0, 0), (1, 1)), meta={"src": [w, m]})
    graph.op("mul_mat", results[0], units=1)

    assert believe(graph.build()).stop.tolist()[:2] == [4, 3]


@pytest.mark.parametrize("src", ["file.py:12", {"a": 1}, [0.5], [True]])
def test_meta_src_that_is_no_list_of_values_is_somebody_elses(graph, src):
    x = graph.leaf(1)
    graph.builder.op("mul_mat", (x,), (graph.tensor(1),), meta={"src": src})

    assert believe(graph.build()).stop[0] == 2


def test_meta_src_that_names_no_value_is_refused_with_its_place(graph):
    x = graph.leaf(1)
    graph.builder.op("mul_mat", (x,), (graph.tensor(1),), meta={"src": [0, 7]})

    with pytest.raises(ModelError, match=r"ops\[1\]\.meta\.src\[1\]: value 7 does not exist; there are 2"):
        believe(graph.build())


def flagged(graph, value, flags):
    graph.builder._remember("values", value, {"flags": flags})


def test_a_parameter_the_host_fills_in_the_arena_is_placed_before_the_next_node(graph):
    x = graph.leaf(1)
    y = graph.tensor(1)
    w = graph.tensor(1)
    flagged(graph, w, ggml_belief.PARAM)
    graph.builder.op("host.write", (), (w,))  # step 1
    graph.builder.op("mul_mat", (x,), (y,))  # step 2
    graph.op("mul_mat", y, w, units=1)  # step 3

    problem = believe(graph.build())

    assert problem.order.tolist() == [0, 1, 2, 3]
    assert problem.start.tolist() == [0, 2, 3, 3]


def test_an_input_node_is_placed_after_the_leafs_and_before_all_nodes(graph):
    x = graph.leaf(1)
    y = graph.op("mul_mat", x, units=1)
    z = graph.op("scale", y, units=1)
    flagged(graph, z, ggml_belief.INPUT)

    problem = believe(graph.build())

    assert problem.order.tolist() == [0, 2, 1]
    assert problem.start.tolist() == [0, 1, 0]
    assert pairs(problem) == []


def test_a_persistent_buffer_in_the_arena_lives_throughout_and_is_not_taken(graph):
    w = graph.tensor(1, role=Role.PARAMETER)
    y = graph.op("scale", w, units=1)
    graph.op("scale", y, units=1)

    problem = believe(graph.build(), own=[])

    assert lifetimes(problem)[0] == (0, 2)
    assert pairs(problem) == [(1, 2)]


def test_a_buffer_nothing_touches_has_no_lifetime_and_no_place(graph):
    graph.tensor(1)
    graph.leaf(1)

    problem = believe(graph.build())

    assert lifetimes(problem)[0] == (0, 0)
    assert problem.order.tolist() == [1, 0]


def test_the_constraints_stand_in_the_problem(graph):
    graph.leaf(1)
    graph.leaf(1)

    problem = believe(graph.build(), pins=[0], own=[1], fixed={0: 64})

    assert (problem.pinned.tolist(), problem.own.tolist(), problem.fixed) == ([True, False], [False, True], {0: 64})
