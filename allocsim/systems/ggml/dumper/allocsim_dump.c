// Writes a planned ggml graph as the JSON that `allocsim check` and `allocsim diagnose` read (docs/ggml.md, "Dump").
//
//     const char * allocsim_dump(struct ggml_cgraph * graph, const char * path);
//
// Call it after the graph was allocated (ggml_gallocr_alloc_graph) and before it is freed. It returns NULL, or a
// sentence that says why nothing was written. It reads the graph and changes nothing. Compile it with your program,
//
//     cc -c allocsim_dump.c -I ggml/include
//
// or as a library that is loaded before it, which dumps every graph that ggml allocates to $ALLOCSIM_DUMP-<n>.json
// (n from 0; for programs that link ggml dynamically; also the graphs that a backend scheduler allocates):
//
//     cc -shared -fPIC -DALLOCSIM_PRELOAD allocsim_dump.c -I ggml/include -o allocsim_dump.so -ldl
//     ALLOCSIM_DUMP=step LD_PRELOAD=./allocsim_dump.so ./program
//
// Leafs have no public accessor: the head of ggml_cgraph is read as its versions since 0.13 have it, and only if
// three public functions agree with it.
#ifdef ALLOCSIM_PRELOAD
#define _GNU_SOURCE
#include <dlfcn.h>
#endif

#include "ggml.h"
#include "ggml-backend.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

extern bool ggml_op_can_inplace(enum ggml_op op);

enum { COMPUTE_USAGE = 2, MOST_BUFFERS = 64 };

struct graph_head {
    int size, n_nodes, n_leafs;
    struct ggml_tensor ** nodes, ** grads, ** grad_accs, ** leafs;
};

struct listed { const struct ggml_tensor * tensor; int number, leaf; };

struct dump {
    FILE * file;
    struct listed * table;
    size_t room;
    const struct ggml_tensor ** tensors; // leafs, then nodes
    const struct ggml_tensor ** copied;  // for each tensor: what a scheduler copies into it, or NULL
    int leafs, extra, count;
    ggml_backend_buffer_t buffers[MOST_BUFFERS];
    int n_buffers;
};

static struct listed * find(struct dump * d, const struct ggml_tensor * tensor) {
    size_t at = ((uintptr_t) tensor >> 4) % d->room;
    while (d->table[at].tensor && d->table[at].tensor != tensor) {
        at = (at + 1) % d->room;
    }
    return &d->table[at];
}

static void list(struct dump * d, const struct ggml_tensor * tensor, int number, int leaf) {
    struct listed * entry = find(d, tensor);
    entry->tensor = tensor;
    entry->number = number;
    entry->leaf = leaf;
}

static void text(FILE * file, const char * string) {
    fputc('"', file);
    for (const unsigned char * c = (const unsigned char *) string; *c; c++) {
        if (*c == '"' || *c == '\\') {
            fprintf(file, "\\%c", *c);
        } else if (*c < 0x20 || *c > 0x7e) {
            fprintf(file, "\\u%04x", *c);
        } else {
            fputc(*c, file);
        }
    }
    fputc('"', file);
}

static void reference(struct dump * d, const struct ggml_tensor * tensor) {
    const struct listed * entry = find(d, tensor);
    fprintf(d->file, entry->leaf ? "\"L%d\"" : "%d", entry->number);
}

static int buffer_of(const struct dump * d, const struct ggml_tensor * tensor) {
    for (int n = 0; tensor->buffer && n < d->n_buffers; n++) {
        if (d->buffers[n] == tensor->buffer) {
            return n;
        }
    }
    return -1;
}

static void numbers(FILE * file, const char * name, const int64_t * ne, const size_t * nb) {
    fprintf(file, ",\"%s\":[", name);
    for (int n = 0; n < 4; n++) {
        fprintf(file, "%s%lld", n ? "," : "", (long long) (ne ? ne[n] : (int64_t) nb[n]));
    }
    fputc(']', file);
}

