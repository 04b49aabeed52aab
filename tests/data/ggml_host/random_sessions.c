// A random program against ggml's public functions: `random_sessions SEED FAULT apart|planned`. It prints what its
// host reads. FAULT 0: right by ggml's rules. 1: one upload is left out; 2: one tensor that is read is not flagged;
// 3: the graphs of a shared planner are uploaded first and run then. `apart` gives every tensor memory of its own:
// the numbers a right program has under any plan.
#include "ggml_api.h"

enum { N = 16, NODES = 512, MOST = 48 };

static uint64_t state;

static uint32_t drawn(uint32_t below) {
    state = state * 6364136223846793005ull + 1442695040888963407ull;
    return (uint32_t) (state >> 33) % below;
}

struct part {
    context * ctx;
    graph * g;
    tensor * inputs[4], * once, * kept, * reads[3];
    int n_inputs, n_reads;
    uint64_t shape; // the generator's state when its graph is drawn: equal for each making
    bool trains;
};

static backend * cpu;
static int fault, dropped_run, dropped_input;
static bool apart;
static float data[4 * N];

static context * room(void) {
    struct ggml_init_params params = { NODES * ggml_tensor_overhead() + 2 * ggml_graph_overhead_custom(NODES, true), NULL, true };
    return ggml_init(params);
}

static tensor * op(context * ctx, tensor * a, tensor * b) {
    switch (drawn(6)) {
        case 0: return ggml_add(ctx, a, b);
        case 1: return ggml_scale(ctx, a, 0.5f);
        case 2: return ggml_cont(ctx, ggml_add(ctx, a, b));
        case 3: return ggml_scale(ctx, ggml_mul(ctx, a, b), 0.25f);
        case 4: return ggml_cont(ctx, a);
        default: return ggml_add(ctx, ggml_scale(ctx, b, 0.75f), a);
    }
}

// Draws the graph; `weight` and `memory` lie in buffers of their own and outlive it.
static void make(struct part * p, tensor * weight, tensor * memory, bool unflagged) {
    state = p->shape;
    p->ctx = room();
    p->n_inputs = 1 + (int) drawn(3);
    tensor * pool[MOST];
    int count = 0;
    for (int k = 0; k < p->n_inputs; k++) {
        pool[count++] = p->inputs[k] = ggml_new_tensor_1d(p->ctx, F32, N);
        ggml_set_input(p->inputs[k]);
    }
    pool[count++] = weight;
    p->once = p->kept = NULL;
    if (drawn(3) == 0) { // uploaded once: flagged, so that it keeps its bytes
        pool[count++] = p->once = ggml_new_tensor_1d(p->ctx, F32, N);
        ggml_set_output(p->once);
    }
    if (drawn(3) == 0) { // a state in the plan's memory
        p->kept = ggml_new_tensor_1d(p->ctx, F32, N);
        ggml_set_output(p->kept);
    }
    tensor * all = weight; // each leaf is read, or it would have no place
    for (int k = 0; k < count; k++) {
        all = pool[k] == weight ? all : ggml_add(p->ctx, ggml_scale(p->ctx, pool[k], 0.5f), all);
    }
    pool[count++] = all;
    const int ops = 4 + (int) drawn(16);
    p->n_reads = 0;
    p->g = ggml_new_graph_custom(p->ctx, NODES, true);
    for (int k = 0; k < ops; k++) {
        tensor * made = op(p->ctx, pool[drawn((uint32_t) count)], pool[drawn((uint32_t) count)]);
        pool[count++] = made;
        if (p->n_reads < 2 && drawn(4) == 0) {
            p->reads[p->n_reads++] = made;
        }
    }
    tensor * last = ggml_add(p->ctx, pool[count - 1], all);
    pool[count++] = p->reads[p->n_reads++] = last;
    p->trains = drawn(4) == 0 && !p->kept;
    for (int k = 0; k < p->n_reads; k++) {
        if (!unflagged || k) {
            ggml_set_output(p->reads[k]);
        }
        ggml_build_forward_expand(p->g, p->reads[k]);
    }
    if (p->trains) {
        tensor * loss = ggml_sum(p->ctx, ggml_mul(p->ctx, pool[count - 1], weight));
        ggml_set_loss(loss);
        ggml_set_output(loss);
        ggml_build_forward_expand(p->g, loss);
        ggml_build_backward_expand(p->ctx, p->g, NULL);
        ggml_set_output(ggml_graph_get_grad(p->g, weight));
    }
    if (p->kept) {
        tensor * next = ggml_add(p->ctx, ggml_scale(p->ctx, p->kept, 0.5f), pool[count - 1]);
        ggml_build_forward_expand(p->g, ggml_cpy(p->ctx, next, p->kept));
    }
    if (memory) {
        ggml_build_forward_expand(p->g, ggml_cpy(p->ctx, ggml_add(p->ctx, ggml_scale(p->ctx, memory, 0.5f), pool[count - 1]), memory));
    }
}

static void write_to(tensor * to, int turn, bool by_pointer) {
    for (int k = 0; k < N; k++) {
        data[k] = 0.25f + 0.125f * (float) ((k + turn) % 7);
    }
    if (by_pointer) {
        memcpy(ggml_get_data_f32(to), data, sizeof(float) * N);
    } else if (turn % 3 == 0) {
        ggml_backend_tensor_set(to, data, 0, sizeof(float) * N / 2);
        ggml_backend_tensor_set(to, data + N / 2, sizeof(float) * N / 2, sizeof(float) * N / 2);
    } else {
        ggml_backend_tensor_set(to, data, 0, sizeof(float) * N);
    }
}

