// What a host asks of llama.cpp's memory, and the leafs that name its cells, for `allocsim_record.c`, which includes this.
//
// Functions are those of llama.h since 2025, seen by their names: batches (`llama_decode` with its struct of arrays,
// `llama_process` with batches that are filled row by row), and what is asked of sequences. A leaf is told by its
// numbers where a node takes it as rows to write (SET_ROWS) or as positions (ROPE), and a mask by the columns of each
// row that are finite, while a batch is computed. What a number means is the reader's business.

enum { MOST_ROWS = 1 << 20, MOST_NAMES = 256 };

typedef struct {
    int32_t n_tokens;
    int32_t * token;
    float * embd;
    int32_t * pos;
    int32_t * n_seq_id;
    int32_t ** seq_id;
    int8_t * logits;
} llama_batch;

typedef struct { const float * data; size_t rows, columns; } llama_embd;

static __thread int decoding; // batches that this thread is inside of

static void * memory_of(void * context, const void * function) { // the memory of a context
#ifdef ALLOCSIM_LINKED
    (void) function;
    return HAS(llama_get_memory) ? ASK(void *, llama_get_memory, (void *), context) : NULL;
#else
    static void * kept;
    if (!kept) {
        void * handle = opened(function);
        kept = handle ? real_dlsym()(handle, "llama_get_memory") : NULL;
    }
    return kept ? ((void * (*)(void *)) kept)(context) : NULL;
#endif
}

static void say_batch(const llama_batch * batch) {
    const bool sane = batch->n_tokens > 0 && batch->n_tokens <= MOST_ROWS;
    say(",\"rows\":[");
    for (int k = 0; sane && k < batch->n_tokens; k++) {
        const int count = batch->n_seq_id && batch->seq_id ? batch->n_seq_id[k] : 0;
        if (batch->pos) {
            say(k ? ",[%d" : "[%d", batch->pos[k]);
        } else {
            say(k ? ",[null" : "[null");
        }
        for (int s = 0; s < count && s < MOST_NAMES; s++) {
            say(",%d", batch->seq_id[k][s]);
        }
        say(count ? "]" : ",0]");
    }
    say("]");
}

// Says that a batch is computed: one that is told here, or one that was filled row by row.
static void batch_begins(void * context, const void * function, const llama_batch * batch, const void * filled) {
    decoding++;
    if (!begin()) {
        return;
    }
    open_event("batch");
    say(",\"by\":%llu,\"thread\":%llu", (unsigned long long) (uintptr_t) memory_of(context, function),
        (unsigned long long) pthread_self());
    if (batch) {
        say_batch(batch);
    } else {
        say(",\"filled\":%llu", (unsigned long long) (uintptr_t) filled);
    }
    say("}\n");
    flush();
}

static void batch_ended(void * context, const void * function, int status) {
    decoding--;
    if (begin()) {
        open_event("batched");
        say(",\"by\":%llu,\"thread\":%llu,\"status\":%d}\n", (unsigned long long) (uintptr_t) memory_of(context, function),
            (unsigned long long) pthread_self(), status);
        flush();
    }
}

static void row(const char * word, const void * batch, int at, int value) {
    if (begin()) {
        open_event("row");
        say(",\"by\":%llu,\"word\":\"%s\",\"at\":%d,\"value\":%d}\n", (unsigned long long) (uintptr_t) batch, word, at, value);
        flush();
    }
}

static void asked_with(const char * word, const void * memory, int one, int other, int from, int to, int by, uint64_t digest) {
    if (begin()) {
        open_event("sequence");
        say(",\"by\":%llu,\"word\":\"%s\",\"one\":%d,\"other\":%d,\"from\":%d,\"to\":%d,\"number\":%d,\"digest\":%llu}\n",
            (unsigned long long) (uintptr_t) memory, word, one, other, from, to, by, (unsigned long long) (digest >> 2));
        flush();
    }
}

static void asked(const char * word, const void * memory, int one, int other, int from, int to, int by) {
    asked_with(word, memory, one, other, from, to, by, 0);
}

// the leafs ----------------------------------------------------------------------------------------

static bool is(const tensor * t, const char * op) { return !strcmp(ASK(const char *, ggml_op_name, (int), t->op), op); }

static bool of_type(const tensor * t, const char * name) { return !strcmp(ASK(const char *, ggml_type_name, (int), t->type), name); }

