// A program as anybody's: a step with RMS_NORM_BACK, planned by gallocr, dumped where a path is given, and planned
// again where the host also wants a tensor that was not flagged (the plan does not know).
#include "ggml-backend.h"
#include "ggml.h"

#include <stdio.h>
#include <string.h>

const char * allocsim_dump(struct ggml_cgraph * graph, const char * path);
#ifdef WITHOUT_DUMPER
const char * allocsim_dump(struct ggml_cgraph * graph, const char * path) {
    (void) graph, (void) path;
    return "not compiled in";
}
#endif

int main(int argc, char ** argv) {
    struct ggml_init_params params = {1 << 20, NULL, true};
    struct ggml_context * ctx = ggml_init(params);
    struct ggml_tensor * x = ggml_new_tensor_2d(ctx, GGML_TYPE_F32, 8, 4);
    struct ggml_tensor * w = ggml_new_tensor_1d(ctx, GGML_TYPE_F32, 8);
    ggml_set_name(x, "x \"quoted\"");
    ggml_set_name(w, "w");
    ggml_set_input(x);
    ggml_set_input(w);

    struct ggml_tensor * h = ggml_set_name(ggml_silu(ctx, ggml_sqr(ctx, x)), "h");
    struct ggml_tensor * s = ggml_set_name(ggml_add(ctx, h, w), "s");
    struct ggml_tensor * g = ggml_set_name(ggml_rms_norm_back(ctx, s, x, 1e-4f), "g");
    struct ggml_tensor * y = ggml_set_name(ggml_sqr(ctx, g), "y");
    ggml_set_output(y);

    struct ggml_cgraph * graph = ggml_new_graph(ctx);
    ggml_build_forward_expand(graph, y);
    ggml_gallocr_t planner = ggml_gallocr_new(ggml_backend_cpu_buffer_type());
    if (!ggml_gallocr_alloc_graph(planner, graph)) {
        return 3;
    }
    if (argc > 2 && !strcmp(argv[2], "late")) {
        ggml_set_output(h); // too late: its bytes are planned for others
    }
    const char * wrong = argc > 1 ? allocsim_dump(graph, argv[1]) : NULL;
    if (wrong) {
        fprintf(stderr, "%s\n", wrong);
    }
    ggml_gallocr_free(planner);
    ggml_free(ctx);
    return wrong != NULL;
}
