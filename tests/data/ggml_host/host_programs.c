// Small programs against ggml's public functions: `host_programs NAME wrong|right`. Each has one fault of its host
// (an upload, a read, a wait, memory given back) and a right twin. Written from ggml's headers and documentation
// before there was a recorder; tests/unit/systems/ggml/recording says what must be found.
#include "ggml_api.h"
#include <malloc.h>

enum { N = 64, NODES = 256 };

static bool wrong;
static backend * cpu;
static float twos[4 * N], read_back[4 * N];

static context * room(void) {
    struct ggml_init_params params = { 256 * ggml_tensor_overhead() + 4 * ggml_graph_overhead_custom(NODES, true), NULL, true };
    return ggml_init(params);
}

static tensor * leaf(context * ctx, const char * name, int64_t n) {
    tensor * made = ggml_new_tensor_1d(ctx, F32, n);
    ggml_set_name(made, name);
    ggml_set_input(made);
    return made;
}

static tensor * weight(context * ctx, const char * name, int64_t n) {
    tensor * made = ggml_new_tensor_1d(ctx, F32, n);
    ggml_set_name(made, name);
    return made;
}

static void upload(tensor * to) { ggml_backend_tensor_set(to, twos, 0, ggml_nbytes(to)); }

static void upload_half(tensor * to) { ggml_backend_tensor_set(to, twos, 0, ggml_nbytes(to) / 2); }

static void show(const char * name, const tensor * from) {
    ggml_backend_tensor_get(from, read_back, 0, ggml_nbytes(from));
    printf("%s %g\n", name, read_back[0]);
}

static void compute(graph * g) { ggml_backend_graph_compute(cpu, g); }

static planner * plan(graph * g) {
    planner * made = ggml_gallocr_new(ggml_backend_cpu_buffer_type());
    ggml_gallocr_alloc_graph(made, g);
    return made;
}

// x is read by the first node alone, so that later nodes may take its bytes. `inner` is a node that later twos overwrite.
struct chain { context * ctx; graph * g; tensor * x, * inner, * out; };

static struct chain chain_of(int64_t n) {
    struct chain c;
    c.ctx = room();
    c.x = leaf(c.ctx, "x", n);
    tensor * doubled = ggml_cont(c.ctx, ggml_scale(c.ctx, c.x, 2));
    c.inner = ggml_cont(c.ctx, ggml_sqr(c.ctx, doubled));
    ggml_set_name(c.inner, "inner");
    tensor * last = c.inner;
    for (int k = 0; k < 4; k++) {
        last = ggml_cont(c.ctx, ggml_scale(c.ctx, last, 3));
    }
    c.out = ggml_cont(c.ctx, last);
    ggml_set_name(c.out, "out");
    ggml_set_output(c.out);
    c.g = ggml_new_graph_custom(c.ctx, NODES, false);
    ggml_build_forward_expand(c.g, c.out);
    return c;
}

static void input_once(void) {
    struct chain c = chain_of(N);
    planner * p = plan(c.g);
    for (int run = 0; run < 3; run++) {
        if (run == 0 || !wrong) {
            upload(c.x);
        }
        compute(c.g);
        show("out", c.out);
    }
    ggml_gallocr_free(p);
}

// A planner for each run, whose memory lies where that of the one before lay, so that no tensor of the graph changes.
static void planned_where_it_lay(void) {
    static float many[1 << 16] = { 2 };
    float first;
    mallopt(M_MMAP_THRESHOLD, sizeof(many));
    struct chain c = chain_of(1 << 16);
    for (int run = 0; run < 3; run++) {
        planner * p = plan(c.g);
        ggml_backend_tensor_set(c.x, many, 0, sizeof(many));
        compute(c.g);
        ggml_backend_tensor_get(c.out, &first, 0, sizeof(first));
        printf("out %g\n", first);
        ggml_gallocr_free(p);
        for (tensor * t = ggml_get_first_tensor(c.ctx); t; t = ggml_get_next_tensor(c.ctx, t)) {
            memset((char *) t + 8, 0, sizeof(void *));   // buffer
            memset((char *) t + 248, 0, sizeof(void *)); // data
        }
    }
}