static void upload(struct part * p, int turn, bool by_pointer) {
    for (int k = 0; k < p->n_inputs; k++) {
        if (!(fault == 1 && turn == dropped_run && k == dropped_input % p->n_inputs)) {
            write_to(p->inputs[k], turn + k, by_pointer);
        }
    }
    if (p->trains) {
        ggml_graph_reset(p->g);
    }
}

static void first_upload(struct part * p) {
    if (p->once) {
        write_to(p->once, 2, false);
    }
    if (p->kept) {
        ggml_backend_tensor_memset(p->kept, 0, 0, ggml_nbytes(p->kept));
    }
}

static void show(const tensor * t) {
    float found[N];
    ggml_backend_tensor_get(t, found, 0, ggml_nbytes(t) < sizeof(found) ? ggml_nbytes(t) : sizeof(found));
    printf("%.5g\n", found[0]);
}

static void look(struct part * p, tensor * weight) {
    for (int k = 0; k < p->n_reads; k++) {
        show(p->reads[k]);
    }
    if (p->kept) {
        show(p->kept);
    }
    if (p->trains) {
        show(ggml_graph_get_grad(p->g, weight));
    }
}

static void place(planner * q, sched * s, struct part * p) {
    if (apart) {
        ggml_backend_alloc_ctx_tensors_from_buft(p->ctx, ggml_backend_cpu_buffer_type());
    } else if (s) {
        ggml_backend_sched_reset(s);
        ggml_backend_sched_alloc_graph(s, p->g);
    } else {
        ggml_gallocr_alloc_graph(q, p->g);
    }
}

static void run(sched * s, struct part * p, bool async) {
    if (s && !apart && async) {
        ggml_backend_sched_graph_compute_async(s, p->g);
        ggml_backend_sched_synchronize(s);
    } else if (s && !apart) {
        ggml_backend_sched_graph_compute(s, p->g);
    } else if (async) {
        ggml_backend_graph_compute_async(cpu, p->g);
        ggml_backend_synchronize(cpu);
    } else {
        ggml_backend_graph_compute(cpu, p->g);
    }
}

int main(int count, char ** words) {
    if (count < 4) {
        return 2;
    }
    state = 88172645463325252ull + (uint64_t) atoll(words[1]) * 2862933555777941757ull;
    fault = atoi(words[2]);
    apart = !strcmp(words[3], "apart");
    cpu = ggml_backend_cpu_init();
    const int parts = 1 + (int) drawn(2), turns = 1 + (int) drawn(5);
    const bool shared = parts > 1 && drawn(2), by_pointer = drawn(4) == 0, async = drawn(3) == 0, rebuilt = drawn(4) == 0;
    const bool scheduled = drawn(4) == 0, first_all = fault == 3;
    dropped_run = 1 + (int) drawn(3);
    dropped_input = (int) drawn(3);
    context * lasting = room();
    tensor * weight = ggml_new_tensor_1d(lasting, F32, N), * memory = drawn(2) ? ggml_new_tensor_1d(lasting, F32, N) : NULL;
    ggml_set_param(weight);
    ggml_backend_alloc_ctx_tensors_from_buft(lasting, ggml_backend_cpu_buffer_type());
    write_to(weight, 1, false);
    if (memory) {
        ggml_backend_tensor_memset(memory, 0, 0, ggml_nbytes(memory));
    }
    struct part part[2];
    planner * q[2] = { NULL, NULL };
    sched * s[2] = { NULL, NULL };
    for (int k = 0; k < parts; k++) {
        memset(&part[k], 0, sizeof(part[k]));
        part[k].shape = state = state * 31 + 7;
    }
    for (int k = 0; k < parts; k++) {
        const bool own = k == 0 || !shared;
        q[k] = own ? ggml_gallocr_new(ggml_backend_cpu_buffer_type()) : q[0];
        s[k] = !scheduled ? NULL : own ? ggml_backend_sched_new(&cpu, NULL, 1, NODES, false, true) : s[0];
        make(&part[k], weight, k ? NULL : memory, fault == 2 && k == 0);
    }
    for (int turn = 0; turn < turns; turn++) {
        for (int k = 0; k < parts; k++) {
            // What shares a planner is made anew for each turn, and so is what has lost its place.
            const bool again = turn && (shared || (rebuilt && !part[k].once && !part[k].kept));
            if (again && !(first_all && k)) {
                for (int other = shared ? 0 : k; other < (shared ? parts : k + 1) && (!shared || k == 0); other++) {
                    const struct part old = part[other];
                    make(&part[other], weight, other ? NULL : memory, fault == 2 && other == 0);
                    ggml_free(old.ctx);
                }
            }
            if (turn == 0 || again) {
                place(q[k], s[k], &part[k]);
                first_upload(&part[k]);
            }
            if (!first_all) {
                upload(&part[k], turn, by_pointer);
                run(s[k], &part[k], async);
                look(&part[k], weight);
            }
        }
        for (int k = 0; first_all && k < parts; k++) {
            upload(&part[k], turn, by_pointer);
        }
        for (int k = 0; first_all && k < parts; k++) {
            run(s[k], &part[k], async);
            look(&part[k], weight);
        }
    }
    return 0;
}
