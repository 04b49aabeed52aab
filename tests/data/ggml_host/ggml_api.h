// The public functions of ggml that the programs here call, declared by hand: wheels bring no headers.
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct tensor tensor;
typedef struct context context;
typedef struct graph graph;
typedef struct planner planner;
typedef struct backend backend;
typedef struct buffer buffer;
typedef struct kind kind;
typedef struct sched sched;

struct ggml_init_params { size_t mem_size; void * mem_buffer; bool no_alloc; };
enum { F32 = 0 };

context * ggml_init(struct ggml_init_params);
void ggml_free(context *);
void ggml_reset(context *);
size_t ggml_tensor_overhead(void);
size_t ggml_graph_overhead_custom(size_t, bool);
size_t ggml_nbytes(const tensor *);
tensor * ggml_get_first_tensor(const context *);
tensor * ggml_get_next_tensor(const context *, tensor *);
tensor * ggml_new_tensor_1d(context *, int, int64_t);
tensor * ggml_new_tensor_2d(context *, int, int64_t, int64_t);
tensor * ggml_set_name(tensor *, const char *);
void ggml_set_input(tensor *);
void ggml_set_output(tensor *);
void ggml_set_param(tensor *);
void ggml_set_loss(tensor *);
tensor * ggml_add(context *, tensor *, tensor *);
tensor * ggml_mul(context *, tensor *, tensor *);
tensor * ggml_mul_mat(context *, tensor *, tensor *);
tensor * ggml_sqr(context *, tensor *);
tensor * ggml_sum(context *, tensor *);
tensor * ggml_scale(context *, tensor *, float);
tensor * ggml_scale_inplace(context *, tensor *, float);
tensor * ggml_cpy(context *, tensor *, tensor *);
tensor * ggml_cont(context *, tensor *);
tensor * ggml_view_1d(context *, tensor *, int64_t, size_t);
graph * ggml_new_graph_custom(context *, size_t, bool);
void ggml_build_forward_expand(graph *, tensor *);
void ggml_build_backward_expand(context *, graph *, tensor **);
tensor * ggml_graph_get_grad(const graph *, const tensor *);
void ggml_graph_reset(graph *);
planner * ggml_gallocr_new(kind *);
bool ggml_gallocr_reserve(planner *, graph *);
bool ggml_gallocr_alloc_graph(planner *, graph *);
void ggml_gallocr_free(planner *);
backend * ggml_backend_cpu_init(void);
void ggml_backend_free(backend *);
kind * ggml_backend_cpu_buffer_type(void);
int ggml_backend_graph_compute(backend *, graph *);
int ggml_backend_graph_compute_async(backend *, graph *);
void ggml_backend_synchronize(backend *);
void ggml_backend_tensor_set(tensor *, const void *, size_t, size_t);
void ggml_backend_tensor_get(const tensor *, void *, size_t, size_t);
void ggml_backend_tensor_set_async(backend *, tensor *, const void *, size_t, size_t);
void ggml_backend_tensor_get_async(backend *, const tensor *, void *, size_t, size_t);
void ggml_backend_tensor_memset(tensor *, uint8_t, size_t, size_t);
void ggml_backend_tensor_copy(tensor *, tensor *);
buffer * ggml_backend_alloc_ctx_tensors_from_buft(context *, kind *);
void ggml_backend_buffer_free(buffer *);
sched * ggml_backend_sched_new(backend **, kind **, int, size_t, bool, bool);
void ggml_backend_sched_free(sched *);
void ggml_backend_sched_reset(sched *);
bool ggml_backend_sched_alloc_graph(sched *, graph *);
int ggml_backend_sched_graph_compute(sched *, graph *);
int ggml_backend_sched_graph_compute_async(sched *, graph *);
void ggml_backend_sched_synchronize(sched *);

typedef struct opt opt; // steps of training, with ggml-opt.h
struct ggml_opt_params {
    sched * sched; context * ctx; tensor * inputs, * outputs;
    int loss, build, period;
    void * rates; void * of_rates;
    int optimizer;
};
struct ggml_opt_params ggml_opt_default_params(sched *, int loss);
opt * ggml_opt_init(struct ggml_opt_params);
void ggml_opt_free(opt *);
tensor * ggml_opt_labels(opt *);
tensor * ggml_opt_loss(opt *);
void ggml_opt_prepare_alloc(opt *, context *, graph *, tensor *, tensor *);
void ggml_opt_alloc(opt *, bool);
void ggml_opt_eval(opt *, void *);
bool ggml_backend_sched_reserve(sched *, graph *);
void ggml_backend_sched_reserve_size(sched *, graph *, size_t *);
void ggml_backend_sched_set_tensor_backend(sched *, tensor *, backend *);
float * ggml_get_data_f32(const tensor *);