static void half_upload(void) {
    struct chain c = chain_of(N);
    planner * p = plan(c.g);
    for (int run = 0; run < 3; run++) {
        (run && wrong ? upload_half : upload)(c.x);
        compute(c.g);
        show("out", c.out);
    }
    ggml_gallocr_free(p);
}

static void output_unflagged(void) {
    struct chain c = chain_of(N);
    if (!wrong) {
        ggml_set_output(c.inner);
    }
    planner * p = plan(c.g);
    upload(c.x);
    compute(c.g);
    show("out", c.out);
    show("inner", c.inner);
    ggml_gallocr_free(p);
}

static void output_flag_too_late(void) {
    struct chain c = chain_of(N);
    if (!wrong) {
        ggml_set_output(c.inner);
    }
    planner * p = plan(c.g);
    ggml_set_output(c.inner);
    for (int run = 0; run < 2; run++) {
        ggml_gallocr_alloc_graph(p, c.g);
        upload(c.x);
        compute(c.g);
        show("inner", c.inner);
    }
    ggml_gallocr_free(p);
}

static void input_read_back(void) {
    struct chain c = chain_of(N);
    if (!wrong) {
        ggml_set_output(c.x);
    }
    planner * p = plan(c.g);
    upload(c.x);
    compute(c.g);
    show("x", c.x);
    ggml_gallocr_free(p);
}

static void view_unflagged(void) {
    struct chain c = chain_of(N);
    tensor * part = ggml_view_1d(c.ctx, c.inner, N / 2, 0);
    ggml_set_name(part, "part");
    if (!wrong) {
        ggml_set_output(c.inner);
    }
    planner * p = plan(c.g);
    upload(c.x);
    compute(c.g);
    ggml_backend_tensor_get(c.inner, read_back, 0, N / 2 * sizeof(float)); // the bytes of the view
    printf("part %g\n", read_back[0]);
    ggml_gallocr_free(p);
}

static void copied_unflagged(void) {
    struct chain c = chain_of(N);
    context * kept = room();
    tensor * copy = weight(kept, "copy", N);
    buffer * memory = ggml_backend_alloc_ctx_tensors_from_buft(kept, ggml_backend_cpu_buffer_type());
    if (!wrong) {
        ggml_set_output(c.inner);
    }
    planner * p = plan(c.g);
    upload(c.x);
    compute(c.g);
    ggml_backend_tensor_copy(c.inner, copy);
    show("copy", copy);
    ggml_gallocr_free(p);
    ggml_backend_buffer_free(memory);
}

static void gradient_unflagged(void) {
    context * ctx = room(), * kept = room();
    tensor * w = weight(kept, "w", N), * bias = weight(kept, "bias", N);
    ggml_set_param(w);
    ggml_set_param(bias);
    buffer * memory = ggml_backend_alloc_ctx_tensors_from_buft(kept, ggml_backend_cpu_buffer_type());
    upload(w);
    upload(bias);
    tensor * x = leaf(ctx, "x", N);
    tensor * loss = ggml_sum(ctx, ggml_sqr(ctx, ggml_mul(ctx, ggml_add(ctx, ggml_mul(ctx, w, x), bias), x)));
    ggml_set_loss(loss);
    ggml_set_output(loss);
    graph * g = ggml_new_graph_custom(ctx, NODES, true);
    ggml_build_forward_expand(g, loss);
    ggml_build_backward_expand(ctx, g, NULL);
    tensor * gradient = ggml_graph_get_grad(g, bias);
    ggml_set_name(gradient, "gradient of bias");
    ggml_set_output(ggml_graph_get_grad(g, w));
    if (!wrong) {
        ggml_set_output(gradient);
    }
    planner * p = plan(g);
    ggml_graph_reset(g);
    upload(x);
    compute(g);
    show("w", ggml_graph_get_grad(g, w));
    show("bias", gradient);
    ggml_gallocr_free(p);
    ggml_backend_buffer_free(memory);
}