static void row(struct dump * d, int place) {
    const struct ggml_tensor * t = d->tensors[place];
    FILE * file = d->file;
    const bool given = place >= d->leafs - d->extra && place < d->leafs; // a root that the graph does not hold
    const int home = buffer_of(d, t);
    fprintf(file, "{\"op\":");
    text(file, d->copied[place] ? "SPLIT_COPY" : given ? "NONE" : ggml_op_name(t->op));
    fprintf(file, ",\"name\":");
    text(file, t->name);
    fprintf(file, ",\"type\":");
    text(file, ggml_type_name(t->type));
    numbers(file, "ne", t->ne, NULL);
    numbers(file, "nb", NULL, t->nb);
    fprintf(file, ",\"nbytes\":%zu,\"off\":", ggml_nbytes(t));
    if (home >= 0 && t->data) {
        fprintf(file, "%zu", (size_t) ((char *) t->data - (char *) ggml_backend_buffer_get_base(d->buffers[home])));
    } else {
        fprintf(file, "null");
    }
    fprintf(file, ",\"buffer\":%d,\"external\":%s,\"flags\":%d,\"view_src\":", home < 0 ? 0 : home,
            t->data && home < 0 ? "true" : "false", (int) t->flags);
    if (t->view_src) {
        reference(d, t->view_src);
    } else {
        fprintf(file, "null");
    }
    fprintf(file, ",\"view_offs\":%zu,\"op_params\":[", t->view_offs);
    int words = GGML_MAX_OP_PARAMS / (int) sizeof(int32_t);
    while (words > 0 && !t->op_params[words - 1]) {
        words--;
    }
    for (int n = 0; n < words; n++) {
        fprintf(file, "%s%d", n ? "," : "", (int) t->op_params[n]);
    }
    fprintf(file, "],\"src\":[");
    int last = GGML_MAX_SRC;
    while (last > 0 && !t->src[last - 1]) {
        last--;
    }
    if (d->copied[place]) {
        reference(d, d->copied[place]);
    } else {
        for (int n = 0; n < (given ? 0 : last); n++) {
            if (n) {
                fputc(',', file);
            }
            if (t->src[n]) {
                reference(d, t->src[n]);
            } else {
                fprintf(file, "null");
            }
        }
    }
    fputc(']', file);
    if (!strcmp(ggml_op_name(t->op), "UNARY")) {
        fprintf(file, ",\"unary\":");
        text(file, ggml_unary_op_name(ggml_get_unary_op(t)));
    }
    fputc('}', file);
}

static void rows(struct dump * d, const char * name, int start, int stop) {
    fprintf(d->file, ",\n\"%s\":[", name);
    for (int place = start; place < stop; place++) {
        fprintf(d->file, place > start ? ",\n " : "\n ");
        row(d, place);
    }
    fprintf(d->file, "]");
}

static void meta(struct dump * d) {
    size_t size = 0, alignment = 32;
    for (int n = 0; n < d->n_buffers; n++) {
        size += ggml_backend_buffer_get_size(d->buffers[n]);
    }
    if (d->n_buffers) {
        alignment = ggml_backend_buffer_get_alignment(d->buffers[0]);
    }
    fprintf(d->file, "{\"meta\":{\"version\":");
    text(d->file, ggml_version());
    fprintf(d->file, ",\"name\":\"dump\",\"buffer_size\":%zu,\"alignment\":%zu,\"inplace_ops\":[", size, alignment);
    for (int op = 0, first = 1; op < GGML_OP_COUNT; op++) {
        const char * name = ggml_op_name((enum ggml_op) op);
        if (ggml_op_can_inplace((enum ggml_op) op)) {
            fprintf(d->file, "%s", first ? "" : ",");
            text(d->file, name);
            first = 0;
        }
        if (!strcmp(name, "GLU")) { // the last row of the table: headers and library may differ
            break;
        }
    }
    fputc(']', d->file);
    for (int n = 0; d->n_buffers > 1 && n < d->n_buffers; n++) {
        fprintf(d->file, n ? "," : ",\"buffers\":[");
        fprintf(d->file, "{\"name\":");
        text(d->file, ggml_backend_buffer_name(d->buffers[n]));
        fprintf(d->file, ",\"size\":%zu,\"alignment\":%zu}", ggml_backend_buffer_get_size(d->buffers[n]),
                ggml_backend_buffer_get_alignment(d->buffers[n]));
    }
    fprintf(d->file, d->n_buffers > 1 ? "]}" : "}");
}

// Whether a node is a scheduler's mark: an op-NONE view of its one source. The node behind it is the copy.
static bool is_mark(const struct ggml_tensor * t) {
    return t->op == GGML_OP_NONE && t->view_src && t->src[0] && !t->src[1];
}

