// Training steps of a transformer of 30 layers with LoRA on q and v: `thirty_layers STEPS WIDTH TOKENS kept|anew
// right|wrong`. `kept`: one graph, planned once; `anew`: the graph is made, planned and freed in each step, as llama.cpp
// does. `wrong`: the tokens are uploaded for the first step only. It prints the loss of each step, and waits for a line
// on its standard input behind the second where there is a sixth word.
#include "ggml_api.h"
#include <math.h>

tensor * ggml_new_tensor_3d(context *, int, int64_t, int64_t, int64_t);
tensor * ggml_reshape_2d(context *, tensor *, int64_t, int64_t);
tensor * ggml_reshape_3d(context *, tensor *, int64_t, int64_t, int64_t);
tensor * ggml_permute(context *, tensor *, int, int, int, int);
tensor * ggml_transpose(context *, tensor *);
tensor * ggml_rms_norm(context *, tensor *, float);
tensor * ggml_silu(context *, tensor *);
tensor * ggml_soft_max(context *, tensor *);
tensor * ggml_diag_mask_inf(context *, tensor *, int);
tensor * ggml_cross_entropy_loss(context *, tensor *, tensor *);
tensor * ggml_opt_step_sgd(context *, tensor *, tensor *, tensor *);
void ggml_backend_cpu_set_n_threads(backend *, int);

enum { LAYERS = 30, HEADS = 2, RANK = 4, NODES = 8192, VOCAB = 64, PER_LAYER = 13 };

static int width, tokens;
static backend * cpu;
static context * kept;
static tensor * weights[LAYERS][PER_LAYER], * head, * sgd;

static context * room(size_t tensors) {
    struct ggml_init_params params = { tensors * ggml_tensor_overhead() + ggml_graph_overhead_custom(NODES, true), NULL, true };
    return ggml_init(params);
}

static void fill(tensor * to, float around, float by) {
    const size_t count = ggml_nbytes(to) / sizeof(float);
    float * data = malloc(ggml_nbytes(to));
    static uint32_t state = 1;
    for (size_t k = 0; k < count; k++) {
        state = state * 1664525u + 1013904223u;
        data[k] = around + by * ((float) (state >> 8) / 8388608.0f - 1);
    }
    ggml_backend_tensor_set(to, data, 0, ggml_nbytes(to));
    free(data);
}

static void make_weights(void) {
    const int shape[PER_LAYER][2] = {
        { width, 1 }, { width, width }, { width, width }, { width, width }, { width, width },
        { width, RANK }, { RANK, width }, { width, RANK }, { RANK, width },
        { width, 1 }, { width, 2 * width }, { width, 2 * width }, { 2 * width, width },
    };
    kept = room(LAYERS * PER_LAYER + 8);
    for (int layer = 0; layer < LAYERS; layer++) {
        for (int k = 0; k < PER_LAYER; k++) {
            weights[layer][k] = ggml_new_tensor_2d(kept, F32, shape[k][0], shape[k][1]);
            char name[64];
            snprintf(name, sizeof(name), "layer %d weight %d", layer, k);
            ggml_set_name(weights[layer][k], name);
            if (k >= 5 && k <= 8) {
                ggml_set_param(weights[layer][k]);
            }
        }
    }
    head = ggml_new_tensor_2d(kept, F32, width, VOCAB);
    sgd = ggml_new_tensor_1d(kept, F32, 2);
    ggml_backend_alloc_ctx_tensors_from_buft(kept, ggml_backend_cpu_buffer_type());
    for (int layer = 0; layer < LAYERS; layer++) {
        for (int k = 0; k < PER_LAYER; k++) {
            const bool gain = k == 0 || k == 9;
            fill(weights[layer][k], gain ? 1 : 0, gain ? 0 : 1 / sqrtf((float) width));
        }
    }
    fill(head, 0, 1 / sqrtf((float) width));
    const float rate[2] = { 0.01f, 0 };
    ggml_backend_tensor_set(sgd, rate, 0, sizeof(rate));
}

static tensor * heads(context * ctx, tensor * x) {
    return ggml_permute(ctx, ggml_reshape_3d(ctx, x, width / HEADS, HEADS, tokens), 0, 2, 1, 3);
}