static const tensor * leaf_of(const tensor * t) { // behind casts and views
    while (t && !is(t, "NONE")) {
        t = is(t, "CPY") || is(t, "CONT") || is(t, "RESHAPE") || is(t, "VIEW") ? t->src[0] : NULL;
    }
    return t && in_compute_memory(t) ? t : NULL;
}

static void say_numbers(const tensor * t) {
    const bool wide = of_type(t, "i64");
    if ((!wide && !of_type(t, "i32"))) {
        return;
    }
    open_event("numbers");
    say(",\"t\":%llu,\"values\":[", (unsigned long long) (uintptr_t) t);
    const size_t count = nbytes_of(t) / (wide ? 8 : 4);
    for (size_t k = 0; k < count; k++) {
        say(k ? ",%lld" : "%lld", wide ? (long long) ((int64_t *) t->data)[k] : (long long) ((int32_t *) t->data)[k]);
    }
    say("]}\n");
}

static bool finite_at(const tensor * t, size_t at, bool half) {
    return half ? (((uint16_t *) t->data)[at] & 0x7c00) != 0x7c00 : (((uint32_t *) t->data)[at] & 0x7f800000) != 0x7f800000;
}

static void say_mask(const tensor * t) {
    const bool half = of_type(t, "f16");
    if (!half && !of_type(t, "f32")) {
        return;
    }
    open_event("mask");
    say(",\"t\":%llu,\"rows\":[", (unsigned long long) (uintptr_t) t);
    const size_t width = (size_t) t->ne[0], rows = nbytes_of(t) / (half ? 2 : 4) / (width ? width : 1);
    for (size_t r = 0; r < rows; r++) {
        say(r ? ",[" : "[");
        bool inside = false, first = true;
        for (size_t k = 0; k <= width; k++) {
            const bool finite = k < width && finite_at(t, r * width + k, half);
            if (finite != inside) { // where a range begins, and where it ends
                say(first ? "%zu" : ",%zu", k);
                first = false;
                inside = finite;
            }
        }
        say("]");
    }
    say("]}\n");
}

// Each leaf once, whose numbers say which cells are written, at which positions, and which are read.
static void say_cells(const void * graph) {
    graph_head head;
    const tensor * said[64];
    int many = 0;
    for (int k = 0; decoding && read_head(graph, &head) && k < head.n_nodes; k++) {
        const tensor * node = head.nodes[k];
        const bool attends = is(node, "SOFT_MAX") || is(node, "FLASH_ATTN_EXT");
        const tensor * leaf = is(node, "SET_ROWS") || is(node, "ROPE") ? node->src[1] : attends ? node->src[is(node, "SOFT_MAX") ? 1 : 3] : NULL;
        leaf = leaf ? leaf_of(leaf) : NULL;
        bool known = !leaf || many == 64;
        for (int s = 0; s < many && !known; s++) {
            known = said[s] == leaf;
        }
        if (!known) {
            said[many++] = leaf;
            tell(leaf);
            if (attends) {
                say_mask(leaf);
            } else {
                say_numbers(leaf);
            }
        }
    }
}

// the functions that stand before llama.cpp's -----------------------------------------------------------

REAL(int32_t, llama_decode, (void *, llama_batch))
int32_t llama_decode(void * context, llama_batch batch) {
    llama_decode_type call = CALL(llama_decode);
    batch_begins(context, (const void *) call, &batch, NULL);
    const int32_t status = call(context, batch);
    batch_ended(context, (const void *) call, status);
    return status;
}

REAL(int32_t, llama_process, (void *, int, void *))
int32_t llama_process(void * context, int kind, void * batch) {
    llama_process_type call = CALL(llama_process);
    if (kind != 1) { // LLAMA_PROCESS_TYPE_DECODE; an encoder has no cells
        return call(context, kind, batch);
    }
    batch_begins(context, (const void *) call, NULL, batch);
    const int32_t status = call(context, kind, batch);
    batch_ended(context, (const void *) call, status);
    return status;
}

REAL(int32_t, llama_batch_ext_add, (void *, int32_t))
int32_t llama_batch_ext_add(void * batch, int32_t sequence) {
    const int32_t at = CALL(llama_batch_ext_add)(batch, sequence);
    row("add", batch, at, sequence);
    return at;
}

