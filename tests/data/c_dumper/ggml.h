// What the dumper and the test program use of ggml 0.13, declared for the test alone: the wheel brings no headers.
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define GGML_MAX_SRC 10
#define GGML_MAX_OP_PARAMS 64

enum ggml_type { GGML_TYPE_F32 = 0, GGML_TYPE_I32 = 26 };
enum ggml_op { GGML_OP_NONE = 0, GGML_OP_COUNT = 160 };

struct ggml_context;
struct ggml_cgraph;
struct ggml_backend_buffer;
struct ggml_tensor {
    enum ggml_type type;
    struct ggml_backend_buffer * buffer;
    int64_t ne[4];
    size_t nb[4];
    enum ggml_op op;
    int32_t op_params[GGML_MAX_OP_PARAMS / 4];
    int32_t flags;
    struct ggml_tensor * src[GGML_MAX_SRC];
    struct ggml_tensor * view_src;
    size_t view_offs;
    void * data;
    char name[64];
    void * extra;
    char padding[8];
};
struct ggml_init_params { size_t mem_size; void * mem_buffer; bool no_alloc; };

const char * ggml_version(void);
const char * ggml_op_name(enum ggml_op op);
const char * ggml_type_name(enum ggml_type type);
size_t ggml_nbytes(const struct ggml_tensor * tensor);
int ggml_get_unary_op(const struct ggml_tensor * tensor);
const char * ggml_unary_op_name(int op);

struct ggml_context * ggml_init(struct ggml_init_params params);
void ggml_free(struct ggml_context * ctx);
struct ggml_tensor * ggml_new_tensor_1d(struct ggml_context * ctx, enum ggml_type type, int64_t ne0);
struct ggml_tensor * ggml_new_tensor_2d(struct ggml_context * ctx, enum ggml_type type, int64_t ne0, int64_t ne1);
struct ggml_tensor * ggml_new_tensor_3d(
    struct ggml_context * ctx, enum ggml_type type, int64_t ne0, int64_t ne1, int64_t ne2);
struct ggml_tensor * ggml_set_name(struct ggml_tensor * tensor, const char * name);
void ggml_set_input(struct ggml_tensor * tensor);
void ggml_set_output(struct ggml_tensor * tensor);
struct ggml_tensor * ggml_sqr(struct ggml_context * ctx, struct ggml_tensor * a);
struct ggml_tensor * ggml_silu(struct ggml_context * ctx, struct ggml_tensor * a);
struct ggml_tensor * ggml_add(struct ggml_context * ctx, struct ggml_tensor * a, struct ggml_tensor * b);
struct ggml_tensor * ggml_rms_norm_back(struct ggml_context * ctx, struct ggml_tensor * a, struct ggml_tensor * b, float eps);
struct ggml_tensor * ggml_add_id(
    struct ggml_context * ctx, struct ggml_tensor * a, struct ggml_tensor * b, struct ggml_tensor * ids);
struct ggml_tensor * ggml_soft_max_ext(
    struct ggml_context * ctx, struct ggml_tensor * a, struct ggml_tensor * mask, float scale, float max_bias);
void ggml_soft_max_add_sinks(struct ggml_tensor * a, struct ggml_tensor * sinks);
struct ggml_tensor * ggml_rope_ext(
    struct ggml_context * ctx, struct ggml_tensor * a, struct ggml_tensor * b, struct ggml_tensor * c, int n_dims,
    int mode, int n_ctx_orig, float freq_base, float freq_scale, float ext_factor, float attn_factor, float beta_fast,
    float beta_slow);
struct ggml_tensor * ggml_rope_ext_back(
    struct ggml_context * ctx, struct ggml_tensor * a, struct ggml_tensor * b, struct ggml_tensor * c, int n_dims,
    int mode, int n_ctx_orig, float freq_base, float freq_scale, float ext_factor, float attn_factor, float beta_fast,
    float beta_slow);
struct ggml_cgraph * ggml_new_graph(struct ggml_context * ctx);
void ggml_build_forward_expand(struct ggml_cgraph * graph, struct ggml_tensor * tensor);
int ggml_graph_size(struct ggml_cgraph * graph);
int ggml_graph_n_nodes(struct ggml_cgraph * graph);
struct ggml_tensor ** ggml_graph_nodes(struct ggml_cgraph * graph);