static void seed_once(void) {
    context * ctx = room(), * kept = room();
    tensor * w = ggml_new_tensor_2d(kept, F32, 4, 2);
    tensor * v = ggml_new_tensor_2d(kept, F32, 4, 2);
    ggml_set_param(w);
    ggml_set_param(v);
    buffer * memory = ggml_backend_alloc_ctx_tensors_from_buft(kept, ggml_backend_cpu_buffer_type());
    upload(w);
    upload(v);
    tensor * x = ggml_new_tensor_2d(ctx, F32, 4, 2);
    tensor * loss = ggml_sum(ctx, ggml_sqr(ctx, ggml_add(ctx, ggml_mul_mat(ctx, w, x), ggml_mul_mat(ctx, v, x))));
    ggml_set_loss(loss);
    ggml_set_output(loss);
    graph * g = ggml_new_graph_custom(ctx, NODES, true);
    ggml_build_forward_expand(g, loss);
    ggml_build_backward_expand(ctx, g, NULL);
    ggml_set_output(ggml_graph_get_grad(g, w));
    ggml_set_output(ggml_graph_get_grad(g, v));
    planner * p = plan(g);
    for (int run = 0; run < 3; run++) {
        if (run == 0 || !wrong) {
            ggml_graph_reset(g);
        }
        upload(x);
        compute(g);
        show("gradient", ggml_graph_get_grad(g, w));
    }
    ggml_gallocr_free(p);
    ggml_backend_buffer_free(memory);
}

static void planned_over_then_run(void) {
    struct chain one = chain_of(N), two = chain_of(N);
    planner * p = plan(one.g);
    upload(one.x);
    compute(one.g);
    show("one", one.out);
    ggml_gallocr_alloc_graph(p, two.g);
    upload(two.x);
    compute(two.g);
    show("two", two.out);
    if (!wrong) {
        ggml_gallocr_alloc_graph(p, one.g);
        upload(one.x);
    }
    compute(one.g);
    show("one", one.out);
    ggml_gallocr_free(p);
}

static void planned_over_then_read(void) {
    struct chain one = chain_of(N), two = chain_of(N);
    planner * p = plan(one.g);
    ggml_gallocr_alloc_graph(p, two.g);
    upload(one.x);
    compute(one.g);
    if (!wrong) {
        show("one", one.out);
    }
    upload(two.x);
    compute(two.g);
    show("two", two.out);
    if (wrong) {
        show("one", one.out);
    }
    ggml_gallocr_free(p);
}

static void both_uploaded_first(void) {
    struct chain one = chain_of(N), two = chain_of(N);
    planner * p = plan(one.g);
    ggml_gallocr_alloc_graph(p, two.g);
    upload(one.x);
    if (wrong) {
        upload(two.x);
    }
    compute(one.g);
    show("one", one.out);
    if (!wrong) {
        upload(two.x);
    }
    compute(two.g);
    show("two", two.out);
    ggml_gallocr_free(p);
}

static void replaced_then_run(void) {
    struct chain one = chain_of(N), two = chain_of(4 * N);
    planner * p = plan(one.g), * q = wrong ? p : ggml_gallocr_new(ggml_backend_cpu_buffer_type());
    upload(one.x);
    compute(one.g);
    show("one", one.out);
    ggml_gallocr_alloc_graph(q, two.g); // more bytes: the buffer of `one` is given back
    upload(two.x);
    compute(two.g);
    show("two", two.out);
    if (!wrong) {
        upload(one.x);
    }
    compute(one.g);
}

