// As ggml.h here: what is used, declared for the test alone.
#pragma once
#include "ggml.h"

typedef struct ggml_backend_buffer * ggml_backend_buffer_t;
typedef struct ggml_backend_buffer_type * ggml_backend_buffer_type_t;
typedef struct ggml_backend * ggml_backend_t;
typedef struct ggml_gallocr * ggml_gallocr_t;

const char * ggml_backend_buffer_name(ggml_backend_buffer_t buffer);
void * ggml_backend_buffer_get_base(ggml_backend_buffer_t buffer);
size_t ggml_backend_buffer_get_size(ggml_backend_buffer_t buffer);
size_t ggml_backend_buffer_get_alignment(ggml_backend_buffer_t buffer);
int ggml_backend_buffer_get_usage(ggml_backend_buffer_t buffer);
ggml_backend_buffer_type_t ggml_backend_cpu_buffer_type(void);
ggml_gallocr_t ggml_gallocr_new(ggml_backend_buffer_type_t type);
bool ggml_gallocr_alloc_graph(ggml_gallocr_t planner, struct ggml_cgraph * graph);
void ggml_gallocr_free(ggml_gallocr_t planner);

ggml_backend_t ggml_backend_cpu_init(void);
void ggml_backend_cpu_set_n_threads(ggml_backend_t backend, int threads);
void ggml_backend_free(ggml_backend_t backend);
ggml_backend_buffer_t ggml_backend_alloc_ctx_tensors(struct ggml_context * ctx, ggml_backend_t backend);
void ggml_backend_buffer_free(ggml_backend_buffer_t buffer);
int ggml_backend_graph_compute(ggml_backend_t backend, struct ggml_cgraph * graph);
void ggml_backend_tensor_set(struct ggml_tensor * tensor, const void * data, size_t offset, size_t size);
void ggml_backend_tensor_get(const struct ggml_tensor * tensor, void * data, size_t offset, size_t size);
