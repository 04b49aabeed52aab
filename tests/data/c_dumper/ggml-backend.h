// As ggml.h here: what is used, declared for the test alone.
#pragma once
#include "ggml.h"

typedef struct ggml_backend_buffer * ggml_backend_buffer_t;
typedef struct ggml_backend_buffer_type * ggml_backend_buffer_type_t;
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