static void replaced_then_read(void) {
    struct chain one = chain_of(N), two = chain_of(4 * N);
    planner * p = plan(one.g), * q = wrong ? p : ggml_gallocr_new(ggml_backend_cpu_buffer_type());
    upload(one.x);
    compute(one.g);
    ggml_gallocr_alloc_graph(q, two.g);
    upload(two.x);
    compute(two.g);
    show("two", two.out);
    show("one", one.out);
}

static void weights_freed(void) {
    context * kept = room();
    tensor * w = weight(kept, "w", N);
    buffer * memory = ggml_backend_alloc_ctx_tensors_from_buft(kept, ggml_backend_cpu_buffer_type());
    upload(w);
    context * ctx = room();
    tensor * x = leaf(ctx, "x", N), * out = ggml_mul(ctx, x, w);
    ggml_set_output(out);
    graph * g = ggml_new_graph_custom(ctx, NODES, false);
    ggml_build_forward_expand(g, out);
    planner * p = plan(g);
    upload(x);
    compute(g);
    show("out", out);
    if (wrong) {
        ggml_backend_buffer_free(memory);
    }
    upload(x);
    compute(g);
    show("out", out);
    ggml_gallocr_free(p);
}

static void rebuilt_without_upload(void) {
    planner * p = ggml_gallocr_new(ggml_backend_cpu_buffer_type());
    for (int run = 0; run < 3; run++) {
        struct chain c = chain_of(N);
        ggml_gallocr_alloc_graph(p, c.g);
        if (run == 0 || !wrong) {
            upload(c.x);
        }
        compute(c.g);
        show("out", c.out);
        ggml_free(c.ctx);
    }
    ggml_gallocr_free(p);
}

static void state_recycled(void) { // written by the graph, kept in memory that another graph is planned into
    context * ctx = room();
    tensor * s = leaf(ctx, "state", N), * x = leaf(ctx, "x", N);
    ggml_set_output(s);
    tensor * next = ggml_add(ctx, s, x);
    graph * g = ggml_new_graph_custom(ctx, NODES, false);
    ggml_build_forward_expand(g, ggml_cpy(ctx, next, s));
    struct chain other = chain_of(N);
    planner * p = plan(other.g), * q = wrong ? p : ggml_gallocr_new(ggml_backend_cpu_buffer_type());
    ggml_gallocr_alloc_graph(q, g);
    ggml_backend_tensor_memset(s, 0, 0, ggml_nbytes(s));
    for (int run = 0; run < 3; run++) {
        upload(x);
        compute(g);
        show("state", s);
        upload(other.x);
        compute(other.g);
        show("out", other.out);
    }
}

static void read_while_computing(void) {
    struct chain c = chain_of(N);
    planner * p = plan(c.g);
    upload(c.x);
    ggml_backend_graph_compute_async(cpu, c.g);
    if (!wrong) {
        ggml_backend_synchronize(cpu);
    }
    show("out", c.out);
    ggml_gallocr_free(p);
}

static void waited_by_another_run(void) {
    struct chain c = chain_of(N), d = chain_of(N);
    planner *p = plan(c.g), *q = plan(d.g);
    upload(c.x);
    upload(d.x);
    ggml_backend_graph_compute_async(cpu, c.g);
    ggml_backend_graph_compute(cpu, d.g);
    show("out", c.out);
    ggml_gallocr_free(p);
    ggml_gallocr_free(q);
}

static void upload_while_computing(void) {
    struct chain c = chain_of(N);
    planner * p = plan(c.g);
    for (int run = 0; run < 2; run++) {
        upload(c.x);
        ggml_backend_graph_compute_async(cpu, c.g);
        if (run || !wrong) {
            ggml_backend_synchronize(cpu);
        }
    }
    show("out", c.out);
    ggml_gallocr_free(p);
}