static tensor * layer_of(context * ctx, tensor ** w, tensor * x) {
    tensor * h = ggml_mul(ctx, ggml_rms_norm(ctx, x, 1e-5f), w[0]);
    tensor * q = ggml_add(ctx, ggml_mul_mat(ctx, w[1], h), ggml_mul_mat(ctx, w[6], ggml_mul_mat(ctx, w[5], h)));
    tensor * k = ggml_mul_mat(ctx, w[2], h);
    tensor * v = ggml_add(ctx, ggml_mul_mat(ctx, w[3], h), ggml_mul_mat(ctx, w[8], ggml_mul_mat(ctx, w[7], h)));
    tensor * scores = ggml_mul_mat(ctx, ggml_cont(ctx, heads(ctx, k)), ggml_cont(ctx, heads(ctx, q)));
    scores = ggml_soft_max(ctx, ggml_diag_mask_inf(ctx, ggml_scale(ctx, scores, 1 / sqrtf((float) width / HEADS)), 0));
    tensor * mixed = ggml_mul_mat(ctx, ggml_cont(ctx, ggml_transpose(ctx, heads(ctx, v))), scores);
    mixed = ggml_reshape_2d(ctx, ggml_cont(ctx, ggml_permute(ctx, mixed, 0, 2, 1, 3)), width, tokens);
    x = ggml_add(ctx, x, ggml_mul_mat(ctx, w[4], mixed));
    h = ggml_mul(ctx, ggml_rms_norm(ctx, x, 1e-5f), w[9]);
    tensor * gated = ggml_mul(ctx, ggml_silu(ctx, ggml_mul_mat(ctx, w[10], h)), ggml_mul_mat(ctx, w[11], h));
    return ggml_add(ctx, x, ggml_mul_mat(ctx, w[12], gated));
}

struct step { context * ctx; graph * g; tensor * x, * labels, * loss; };

static struct step made(void) {
    struct step s = { .ctx = room(NODES) };
    s.x = ggml_new_tensor_2d(s.ctx, F32, width, tokens);
    s.labels = ggml_new_tensor_2d(s.ctx, F32, VOCAB, tokens);
    ggml_set_name(s.x, "x");
    ggml_set_name(s.labels, "labels");
    ggml_set_input(s.x);
    ggml_set_input(s.labels);
    tensor * last = s.x;
    for (int layer = 0; layer < LAYERS; layer++) {
        last = layer_of(s.ctx, weights[layer], last);
    }
    s.loss = ggml_cross_entropy_loss(s.ctx, ggml_mul_mat(s.ctx, head, last), s.labels);
    ggml_set_name(s.loss, "loss");
    ggml_set_loss(s.loss);
    ggml_set_output(s.loss);
    s.g = ggml_new_graph_custom(s.ctx, NODES, true);
    ggml_build_forward_expand(s.g, s.loss);
    ggml_build_backward_expand(s.ctx, s.g, NULL);
    for (int layer = 0; layer < LAYERS; layer++) {
        for (int k = 5; k <= 8; k++) {
            tensor * gradient = ggml_graph_get_grad(s.g, weights[layer][k]);
            ggml_build_forward_expand(s.g, ggml_opt_step_sgd(s.ctx, weights[layer][k], gradient, sgd));
        }
    }
    return s;
}

int main(int count, char ** words) {
    if (count < 6) {
        return 2;
    }
    const int steps = atoi(words[1]);
    const bool anew = !strcmp(words[4], "anew"), wrong = !strcmp(words[5], "wrong");
    width = atoi(words[2]);
    tokens = atoi(words[3]);
    cpu = ggml_backend_cpu_init();
    ggml_backend_cpu_set_n_threads(cpu, 1);
    make_weights();
    planner * p = ggml_gallocr_new(ggml_backend_cpu_buffer_type());
    struct step s = { 0 };
    for (int turn = 0; turn < steps; turn++) {
        if (anew || turn == 0) {
            if (s.ctx) {
                ggml_free(s.ctx);
            }
            s = made();
            ggml_gallocr_alloc_graph(p, s.g);
        }
        ggml_graph_reset(s.g);
        if (turn == 0 || !wrong) {
            fill(s.x, 0, 1);
        }
        fill(s.labels, 1.0f / VOCAB, 0);
        ggml_backend_graph_compute(cpu, s.g);
        float loss;
        ggml_backend_tensor_get(s.loss, &loss, 0, sizeof(loss));
        printf("%g\n", loss);
        fflush(stdout);
        if (turn == 1 && count > 6) {
            getchar();
        }
    }
    return 0;
}