REAL(int32_t, llama_batch_ext_add_token, (void *, int32_t, int32_t))
int32_t llama_batch_ext_add_token(void * batch, int32_t sequence, int32_t token) {
    const int32_t at = CALL(llama_batch_ext_add_token)(batch, sequence, token);
    row("add", batch, at, sequence);
    return at;
}

REAL(int32_t, llama_batch_ext_add_embd, (void *, int32_t, llama_embd))
int32_t llama_batch_ext_add_embd(void * batch, int32_t sequence, llama_embd embd) {
    const int32_t at = CALL(llama_batch_ext_add_embd)(batch, sequence, embd);
    row("add", batch, at, sequence);
    return at;
}

REAL(bool, llama_batch_ext_add_seq, (void *, int32_t, int32_t))
bool llama_batch_ext_add_seq(void * batch, int32_t at, int32_t sequence) {
    const bool done = CALL(llama_batch_ext_add_seq)(batch, at, sequence);
    if (done) {
        row("share", batch, at, sequence);
    }
    return done;
}

REAL(bool, llama_batch_ext_set_pos, (void *, int32_t, const int32_t *))
bool llama_batch_ext_set_pos(void * batch, int32_t at, const int32_t * position) {
    const bool done = CALL(llama_batch_ext_set_pos)(batch, at, position);
    if (done && position) {
        row("position", batch, at, *position);
    }
    return done;
}

REAL(void, llama_batch_ext_clear, (void *))
void llama_batch_ext_clear(void * batch) {
    CALL(llama_batch_ext_clear)(batch);
    row("clear", batch, 0, 0);
}

REAL(void, llama_batch_ext_free, (void *))
void llama_batch_ext_free(void * batch) {
    llama_batch_ext_free_type call = CALL(llama_batch_ext_free);
    row("clear", batch, 0, 0);
    call(batch);
}

REAL(void, llama_memory_clear, (void *, bool))
void llama_memory_clear(void * memory, bool data) {
    CALL(llama_memory_clear)(memory, data);
    asked("clear", memory, 0, 0, 0, 0, data);
}

REAL(bool, llama_memory_seq_rm, (void *, int32_t, int32_t, int32_t))
bool llama_memory_seq_rm(void * memory, int32_t sequence, int32_t from, int32_t to) {
    const bool done = CALL(llama_memory_seq_rm)(memory, sequence, from, to);
    if (done) {
        asked("remove", memory, sequence, 0, from, to, 0);
    }
    return done;
}

REAL(void, llama_memory_seq_cp, (void *, int32_t, int32_t, int32_t, int32_t))
void llama_memory_seq_cp(void * memory, int32_t source, int32_t target, int32_t from, int32_t to) {
    asked("copy", memory, source, target, from, to, 0);
    CALL(llama_memory_seq_cp)(memory, source, target, from, to);
}

REAL(void, llama_memory_seq_keep, (void *, int32_t))
void llama_memory_seq_keep(void * memory, int32_t sequence) {
    CALL(llama_memory_seq_keep)(memory, sequence);
    asked("keep", memory, sequence, 0, 0, 0, 0);
}

REAL(void, llama_memory_seq_add, (void *, int32_t, int32_t, int32_t, int32_t))
void llama_memory_seq_add(void * memory, int32_t sequence, int32_t from, int32_t to, int32_t by) {
    CALL(llama_memory_seq_add)(memory, sequence, from, to, by);
    asked("add", memory, sequence, 0, from, to, by);
}

REAL(void, llama_memory_seq_div, (void *, int32_t, int32_t, int32_t, int32_t))
void llama_memory_seq_div(void * memory, int32_t sequence, int32_t from, int32_t to, int32_t by) {
    CALL(llama_memory_seq_div)(memory, sequence, from, to, by);
    asked("divide", memory, sequence, 0, from, to, by);
}

static __thread int restoring; // calls that restore a state, of which one may call another

// What a state is known again by: its bytes. None (0) where nothing was taken, or a part alone (`flags`) was asked for.
static uint64_t digest_of_bytes(const void * data, size_t taken, uint32_t flags) {
    return taken && !flags ? hash_of(11, data, taken) : 0;
}