static void second_context_unflagged(void) {
    struct chain one = chain_of(N), two = chain_of(N);
    ggml_set_output(one.inner);
    if (!wrong) {
        ggml_set_output(two.inner);
    }
    planner * p = plan(one.g), * q = plan(two.g);
    upload(one.x);
    upload(two.x);
    compute(one.g);
    compute(two.g);
    show("one", one.inner);
    show("two", two.inner);
    ggml_gallocr_free(p);
    ggml_gallocr_free(q);
}

static sched * scheduler(graph * g) {
    sched * made = ggml_backend_sched_new(&cpu, NULL, 1, NODES, false, true);
    ggml_backend_sched_alloc_graph(made, g);
    return made;
}

static void scheduled_input_once(void) {
    struct chain c = chain_of(N);
    sched * s = scheduler(c.g);
    for (int run = 0; run < 3; run++) {
        if (run == 0 || !wrong) {
            upload(c.x);
        }
        ggml_backend_sched_graph_compute(s, c.g);
        show("out", c.out);
    }
    ggml_backend_sched_free(s);
}

static void scheduled_read_while_computing(void) { // a scheduler has taken its inputs when it comes back, not computed
    struct chain c = chain_of(N);
    sched * s = scheduler(c.g);
    for (int run = 0; run < 2; run++) {
        upload(c.x);
        ggml_backend_sched_graph_compute_async(s, c.g);
    }
    if (!wrong) {
        ggml_backend_sched_synchronize(s);
    }
    show("out", c.out);
    ggml_backend_sched_free(s);
}

// A scheduler that has not run yet, where one lay before: waiting for it is waiting for the backends that it has itself.
static void waited_for_another_scheduler(void) {
    struct chain once = chain_of(N), c = chain_of(N);
    backend * other = ggml_backend_cpu_init();
    planner * p = plan(c.g);
    sched * s = scheduler(once.g);
    upload(once.x);
    ggml_backend_sched_graph_compute(s, once.g);
    ggml_backend_sched_free(s);
    s = ggml_backend_sched_new(wrong ? &other : &cpu, NULL, 1, NODES, false, true);
    upload(c.x);
    ggml_backend_graph_compute_async(cpu, c.g);
    ggml_backend_sched_synchronize(s);
    show("out", c.out);
    ggml_backend_sched_free(s);
    ggml_backend_free(other);
    ggml_gallocr_free(p);
}

static void reset_and_plan(sched * s, graph * g) {
    ggml_backend_sched_reset(s);
    ggml_backend_sched_alloc_graph(s, g);
}

static void compute_by(sched * s, graph * g) { ggml_backend_sched_graph_compute(s, g); }

static void next_input_over_result(void) { // the reset gives the result's memory up, and the next batch is laid there
    struct chain one = chain_of(N), most = chain_of(4 * N);
    sched * s = scheduler(most.g); // so that no buffer is made anew
    context * ctx = room();
    tensor * y = leaf(ctx, "y", 4 * N), * z = leaf(ctx, "z", 4 * N), * last = ggml_add(ctx, y, z);
    graph * next = ggml_new_graph_custom(ctx, NODES, false);
    ggml_set_output(last);
    ggml_build_forward_expand(next, last);
    reset_and_plan(s, one.g);
    upload(one.x);
    compute_by(s, one.g);
    if (!wrong) {
        show("one", one.out);
    }
    reset_and_plan(s, next);
    upload(y);
    upload(z);
    if (wrong) {
        show("one", one.out);
    }
    compute_by(s, next);
    show("last", last);
    ggml_backend_sched_free(s);
}

static void reset_unless_wrong(sched * s, graph * update) {
    (void) update;
    if (!wrong) {
        ggml_backend_sched_reset(s);
    }
}

