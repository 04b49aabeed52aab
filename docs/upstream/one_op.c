// One op, planned by gallocr, against the same op with memory of its own for each tensor.
//
//     cc one_op.c -I ggml/include -lggml -lggml-cpu -lggml-base -lm -o one_op && ./one_op add_id
//
// Exit status 0 where both agree, 1 where they do not. Two threads; a race may need several runs.
#include "ggml.h"
#include "ggml-alloc.h"
#include "ggml-backend.h"
#include "ggml-cpu.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { N = 8, ROWS = 4, MOST = 1024 };

static struct ggml_tensor * build(const char * op, struct ggml_context * apart, struct ggml_context * ctx) {
    if (!strcmp(op, "add_id")) { // four experts in reverse, one token; the rows to add are laid out as the result
        struct ggml_tensor * a = ggml_new_tensor_3d(apart, GGML_TYPE_F32, N, ROWS, 1);
        struct ggml_tensor * ids = ggml_new_tensor_2d(apart, GGML_TYPE_I32, ROWS, 1);
        return ggml_add_id(ctx, a, ggml_new_tensor_2d(ctx, GGML_TYPE_F32, N, ROWS), ids);
    }
    if (!strcmp(op, "soft_max")) { // one score and one sink
        struct ggml_tensor * out = ggml_soft_max_ext(ctx, ggml_new_tensor_1d(apart, GGML_TYPE_F32, 1), NULL, 1.0f, 0.0f);
        ggml_soft_max_add_sinks(out, ggml_new_tensor_1d(ctx, GGML_TYPE_F32, 1));
        return out;
    }
    struct ggml_tensor * x = ggml_new_tensor_3d(apart, GGML_TYPE_F32, N, 1, ROWS); // four tokens
    struct ggml_tensor * at = ggml_new_tensor_1d(apart, GGML_TYPE_I32, ROWS);
    struct ggml_tensor * factors = ggml_new_tensor_3d(ctx, GGML_TYPE_F32, N, 1, ROWS); // laid out as the result
    return !strcmp(op, "rope") ? ggml_rope_ext(ctx, x, at, factors, N, 0, 0, 10000, 1, 0, 1, 32, 1)
                               : ggml_rope_ext_back(ctx, x, at, factors, N, 0, 0, 10000, 1, 0, 1, 32, 1);
}

static void fill(struct ggml_tensor * t, int seed) {
    float floats[MOST];
    int32_t numbers[MOST];
    const int n = (int) (ggml_nbytes(t) / 4);
    for (int i = 0; i < n; i++) {
        floats[i] = 1.5f + sinf((float) (i + 7 * seed)); // positive
        numbers[i] = n - 1 - i;
    }
    ggml_backend_tensor_set(t, t->type == GGML_TYPE_I32 ? (void *) numbers : (void *) floats, 0, ggml_nbytes(t));
}

static int run(const char * op, bool planned, float * out) {
    struct ggml_init_params params = {1 << 20, NULL, true};
    struct ggml_context * apart = ggml_init(params), * ctx = ggml_init(params);
    ggml_backend_t cpu = ggml_backend_cpu_init();
    ggml_backend_cpu_set_n_threads(cpu, 2);
    struct ggml_tensor * result = build(op, apart, ctx);
    ggml_backend_buffer_t own = ggml_backend_alloc_ctx_tensors(apart, cpu), all = NULL;
    struct ggml_cgraph * graph = ggml_new_graph(ctx);
    ggml_build_forward_expand(graph, result);
    ggml_gallocr_t planner = ggml_gallocr_new(ggml_backend_cpu_buffer_type());
    if (planned) {
        ggml_gallocr_alloc_graph(planner, graph);
    } else {
        all = ggml_backend_alloc_ctx_tensors(ctx, cpu);
    }
    for (int slot = 0; slot < GGML_MAX_SRC; slot++) {
        if (result->src[slot]) {
            fill(result->src[slot], slot);
            if (planned && result->src[slot]->data == result->data) {
                printf("%s: the plan lays the result over source %d\n", op, slot);
            }
        }
    }
    ggml_backend_graph_compute(cpu, graph);
    const size_t nbytes = ggml_nbytes(result);
    ggml_backend_tensor_get(result, out, 0, nbytes);
    ggml_gallocr_free(planner);
    ggml_backend_buffer_free(own);
    ggml_backend_buffer_free(all);
    ggml_backend_free(cpu);
    ggml_free(ctx);
    ggml_free(apart);
    return (int) (nbytes / sizeof(float));
}

int main(int argc, char ** argv) {
    float found[MOST], wanted[MOST];
    const char * op = argc > 1 ? argv[1] : "add_id";
    run(op, false, wanted);
    const int n = run(op, true, found);
    for (int i = 0; i < n; i++) {
        if (found[i] != wanted[i]) {
            printf("%s: element %d is %.6f, must be %.6f\n", op, i, found[i], wanted[i]);
            return 1;
        }
    }
    printf("%s: right\n", op);
    return 0;
}