static uint64_t digest_of_file(const char * path, size_t taken, uint32_t flags) {
    static const size_t room = 1 << 20;
    const int from = taken && !flags ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    char * piece = from < 0 ? NULL : malloc(room);
    uint64_t hash = piece ? 11 : 0;
    for (ssize_t got; piece && (got = read(from, piece, room)) > 0;) {
        hash = hash_of(hash, piece, (size_t) got);
    }
    free(piece);
    if (from >= 0) {
        close(from);
    }
    return hash;
}

static __thread int saving;

#define SAVES(result, name, types, arguments, sequence, digest_by, data, flags) \
    REAL(result, name, types) \
    result name types { \
        name##_type call = CALL(name); \
        saving++; \
        const result taken = call arguments; \
        if (--saving == 0 && taken) { \
            asked_with("saved", memory_of(context, (const void *) call), sequence, 0, 0, -1, 1, \
                       digest_by(data, (size_t) taken, flags)); \
        } \
        return taken; \
    }
SAVES(size_t, llama_state_get_data, (void * context, uint8_t * data, size_t size), (context, data, size), -1,
      digest_of_bytes, data, 0)
SAVES(size_t, llama_state_seq_get_data, (void * context, uint8_t * data, size_t size, int32_t sequence),
      (context, data, size, sequence), sequence, digest_of_bytes, data, 0)
SAVES(size_t, llama_state_seq_get_data_ext,
      (void * context, uint8_t * data, size_t size, int32_t sequence, uint32_t flags),
      (context, data, size, sequence, flags), sequence, digest_of_bytes, data, flags)
SAVES(bool, llama_state_save_file, (void * context, const char * path, const int32_t * tokens, size_t count),
      (context, path, tokens, count), -1, digest_of_file, path, 0)
SAVES(size_t, llama_state_seq_save_file,
      (void * context, const char * path, int32_t sequence, const int32_t * tokens, size_t count),
      (context, path, sequence, tokens, count), sequence, digest_of_file, path, 0)

// A state is read into the cells between two events; the second says whether it was, and which.
#define RESTORES(result, name, types, arguments, sequence, digest_by, data, flags) \
    REAL(result, name, types) \
    result name types { \
        name##_type call = CALL(name); \
        if (restoring++ == 0) { \
            asked("restore", memory_of(context, (const void *) call), sequence, 0, 0, -1, 0); \
        } \
        const result taken = call arguments; \
        if (--restoring == 0) { \
            asked_with("restored", memory_of(context, (const void *) call), sequence, 0, 0, -1, taken != 0, \
                       digest_by(data, (size_t) taken, flags)); \
        } \
        return taken; \
    }
RESTORES(size_t, llama_state_set_data, (void * context, const uint8_t * data, size_t size), (context, data, size), -1,
         digest_of_bytes, data, 0)
RESTORES(size_t, llama_state_seq_set_data, (void * context, const uint8_t * data, size_t size, int32_t sequence),
         (context, data, size, sequence), sequence, digest_of_bytes, data, 0)
RESTORES(size_t, llama_state_seq_set_data_ext,
         (void * context, const uint8_t * data, size_t size, int32_t sequence, uint32_t flags),
         (context, data, size, sequence, flags), sequence, digest_of_bytes, data, flags)
RESTORES(bool, llama_state_load_file, (void * context, const char * path, int32_t * tokens, size_t room, size_t * count),
         (context, path, tokens, room, count), -1, digest_of_file, path, 0)
RESTORES(size_t, llama_state_seq_load_file,
         (void * context, const char * path, int32_t sequence, int32_t * tokens, size_t room, size_t * count),
         (context, path, sequence, tokens, room, count), sequence, digest_of_file, path, 0)

// Results that were read without waiting, and are given to the host now: whoever gives them has waited by then.
static float * taken(float * at) {
    if (at && begin()) {
        open_event("taken");
        say(",\"at\":%llu}\n", (unsigned long long) (uintptr_t) at);
        flush();
    }
    return at;
}

#define TAKES(name, types, ...) \
    REAL(float *, name, types) \
    float * name types { return taken(CALL(name)(__VA_ARGS__)); }
TAKES(llama_get_logits, (void * context), context)
TAKES(llama_get_logits_ith, (void * context, int32_t at), context, at)
TAKES(llama_get_embeddings, (void * context), context)
TAKES(llama_get_embeddings_ith, (void * context, int32_t at), context, at)
TAKES(llama_get_embeddings_seq, (void * context, int32_t sequence), context, sequence)