static void computed_after(void (*asked)(sched *, graph *)) { // a graph; then another, by the scheduler that holds the first
    context * kept = room(), * ctx = room();
    tensor * w = weight(kept, "w", N);
    ggml_backend_alloc_ctx_tensors_from_buft(kept, ggml_backend_cpu_buffer_type());
    upload(w);
    tensor * out = ggml_cont(ctx, ggml_scale(ctx, w, 3));
    ggml_set_output(out);
    graph * forward = ggml_new_graph_custom(ctx, NODES, false), * update = ggml_new_graph_custom(ctx, NODES, false);
    ggml_build_forward_expand(forward, out);
    ggml_build_forward_expand(update, ggml_cpy(ctx, ggml_scale(ctx, w, 10), w));
    sched * s = scheduler(forward);
    compute_by(s, forward);
    show("out", out);
    asked(s, update);
    compute_by(s, update);
    show("w", w);
    ggml_backend_sched_free(s);
}

// A scheduler that holds a graph computes that one, whichever it is given.
static void computed_another_than_asked(void) { computed_after(reset_unless_wrong); }

// Tensors of before a reset keep their addresses, and what is planned behind it does not know of them.
static void extended_behind_a_reset(void) {
    struct chain c = chain_of(N);
    sched * s = scheduler(c.g);
    upload(c.x);
    compute_by(s, c.g);
    show("out", c.out);
    if (!wrong) {
        ggml_free(c.ctx);
        c = chain_of(N);
    }
    tensor * more = ggml_add(c.ctx, ggml_cont(c.ctx, ggml_scale(c.ctx, c.x, 5)), c.out);
    ggml_set_name(more, "more");
    ggml_set_output(more);
    ggml_build_forward_expand(c.g, more);
    reset_and_plan(s, c.g);
    upload(c.x);
    compute_by(s, c.g);
    show("more", more);
    ggml_backend_sched_free(s);
}

static void computed_before_it_was_planned(void) { // x has memory from the call on that computes: nobody can have filled it
    struct chain c = chain_of(N);
    sched * s = ggml_backend_sched_new(&cpu, NULL, 1, NODES, false, true);
    if (!wrong) {
        ggml_backend_sched_alloc_graph(s, c.g);
        upload(c.x);
    }
    compute_by(s, c.g);
    show("out", c.out);
    ggml_backend_sched_free(s);
}

static void trained_without_new_labels(void) { // each step lays its graph out anew, the labels with it
    enum { SQUARES = 3 };
    context * kept = room();
    tensor * w = weight(kept, "w", N);
    ggml_set_param(w);
    ggml_backend_alloc_ctx_tensors_from_buft(kept, ggml_backend_cpu_buffer_type());
    upload(w);
    sched * s = ggml_backend_sched_new(&cpu, NULL, 1, 4 * NODES, false, true);
    opt * trained = ggml_opt_init(ggml_opt_default_params(s, SQUARES));
    for (int step = 0; step < 2; step++) {
        context * ctx = room();
        tensor * x = leaf(ctx, "x", N), * out = ggml_mul(ctx, x, w);
        graph * g = ggml_new_graph_custom(ctx, NODES, true);
        ggml_set_output(out);
        ggml_build_forward_expand(g, out);
        ggml_opt_prepare_alloc(trained, ctx, g, x, out);
        ggml_opt_alloc(trained, true);
        upload(x);
        if (step == 0 || !wrong) {
            upload(ggml_opt_labels(trained));
        }
        tensor * loss = ggml_opt_loss(trained);
        ggml_opt_eval(trained, NULL);
        show("loss", loss);
        ggml_free(ctx);
    }
    ggml_opt_free(trained);
    ggml_backend_sched_free(s);
}

static void run_again_behind_a_reset(void) { // legal by its numbers: all tensors lie as the first plan laid them
    struct chain c = chain_of(N);
    sched * s = scheduler(c.g);
    for (int run = 0; run < 3; run++) {
        upload(c.x);
        compute_by(s, c.g);
        show("out", c.out);
        ggml_backend_sched_reset(s);
    }
    ggml_backend_sched_free(s);
}