static const char * collect(struct dump * d, const struct graph_head * head) {
    const int most = head->n_leafs + 2 * head->n_nodes + 1;
    d->tensors = calloc((size_t) most, sizeof(*d->tensors));
    d->copied = calloc((size_t) most, sizeof(*d->copied));
    d->room = 4 * (size_t) most + 7;
    d->table = calloc(d->room, sizeof(*d->table));
    if (!d->tensors || !d->copied || !d->table) {
        return "there is not enough memory";
    }
    int nodes = 0;
    for (int n = 0; n < head->n_leafs; n++) {
        d->tensors[d->leafs++] = head->leafs[n];
        list(d, head->leafs[n], n, 1);
    }
    for (int n = 0; n < head->n_nodes; n++) {
        if (n + 1 < head->n_nodes && is_mark(head->nodes[n])) {
            continue;
        }
        list(d, head->nodes[n], nodes++, 0);
    }
    for (int n = 0; n < head->n_nodes; n++) { // roots that are no part of the graph
        const struct ggml_tensor * root = head->nodes[n]->view_src;
        if (root && !find(d, root)->tensor) {
            list(d, root, d->leafs, 1);
            d->tensors[d->leafs++] = root;
            d->extra++;
        }
    }
    d->count = d->leafs;
    for (int n = 0; n < head->n_nodes; n++) {
        if (n + 1 < head->n_nodes && is_mark(head->nodes[n])) {
            d->copied[d->count] = head->nodes[n]->src[0]; // of the node behind it
            continue;
        }
        d->tensors[d->count++] = head->nodes[n];
    }
    for (int place = 0; place < d->count; place++) {
        const struct ggml_tensor * t = d->tensors[place];
        if (t->view_src && !find(d, t->view_src)->tensor) {
            return "a leaf is a view of a tensor that is not part of the graph";
        }
        if (d->copied[place] && !find(d, d->copied[place])->tensor) {
            return "a tensor that a scheduler copies is not part of its graph";
        }
        for (int n = 0; n < GGML_MAX_SRC; n++) {
            if (t->src[n] && !find(d, t->src[n])->tensor && !(place >= d->leafs - d->extra && place < d->leafs)) {
                return "a source is not part of the graph; of a scheduler's graph, load the dumper before the program";
            }
        }
        if (!t->buffer || ggml_backend_buffer_get_usage(t->buffer) != COMPUTE_USAGE || buffer_of(d, t) >= 0) {
            continue;
        }
        if (d->n_buffers == MOST_BUFFERS) {
            return "the graph lies in more than 64 compute buffers";
        }
        d->buffers[d->n_buffers++] = t->buffer;
    }
    return NULL;
}

const char * allocsim_dump(struct ggml_cgraph * graph, const char * path) {
    struct graph_head head;
    if (!graph) {
        return "the graph is NULL";
    }
    memcpy(&head, graph, sizeof(head));
    if (head.size != ggml_graph_size(graph) || head.n_nodes != ggml_graph_n_nodes(graph) ||
        head.nodes != ggml_graph_nodes(graph) || head.n_leafs < 0 || head.n_leafs > head.size) {
        return "this version of ggml lays out ggml_cgraph in another way";
    }
    struct dump d;
    memset(&d, 0, sizeof(d));
    const char * wrong = collect(&d, &head);
    if (!wrong) {
        d.file = fopen(path, "w");
        wrong = d.file ? NULL : "the file cannot be written";
    }
    if (!wrong) {
        meta(&d);
        rows(&d, "leafs", 0, d.leafs);
        rows(&d, "nodes", d.leafs, d.count);
        fprintf(d.file, "}\n");
        const bool failed = ferror(d.file) != 0;
        wrong = fclose(d.file) != 0 || failed ? "the file could not be written to its end" : NULL;
    }
    free(d.tensors);
    free(d.copied);
    free(d.table);
    return wrong;
}

#ifdef ALLOCSIM_PRELOAD
typedef struct ggml_gallocr * gallocr;

bool ggml_gallocr_alloc_graph(gallocr planner, struct ggml_cgraph * graph) {
    static bool (*real)(gallocr, struct ggml_cgraph *);
    static int number;
    if (!real) {
        *(void **) &real = dlsym(RTLD_NEXT, "ggml_gallocr_alloc_graph");
    }
    const bool done = real(planner, graph);
    const char * stem = getenv("ALLOCSIM_DUMP");
    if (done && stem) {
        char path[4096];
        snprintf(path, sizeof(path), "%s-%d.json", stem, number++);
        const char * wrong = allocsim_dump(graph, path);
        if (wrong) {
            fprintf(stderr, "allocsim: %s was not written: %s\n", path, wrong);
        }
    }
    return done;
}
#endif