static void pipelined(void) { // two backends, four copies in turn; nobody waits in between
    backend * both[] = { ggml_backend_cpu_init(), cpu };
    sched * s = ggml_backend_sched_new(both, NULL, 2, NODES, true, false);
    for (int run = 0; run < 5; run++) {
        struct chain c = chain_of(N);
        ggml_backend_sched_reset(s);
        ggml_backend_sched_set_tensor_backend(s, c.inner, both[0]);
        ggml_backend_sched_alloc_graph(s, c.g);
        upload(c.x);
        ggml_backend_sched_graph_compute_async(s, c.g);
    }
    ggml_backend_sched_synchronize(s);
    ggml_backend_sched_free(s);
}

static void reserved_then_more(void) { // not wrong: what is reserved is too small for the second graph
    struct chain one = chain_of(N), two = chain_of(4 * N);
    sched * s = ggml_backend_sched_new(&cpu, NULL, 1, NODES, false, true);
    ggml_backend_sched_reserve(s, chain_of(N).g);
    for (int k = 0; k < 2; k++) {
        struct chain c = k ? two : one;
        reset_and_plan(s, c.g);
        upload(c.x);
        compute_by(s, c.g);
        show("out", c.out);
    }
    ggml_backend_sched_free(s);
}

static void ask_for_its_size(sched * s, graph * update) {
    size_t needed = 0;
    ggml_backend_sched_reserve_size(s, update, &needed);
}

// right: who asks what a graph needs has the scheduler give up the one that it holds
static void sized_then_computed(void) { computed_after(ask_for_its_size); }

static void read_what_was_uploaded(void) { // right: its bytes were taken before it was laid there anew
    struct chain one = chain_of(N), two = chain_of(N);
    planner * p = plan(one.g);
    ggml_gallocr_alloc_graph(p, two.g);
    upload(one.x);
    compute(one.g);
    show("one", one.out);
    upload(two.x);
    upload(one.x);
    show("x", one.x);
    compute(one.g);
    show("one", one.out);
    upload(two.x);
    compute(two.g);
    show("two", two.out);
    upload(one.x);
    show("x", one.x);
    ggml_gallocr_free(p);
}

static void scheduled_unflagged(void) {
    struct chain c = chain_of(N);
    if (!wrong) {
        ggml_set_output(c.inner);
    }
    sched * s = scheduler(c.g);
    upload(c.x);
    ggml_backend_sched_graph_compute(s, c.g);
    show("inner", c.inner);
    ggml_backend_sched_free(s);
}

// Right programs that look like wrong twos: no twin.
static void weights_in_the_plan(void) { // flagged OUTPUT, a leaf keeps its bytes and is uploaded once
    context * ctx = room();
    tensor * w = leaf(ctx, "w", N), * x = leaf(ctx, "x", N);
    ggml_set_output(w);
    tensor * out = ggml_cont(ctx, ggml_mul(ctx, ggml_mul(ctx, w, x), x));
    ggml_set_output(out);
    graph * g = ggml_new_graph_custom(ctx, NODES, false);
    ggml_build_forward_expand(g, out);
    planner * p = plan(g);
    upload(w);
    for (int run = 0; run < 3; run++) {
        upload(x);
        compute(g);
        show("out", out);
    }
    ggml_gallocr_free(p);
}

static void state_in_the_plan(void) { // a state that lies in the plan's memory, is written by the graph and kept
    context * ctx = room();
    tensor * s = leaf(ctx, "state", N), * x = leaf(ctx, "x", N);
    ggml_set_output(s);
    tensor * next = ggml_add(ctx, s, x);
    graph * g = ggml_new_graph_custom(ctx, NODES, false);
    ggml_build_forward_expand(g, ggml_cpy(ctx, next, s));
    planner * p = plan(g);
    ggml_backend_tensor_memset(s, 0, 0, ggml_nbytes(s));
    for (int run = 0; run < 3; run++) {
        upload(x);
        compute(g);
        show("state", s);
    }
    ggml_gallocr_free(p);
}

static void written_by_pointer(void) { // the host may write through the tensor's own pointer
    struct chain c = chain_of(N);
    planner * p = plan(c.g);
    for (int run = 0; run < 3; run++) {
        memcpy(ggml_get_data_f32(c.x), twos, sizeof(float) * N);
        compute(c.g);
        show("out", c.out);
    }
    ggml_gallocr_free(p);
}

static void first_by_call_then_by_pointer(void) {
    struct chain c = chain_of(N);
    planner * p = plan(c.g);
    upload(c.x);
    for (int run = 0; run < 3; run++) {
        compute(c.g);
        show("out", c.out);
        memcpy(ggml_get_data_f32(c.x), twos, sizeof(float) * N);
    }
    ggml_gallocr_free(p);
}

static void read_after_scale_inplace(void) { // legal, and rarely meant: `a` has the scaled numbers
    context * ctx = room();
    tensor * a = leaf(ctx, "a", N);
    tensor * half = ggml_scale_inplace(ctx, a, 0.5f);
    tensor * out = ggml_add(ctx, half, a);
    ggml_set_output(out);
    graph * g = ggml_new_graph_custom(ctx, NODES, false);
    ggml_build_forward_expand(g, out);
    planner * p = plan(g);
    upload(a);
    compute(g);
    show("out", out);
    ggml_gallocr_free(p);
}

static void killed(void) { // ends in the middle of its second run's work
    struct chain c = chain_of(N);
    plan(c.g);
    upload(c.x);
    compute(c.g);
    show("out", c.out);
    fflush(stdout);
    compute(c.g);
    abort();
}

#define ROW(name) { #name, name }
static const struct { const char * name; void (* run)(void); } PROGRAMS[] = {
    ROW(input_once), ROW(planned_where_it_lay), ROW(half_upload), ROW(output_unflagged), ROW(output_flag_too_late), ROW(input_read_back),
    ROW(view_unflagged), ROW(copied_unflagged), ROW(gradient_unflagged), ROW(seed_once), ROW(planned_over_then_run),
    ROW(planned_over_then_read), ROW(both_uploaded_first), ROW(replaced_then_run), ROW(replaced_then_read),
    ROW(weights_freed), ROW(rebuilt_without_upload), ROW(state_recycled), ROW(read_while_computing),
    ROW(upload_while_computing), ROW(second_context_unflagged), ROW(scheduled_input_once), ROW(scheduled_unflagged),
    ROW(scheduled_read_while_computing), ROW(waited_for_another_scheduler),
    ROW(next_input_over_result), ROW(computed_another_than_asked), ROW(extended_behind_a_reset), ROW(computed_before_it_was_planned),
    ROW(trained_without_new_labels), ROW(reserved_then_more),
    ROW(run_again_behind_a_reset), ROW(pipelined), ROW(read_what_was_uploaded), ROW(sized_then_computed),
    ROW(weights_in_the_plan), ROW(state_in_the_plan), ROW(written_by_pointer), ROW(first_by_call_then_by_pointer),
    ROW(read_after_scale_inplace), ROW(waited_by_another_run), ROW(killed),
};

int main(int count, char ** words) {
    for (int k = 0; k < 4 * N; k++) {
        twos[k] = 2;
    }
    wrong = count > 2 && !strcmp(words[2], "wrong");
    cpu = ggml_backend_cpu_init();
    for (size_t k = 0; count > 1 && k < sizeof(PROGRAMS) / sizeof(*PROGRAMS); k++) {
        if (!strcmp(words[1], PROGRAMS[k].name)) {
            PROGRAMS[k].run();
            return 0;
        }
    }
    return 2;
}
