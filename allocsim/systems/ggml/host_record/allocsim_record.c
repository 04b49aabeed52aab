// Writes what a process does with ggml as events, one JSON object a line (docs/ggml.md, "Record a process").
//
//     cc -O2 -shared -fPIC allocsim_record.c -o allocsim_record.so -ldl -lpthread
//     ALLOCSIM_RECORD=log.jsonl LD_PRELOAD=./allocsim_record.so ./program
//
// or, for a program that ggml is linked into, with `-DALLOCSIM_LINKED` as an object of its own, and `-Wl,--wrap=NAME` for
// each NAME in `ROWS`.
//
// Needs no headers and no library of ggml: structs are those of ggml since 0.13 (`ggml_tensor`; the head of
// `ggml_cgraph`, believed only where three public functions agree). Calls are seen by their names: of the program, of
// libraries among themselves, and of whoever asks `dlsym`, which stands here too; those that go by no name within a
// library, by the functions of each buffer, and of each backend and device of a scheduler, before which ours stand from
// when it is first seen. A process without ggml writes nothing; the second process of one name writes to `log.jsonl.PID`; a forked child writes nothing.
//
// A line is one write(2) behind no lock, numbered (`n`) in the order of the events, so that a killed program leaves
// all lines but the one it was in. Addresses are numbers; the reader gives them generations by births and deaths.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { COMPUTE_USAGE = 2, MOST_SRC = 10, WORDS = 16, WHOLE_HASH = 1 << 22, SAMPLES = 4096, LAST_OP = 160, NO_MORE = 1 };

typedef struct tensor {
    int32_t type;
    void * buffer;
    int64_t ne[4];
    size_t nb[4];
    int32_t op, op_params[WORDS], flags;
    struct tensor * src[MOST_SRC], * view_src;
    size_t view_offs;
    void * data;
    char name[64];
    void * extra;
    char padding[8];
} tensor;

_Static_assert(sizeof(tensor) == 336, "ggml_tensor");

typedef struct { int size, n_nodes, n_leafs; tensor ** nodes, ** grads, ** grad_accs, ** leafs; } graph_head;

// names ------------------------------------------------------------------------------------------

#ifdef ALLOCSIM_LINKED // into a program, where the linker turns each call of NAME to __wrap_NAME, and __real_NAME to NAME

static const bool linked_in = true;

#define LINKED(result, name, types, symbol) extern result name types __asm__(symbol) __attribute__((weak))
#define ASK(result, name, types, ...) ({ LINKED(result, asked_##name, types, #name); asked_##name(__VA_ARGS__); })
#define HAS(name) ({ LINKED(void, there_##name, (void), #name); there_##name != NULL; })

#else

static const bool linked_in = false;

typedef void * (*lookup)(void *, const char *);

static void * library; // a handle through which all functions of the ggml at hand can be asked for

static lookup real_dlsym(void) {
    static lookup found;
    if (!found) {
        *(void **) &found = dlvsym(RTLD_NEXT, "dlsym", "GLIBC_2.2.5");
    }
    return found;
}

static bool ours(const void * function) { // a call may be a jump from a function of ours: then we are asked for ourselves
    Dl_info here, there;
    return dladdr((const void *) real_dlsym, &here) && dladdr(function, &there) && here.dli_fbase == there.dli_fbase;
}

static void * opened(const void * address) { // a handle of the library that an address lies in
    Dl_info info;
    return address && dladdr(address, &info) && info.dli_fname ? dlopen(info.dli_fname, RTLD_LAZY | RTLD_NOLOAD) : NULL;
}

static void adopt(const void * function) {
    if (!library && function) {
        library = opened(function);
    }
}

// The function behind a name of ours: the next in the global scope, else that of the ggml at hand, or of who called.
static void * behind(const char * name, void ** kept, const void * caller) {
    if (*kept) {
        return *kept;
    }
    void * found = real_dlsym()(RTLD_NEXT, name);
    if (!found && library) {
        found = real_dlsym()(library, name);
    }
    if (!found && caller && !ours(caller)) {
        void * handle = opened(caller);
        found = handle ? real_dlsym()(handle, name) : NULL;
    }
    adopt(found);
    return *kept = found;
}

#define ASK(result, name, types, ...) \
    ({ static void * kept; result (*asked) types = (result (*) types) behind(#name, &kept, NULL); asked(__VA_ARGS__); })

static bool found(const char * name) {
    void * kept = NULL;
    return behind(name, &kept, NULL) != NULL;
}

#define HAS(name) found(#name)

#endif

// lines ------------------------------------------------------------------------------------------

static pthread_mutex_t tables = PTHREAD_MUTEX_INITIALIZER;
static uint64_t sequence;
static uint64_t pass; // one for each time that the tables are held, in which a tensor is looked at once
static int file = -1;
static bool closed;

static __thread struct { char * text; size_t length, room; } line;
static __thread int depth;              // calls of ggml that this thread is in, of those that move or compute
static __thread void * scheduling;      // the scheduler that this thread is inside of
static __thread bool announced;         // whether its run was written
static __thread bool awaited;           // whether the call comes back when its run has ended
static __thread bool computing;         // whether that scheduler was asked to compute
static __thread bool laid;              // whether what it computes is laid out, and so known
static __thread int within;             // functions of backends and buffers that this thread is in

static void say(const char * format, ...) {
    for (;;) {
        va_list arguments;
        va_start(arguments, format);
        const int needed = vsnprintf(line.text ? line.text + line.length : NULL, line.room - line.length, format, arguments);
        va_end(arguments);
        if (needed < 0 || line.length + (size_t) needed < line.room) {
            line.length += needed < 0 ? 0 : (size_t) needed;
            return;
        }
        const size_t room = 2 * (line.length + (size_t) needed) + 4096;
        char * grown = realloc(line.text, room);
        if (!grown) {
            closed = true;
            return;
        }
        line.text = grown;
        line.room = room;
    }
}

static void say_text(const char * text, size_t most) {
    say("\"");
    for (size_t k = 0; k < most && text[k]; k++) {
        const unsigned char c = (unsigned char) text[k];
        say(c == '"' || c == '\\' ? "\\%c" : c < 0x20 || c > 0x7e ? "\\u%04x" : "%c", c);
    }
    say("\"");
}

static void say_start(void) {
    say("{\"e\":\"start\",\"recorder\":6,\"ggml\":");
    say_text(HAS(ggml_version) ? ASK(const char *, ggml_version, (void)) : "", 64);
    say(",\"pid\":%d,\"inplace_ops\":[", (int) getpid());
    for (int op = 0, first = 1; op < LAST_OP && HAS(ggml_op_can_inplace); op++) {
        const char * name = ASK(const char *, ggml_op_name, (int), op);
        if (ASK(bool, ggml_op_can_inplace, (int), op)) {
            say(first ? "" : ",");
            say_text(name, 64);
            first = 0;
        }
        if (!strcmp(name, "GLU")) {
            break;
        }
    }
    say("]}\n");
}

static void in_child(void) { closed = true; }

static bool open_file(void) {
    const char * path = getenv("ALLOCSIM_RECORD");
    if (file >= 0 || closed) {
        return !closed;
    }
    char other[4096];
    if (path) {
        file = open(path, O_WRONLY | O_CREAT | O_EXCL | O_APPEND | O_CLOEXEC, 0644);
        if (file < 0 && errno == EEXIST) {
            snprintf(other, sizeof(other), "%s.%d", path, (int) getpid());
            file = open(other, O_WRONLY | O_CREAT | O_EXCL | O_APPEND | O_CLOEXEC, 0644);
        }
        pthread_atfork(NULL, NULL, in_child);
    }
    closed = file < 0;
    if (!closed) {
        say_start();
    }
    return !closed;
}

static bool begin(void) { // holds the tables until `flush`
    pthread_mutex_lock(&tables);
    line.length = 0;
    pass++;
    if (!closed && open_file()) {
        return true;
    }
    pthread_mutex_unlock(&tables);
    return false;
}

static void flush(void) {
    pthread_mutex_unlock(&tables);
    for (size_t done = 0; done < line.length && !closed;) {
        const ssize_t wrote = write(file, line.text + done, line.length - done);
        if (wrote < 0 && errno != EINTR) {
            closed = true;
        }
        done += wrote > 0 ? (size_t) wrote : 0;
    }
    line.length = 0;
}

static void open_event(const char * kind) { say("{\"e\":\"%s\",\"n\":%llu", kind, (unsigned long long) ++sequence); }

// tables -----------------------------------------------------------------------------------------

typedef struct { const void * key; uint64_t hash, pass, home; int64_t more; } entry;
typedef struct { entry * rows; size_t used, room; } table;

static table tensors, graphs; // `hash`: what was told, 0 where the memory is gone; `more`: what was told last before that;
                              // `home`: the pass in which the buffer of a tensor was told
static table listed;          // by graph; `hash`: of the tensors that were said to be there again with it
static table runs, born;
static table held;    // by scheduler; `more`: the graph that it was given and holds, NO_MORE where that one's memory is gone
static table buffers; // `more`: 1 alive, 2 alive and seen born, -1 given back
static table leafs;   // by their bytes; `more`: how many, 0 where the memory is gone

static entry * place(table * in, const void * key) {
    size_t at = ((uintptr_t) key >> 4) * 0x9e3779b97f4a7c15ull % in->room;
    while (in->rows[at].key && in->rows[at].key != key) {
        at = (at + 1) % in->room;
    }
    return &in->rows[at];
}

static entry * find(table * in, const void * key) {
    entry * found = in->room ? place(in, key) : NULL;
    return found && found->key ? found : NULL;
}

static entry * enter(table * in, const void * key) {
    if (2 * in->used >= in->room) {
        const table old = *in;
        in->room = old.room ? 2 * old.room : 1024;
        in->rows = calloc(in->room, sizeof(entry));
        for (size_t k = 0; k < old.room; k++) {
            if (old.rows[k].key) {
                *place(in, old.rows[k].key) = old.rows[k];
            }
        }
        free(old.rows);
    }
    entry * row = place(in, key);
    in->used += !row->key;
    row->key = key;
    return row;
}

static uint64_t hash_of(uint64_t seed, const void * bytes, size_t count) {
    const unsigned char * at = bytes;
    uint64_t hash = seed ^ (count * 0x9e3779b97f4a7c15ull);
    for (; count >= 8; at += 8, count -= 8) {
        uint64_t word;
        memcpy(&word, at, 8);
        hash = (hash ^ word) * 0xff51afd7ed558ccdull;
        hash ^= hash >> 32;
    }
    for (; count; at++, count--) {
        hash = (hash ^ *at) * 0xff51afd7ed558ccdull;
    }
    return hash | 1;
}

static uint64_t content_of(const void * data, size_t nbytes) {
    if (nbytes <= WHOLE_HASH) {
        return hash_of(7, data, nbytes);
    }
    uint64_t hash = 7;
    for (size_t k = 0; k < SAMPLES; k++) {
        hash = hash_of(hash, (const char *) data + (nbytes - 64) / (SAMPLES - 1) * k, 64);
    }
    return hash;
}

static size_t nbytes_of(const tensor * t) { return ASK(size_t, ggml_nbytes, (const tensor *), t); }

// the functions of a buffer ------------------------------------------------------------------------
//
// `ggml_backend_buffer` begins with its functions: free, base, init, memset, set, get, in newer versions set_2d and
// get_2d, then copy, clear, reset; behind them lies its type. Calls within a library that go by no name are seen here.

enum { FREE = 0, MEMSET = 3, SET = 4, GET = 5, BEHIND_COPY = 3, KEPT_COPY = 11, MOST_FUNCTIONS = 12 };

static table originals; // by buffer; `more`: its functions as they were
static table backends;  // and devices; `more`: their functions as they were, where ours stand; `hash`: what was said

static bool seen_inside(void);
static void moved(bool sent, const void * by, const void * host, const tensor * t, size_t offset, size_t size);
static void inside(const char * word, const void * by, const void * other, const void * first, const void * last, int count);
static void freed(void * buffer);
static void touched(const char * kind, const tensor * t, size_t offset, size_t size, const void * by);
static void settled(const tensor * t);

static void * original(void * buffer, int which) {
    pthread_mutex_lock(&tables);
    const entry * known = find(&originals, buffer);
    void * found = known ? ((void **) (uintptr_t) known->more)[which] : NULL;
    pthread_mutex_unlock(&tables);
    return found;
}

static void buffer_free(void * buffer) {
    void (* call)(void *) = (void (*)(void *)) original(buffer, FREE);
    freed(buffer);
    call(buffer);
}

static void buffer_memset(void * buffer, tensor * t, uint8_t value, size_t offset, size_t size) {
    void (* call)(void *, tensor *, uint8_t, size_t, size_t) =
        (void (*)(void *, tensor *, uint8_t, size_t, size_t)) original(buffer, MEMSET);
    if (depth++ == 0) {
        touched("set", t, offset, size, NULL);
    }
    call(buffer, t, value, offset, size);
    if (--depth == 0) {
        settled(t);
    }
}

static void buffer_set(void * buffer, tensor * t, const void * data, size_t offset, size_t size) {
    void (* call)(void *, tensor *, const void *, size_t, size_t) =
        (void (*)(void *, tensor *, const void *, size_t, size_t)) original(buffer, SET);
    if (depth++ == 0) {
        touched("set", t, offset, size, NULL);
    } else if (seen_inside()) {
        moved(true, NULL, data, t, offset, size);
    }
    within++;
    call(buffer, t, data, offset, size);
    within--;
    if (--depth == 0) {
        settled(t);
    }
}

static void buffer_get(void * buffer, const tensor * t, void * data, size_t offset, size_t size) {
    void (* call)(void *, const tensor *, void *, size_t, size_t) =
        (void (*)(void *, const tensor *, void *, size_t, size_t)) original(buffer, GET);
    if (depth++ == 0) {
        touched("get", t, offset, size, NULL);
    } else if (seen_inside()) {
        moved(false, NULL, data, t, offset, size);
    }
    within++;
    call(buffer, t, data, offset, size);
    within--;
    depth--;
}

static bool buffer_copy(void * buffer, const tensor * from, tensor * to) {
    bool (* call)(void *, const tensor *, tensor *) = (bool (*)(void *, const tensor *, tensor *)) original(buffer, KEPT_COPY);
    const bool seen = seen_inside();
    within++;
    const bool done = call(buffer, from, to);
    within--;
    if (seen && done) {
        inside("copied", NULL, NULL, from, to, 0);
    }
    return done;
}

// Whether a buffer has its functions where they are known to be, and ours stand before them now.
static bool stand_in(void * buffer) {
    void ** functions = buffer;
    const void * type = ASK(void *, ggml_backend_buffer_get_type, (void *), buffer);
    int count = 0;
    while (count < MOST_FUNCTIONS && functions[count] != type) {
        count++;
    }
    if ((count != 9 && count != 11) || !functions[FREE] || !functions[SET] || !functions[GET]) {
        return false;
    }
    void ** kept = calloc(MOST_FUNCTIONS, sizeof(void *)), ** copy = &functions[count - BEHIND_COPY];
    if (!kept) {
        return false;
    }
    memcpy(kept, functions, sizeof(void *) * (size_t) count);
    kept[KEPT_COPY] = *copy;
    entry * row = enter(&originals, buffer);
    free((void *) (uintptr_t) row->more);
    row->more = (int64_t) (uintptr_t) kept;
    // a backend with memory of its own may know its buffers by this function, as CUDA and RPC do
    if (ASK(bool, ggml_backend_buffer_is_host, (void *), buffer)) {
        functions[FREE] = (void *) buffer_free;
    }
    functions[MEMSET] = functions[MEMSET] ? (void *) buffer_memset : NULL;
    functions[SET] = (void *) buffer_set;
    functions[GET] = (void *) buffer_get;
    *copy = *copy ? (void *) buffer_copy : NULL;
    return true;
}

// Whether another buffer lies where one was given back: with functions of its own, where ours stood.
static bool made_anew(void * buffer) {
    const entry * known = find(&originals, buffer);
    return known && known->more && ((void **) buffer)[SET] == ((void **) (uintptr_t) known->more)[SET];
}

// what is told of things ---------------------------------------------------------------------------

static bool buffer_lives(void * buffer) { // says a buffer that was not told yet, and stands in its table of functions
    if (!buffer) {
        return false;
    }
    entry * known = find(&buffers, buffer);
    if (known && known->more && !(known->more < 0 && made_anew(buffer))) {
        return known->more > 0;
    }
    known = enter(&buffers, buffer);
    known->more = stand_in(buffer) || find(&born, buffer) ? 2 : 1;
    known->pass = pass;
    open_event("buffer");
    say(",\"at\":%llu,\"base\":%llu,\"size\":%zu,\"usage\":%d,\"alignment\":%zu,\"name\":", (unsigned long long) (uintptr_t) buffer,
        (unsigned long long) (uintptr_t) ASK(void *, ggml_backend_buffer_get_base, (void *), buffer),
        ASK(size_t, ggml_backend_buffer_get_size, (void *), buffer), ASK(int, ggml_backend_buffer_get_usage, (void *), buffer),
        ASK(size_t, ggml_backend_buffer_get_alignment, (void *), buffer));
    say_text(ASK(const char *, ggml_backend_buffer_name, (void *), buffer), 64);
    say("}\n");
    return true;
}

static bool lies_in(const tensor * t, void * buffer) {
    const entry * known = find(&buffers, buffer);
    const char * base = known && known->more > 0 ? ASK(void *, ggml_backend_buffer_get_base, (void *), buffer) : NULL;
    const char * data = t->data;
    return base && base <= data && data < base + ASK(size_t, ggml_backend_buffer_get_size, (void *), buffer);
}

// Returns the pass in which a buffer was said; says one that lies where another was given back, whose tensors it may have.
static uint64_t said_in(void * buffer) {
    const entry * known = buffer ? find(&buffers, buffer) : NULL;
    if (known && (known->more ? known->more < 0 && made_anew(buffer) : find(&born, buffer) != NULL)) {
        buffer_lives(buffer);
        known = find(&buffers, buffer);
    }
    return known ? known->pass : 0;
}

static void say_addresses(const char * key, tensor * const * list, int count) {
    say(",\"%s\":[", key);
    for (int k = 0; k < count; k++) {
        say(k ? ",%llu" : "%llu", (unsigned long long) (uintptr_t) list[k]);
    }
    say("]");
}

static struct { tensor ** those; int used, room; } again; // those that are there again, and not said yet

static bool note_again(const tensor * t) {
    if (again.used == again.room) {
        const int room = 2 * again.room + 1024;
        tensor ** grown = realloc(again.those, sizeof(tensor *) * (size_t) room);
        if (!grown) {
            return false;
        }
        again.those = grown;
        again.room = room;
    }
    again.those[again.used++] = (tensor *) t;
    return true;
}

// Says what lies where it lay when its memory was given back, and is as it was: of a graph that is made anew, all.
static void say_again(const void * graph) {
    if (again.used || graph) {
        open_event("again");
        say(",\"graph\":%llu", (unsigned long long) (uintptr_t) graph);
        const uint64_t list = hash_of(5, again.those, sizeof(tensor *) * (size_t) again.used);
        entry * row = graph ? enter(&listed, graph) : NULL;
        if (!row || row->hash != list) { // else they are those that were last said with this graph
            say_addresses("tensors", again.those, again.used);
        }
        if (row) {
            row->hash = list;
        }
        say("}\n");
        again.used = 0;
    }
}

// Says a tensor, unless nothing of it is new; `say_again` has to follow before anything else names it.
static void tell(const tensor * t) {
    if (!t) {
        return;
    }
    entry * known = find(&tensors, t);
    if (known && known->pass == pass) {
        return;
    }
    const uint64_t hash = hash_of(1, t, sizeof(*t));
    const bool told = known && known->hash == hash && (known->home == said_in(t->buffer) || !lies_in(t, t->buffer));
    const bool as_it_was = known && !known->hash && known->more == (int64_t) hash;
    known = enter(&tensors, t);
    known->hash = hash;
    known->pass = pass;
    if (told) {
        return;
    }
    tell(t->view_src);
    void * buffer = t->buffer ? t->buffer : t->view_src ? t->view_src->buffer : NULL;
    buffer_lives(buffer);
    enter(&tensors, t)->home = said_in(t->buffer);
    if (as_it_was && note_again(t)) {
        return;
    }
    open_event("tensor");
    say(",\"at\":%llu,\"op\":", (unsigned long long) (uintptr_t) t);
    say_text(ASK(const char *, ggml_op_name, (int), t->op), 64);
    say(",\"name\":");
    say_text(t->name, sizeof(t->name));
    say(",\"type\":");
    say_text(ASK(const char *, ggml_type_name, (int), t->type), 64);
    for (int k = 0; k < 4; k++) {
        say(k ? ",%lld" : ",\"ne\":[%lld", (long long) t->ne[k]);
    }
    for (int k = 0; k < 4; k++) {
        say(k ? ",%zu" : "],\"nb\":[%zu", t->nb[k]);
    }
    say("],\"nbytes\":%zu,\"flags\":%d,\"view_offs\":%zu,\"data\":%llu,\"buffer\":%llu,\"view_src\":%llu", nbytes_of(t), t->flags,
        t->view_offs, (unsigned long long) (uintptr_t) t->data, (unsigned long long) (uintptr_t) buffer,
        (unsigned long long) (uintptr_t) t->view_src);
    int words = WORDS, sources = MOST_SRC;
    while (words && !t->op_params[words - 1]) {
        words--;
    }
    while (sources && !t->src[sources - 1]) {
        sources--;
    }
    say(",\"op_params\":[");
    for (int k = 0; k < words; k++) {
        say(k ? ",%d" : "%d", t->op_params[k]);
    }
    say("]");
    say_addresses("src", t->src, sources);
    say("}\n");
}

static bool in_compute_memory(const tensor * t) { // asked in the middle of a line
    const entry * home = find(&buffers, t->buffer);
    return home && home->more > 0 && t->data && !t->view_src &&
        !strcmp(ASK(const char *, ggml_op_name, (int), t->op), "NONE") &&
        ASK(int, ggml_backend_buffer_get_usage, (void *), t->buffer) == COMPUTE_USAGE &&
        ASK(bool, ggml_backend_buffer_is_host, (void *), t->buffer);
}

static bool read_head(const void * graph, graph_head * head) {
    memcpy(head, graph, sizeof(*head));
    return head->n_nodes == ASK(int, ggml_graph_n_nodes, (const void *), graph) &&
        head->nodes == ASK(tensor **, ggml_graph_nodes, (const void *), graph) && head->n_leafs >= 0 &&
        head->n_leafs <= head->size && head->n_nodes <= head->size;
}

static bool tell_graph(const void * graph) {
    graph_head head;
    if (!graph || !read_head(graph, &head)) {
        return false;
    }
    for (int k = 0; k < head.n_leafs; k++) {
        tell(head.leafs[k]);
    }
    for (int k = 0; k < head.n_nodes; k++) {
        for (int s = 0; s < MOST_SRC; s++) {
            tell(head.nodes[k]->src[s]);
        }
        tell(head.nodes[k]);
    }
    const uint64_t lists = hash_of(hash_of(3, head.leafs, sizeof(void *) * (size_t) head.n_leafs), head.nodes,
                                   sizeof(void *) * (size_t) head.n_nodes);
    entry * known = enter(&graphs, graph);
    const bool told = known->hash == lists, as_it_was = !known->hash && known->more == (int64_t) lists;
    known->hash = lists;
    say_again(as_it_was ? graph : NULL);
    if (!told && !as_it_was) {
        open_event("graph");
        say(",\"at\":%llu", (unsigned long long) (uintptr_t) graph);
        say_addresses("leafs", head.leafs, head.n_leafs);
        say_addresses("nodes", head.nodes, head.n_nodes);
        say("}\n");
    }
    return true;
}

// Leafs whose bytes are other than those that the last run or call left there (written by a pointer), or as they were.
static void say_leafs(const void * graph, const char * key, bool changed) {
    graph_head head;
    int count = 0;
    say(",\"%s\":[", key);
    for (int k = 0; read_head(graph, &head) && k < head.n_leafs; k++) {
        const tensor * t = head.leafs[k];
        const entry * known = find(&leafs, t->data);
        if (known && known->hash && in_compute_memory(t) && known->more == (int64_t) nbytes_of(t) &&
            (known->hash != content_of(t->data, nbytes_of(t))) == changed) {
            say(count++ ? ",%llu" : "%llu", (unsigned long long) (uintptr_t) t);
        }
    }
    say("]");
}

static void remember_leafs(const void * graph) {
    graph_head head;
    for (int k = 0; read_head(graph, &head) && k < head.n_leafs; k++) {
        if (in_compute_memory(head.leafs[k])) {
            entry * known = enter(&leafs, head.leafs[k]->data);
            known->hash = 0;
            known->more = (int64_t) nbytes_of(head.leafs[k]);
        }
    }
}

// Notes what the leafs hold that share a byte with [from, to).
static void note_content(const char * from, const char * to) {
    for (size_t k = 0; k < leafs.room; k++) {
        const char * data = leafs.rows[k].key;
        if (data && leafs.rows[k].more && data < to && from < data + leafs.rows[k].more) {
            leafs.rows[k].hash = content_of(data, (size_t) leafs.rows[k].more);
        }
    }
}

static void forget_leafs(const char * from, const char * to) {
    for (size_t k = 0; k < leafs.room; k++) {
        const char * data = leafs.rows[k].key;
        if (data && data >= from && data < to) {
            leafs.rows[k].more = 0;
        }
    }
}

static void forget(const char * from, const char * to) {
    table * those[] = { &tensors, &graphs };
    for (size_t k = 0; k < 2; k++) {
        for (size_t row = 0; row < those[k]->room; row++) {
            entry * one = &those[k]->rows[row];
            const char * key = one->key;
            if (key && key >= from && key < to && one->hash) {
                one->more = (int64_t) one->hash;
                one->hash = 0;
            }
        }
    }
    for (size_t row = 0; row < held.room; row++) {
        const char * graph = (const char *) (uintptr_t) held.rows[row].more;
        if (graph >= from && graph < to) {
            held.rows[row].more = NO_MORE;
        }
    }
}

// events -----------------------------------------------------------------------------------------

static void touched_into(const char * kind, const tensor * t, size_t offset, size_t size, const void * by, const void * into) {
    if (!begin()) {
        return;
    }
    tell(t);
    say_again(NULL);
    open_event(kind);
    say(",\"t\":%llu,\"from\":%zu,\"size\":%zu", (unsigned long long) (uintptr_t) t, offset, size);
    if (by) {
        say(",\"by\":%llu", (unsigned long long) (uintptr_t) by);
    }
    if (into) {
        say(",\"into\":%llu", (unsigned long long) (uintptr_t) into);
    }
    say("}\n");
    flush();
}

static void touched(const char * kind, const tensor * t, size_t offset, size_t size, const void * by) {
    touched_into(kind, t, offset, size, by, NULL);
}

static void settled(const tensor * t) { // after a write by a call
    if (!begin()) {
        return;
    }
    if (t->data) {
        note_content(t->data, (const char *) t->data + nbytes_of(t));
    }
    flush();
}

static void plain(const char * kind, const void * by, const void * other) {
    if (begin()) {
        open_event(kind);
        say(",\"by\":%llu,\"other\":%llu}\n", (unsigned long long) (uintptr_t) by, (unsigned long long) (uintptr_t) other);
        flush();
    }
}

static void say_backends(void * sched);

static bool backends_are_told(void) {
    return HAS(ggml_backend_sched_get_n_backends) && HAS(ggml_backend_sched_get_backend);
}

// Waits for a scheduler are waits for its backends, which are told here: it may not have run yet.
static void scheduler_waits(void * sched) {
    if (begin()) {
        open_event("sync");
        say(",\"by\":%llu,\"other\":0", (unsigned long long) (uintptr_t) sched);
        say_backends(sched);
        say("}\n");
        flush();
    }
}

static void ended(const void * by) { // what comes to lie at its address is another one
    if (by && begin()) {
        entry * known = find(&runs, by);
        if (known) {
            known->more = 0;
        }
        enter(&held, by)->more = 0;
        entry * seen = find(&backends, by);
        if (seen) {
            seen->hash = 0; // its functions are asked for until it is gone
        }
        open_event("ended");
        say(",\"by\":%llu}\n", (unsigned long long) (uintptr_t) by);
        flush();
    }
}

static void planned(const void * planner, const void * graph) {
    if (!begin()) {
        return;
    }
    if (tell_graph(graph)) {
        open_event("plan");
        say(",\"by\":%llu,\"graph\":%llu,\"for\":%llu}\n", (unsigned long long) (uintptr_t) planner,
            (unsigned long long) (uintptr_t) graph, (unsigned long long) (uintptr_t) scheduling);
    }
    if (scheduling) {
        entry * of = enter(&runs, scheduling);
        of->hash = 1;
        of->more = (int64_t) (uintptr_t) graph;
        laid = true;
    }
    flush();
}

static void holds(void * sched, const void * graph) {
    if (begin()) {
        enter(&held, sched)->more = (int64_t) (uintptr_t) graph;
        flush();
    }
}

// A scheduler that holds a graph computes that one, whichever it is given. One that holds none lays out what it is given:
// then nobody can have filled the leafs that have no memory yet. Returns what will be computed, where that is known and
// ggml is linked in.
static const void * asked_to_compute(void * sched, const void * graph) {
    graph_head head;
    const void * ready = NULL;
    laid = false;
    if (!begin()) {
        return NULL;
    }
    entry * holding = enter(&held, sched);
    if (!read_head(graph, &head)) {
        holding->more = 0;
    } else if (!holding->more) {
        holding->more = (int64_t) (uintptr_t) graph;
        tensor ** bare = malloc(sizeof(tensor *) * (size_t) (head.n_leafs + 1));
        int count = 0;
        for (int k = 0; bare && k < head.n_leafs; k++) {
            if (!head.leafs[k]->data && !head.leafs[k]->view_src) {
                tell(bare[count++] = head.leafs[k]);
            }
        }
        say_again(NULL);
        if (count) {
            open_event("bare");
            say(",\"by\":%llu", (unsigned long long) (uintptr_t) sched);
            say_addresses("leafs", bare, count);
            say("}\n");
        }
        free(bare);
    } else {
        const entry * of = find(&runs, sched);
        laid = true;
        ready = linked_in && of ? (const void *) (uintptr_t) of->more : NULL;
        if (holding->more != (int64_t) (uintptr_t) graph && tell_graph(graph)) {
            open_event("asked");
            say(",\"by\":%llu,\"graph\":%llu}\n", (unsigned long long) (uintptr_t) sched, (unsigned long long) (uintptr_t) graph);
        }
    }
    flush();
    return ready;
}

static void given_up(void * sched) { // all that a scheduler laid out
    if (begin()) {
        enter(&held, sched)->more = 0;
        open_event("reset");
        say(",\"by\":%llu}\n", (unsigned long long) (uintptr_t) sched);
        flush();
    }
}

// What was reserved for a graph: the bytes of each buffer behind it, of a scheduler's backends or of an allocator.
static void reserved(void * by, const void * graph, bool schedules, bool done) {
    if (!begin()) {
        return;
    }
    const bool told = schedules && backends_are_told() && HAS(ggml_backend_sched_get_buffer_size);
    const int count = told ? ASK(int, ggml_backend_sched_get_n_backends, (void *), by) : !schedules;
    open_event("reserve");
    say(",\"by\":%llu,\"graph\":%llu,\"done\":%s,\"sizes\":[", (unsigned long long) (uintptr_t) by,
        (unsigned long long) (uintptr_t) graph, done ? "true" : "false");
    for (int k = 0; k < count; k++) {
        say(k ? ",%zu" : "%zu", schedules
            ? ASK(size_t, ggml_backend_sched_get_buffer_size, (void *, void *), by,
                  ASK(void *, ggml_backend_sched_get_backend, (void *, int), by, k))
            : ASK(size_t, ggml_gallocr_get_buffer_size, (void *, int), by, k));
    }
    say("]}\n");
    flush();
}

static void stepped(const char * word, const void * by, bool backward) {
    if (begin()) {
        open_event("opt");
        say(",\"by\":%llu,\"word\":\"%s\",\"backward\":%s}\n", (unsigned long long) (uintptr_t) by, word,
            backward ? "true" : "false");
        flush();
    }
}

static void say_cells(const void * graph);

static int count_backends(void * sched) { return ASK(int, ggml_backend_sched_get_n_backends, (void *), sched); }

static void * backend_of(void * sched, int k) { return ASK(void *, ggml_backend_sched_get_backend, (void *, int), sched, k); }

static void say_backends(void * sched) {
    if (backends_are_told()) {
        say(",\"backends\":[");
        for (int k = 0; k < count_backends(sched); k++) {
            say(k ? ",%llu" : "%llu", (unsigned long long) (uintptr_t) backend_of(sched, k));
        }
        say("]");
    }
}

// Elements of a leaf of up to so many bytes, where they are other than those last told to lie there.
static void say_elements(const tensor * t, size_t most) {
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    static table told;
    const size_t nbytes = t ? nbytes_of(t) : 0;
    if (!nbytes || nbytes > most || t->view_src || strcmp(ASK(const char *, ggml_op_name, (int), t->op), "NONE") || !t->data ||
        !t->buffer || !buffer_lives(t->buffer) || !ASK(bool, ggml_backend_buffer_is_host, (void *), t->buffer)) {
        return;
    }
    const uint64_t hash = hash_of(11, t->data, nbytes);
    entry * row = enter(&told, t->data);
    if (row->hash == hash) {
        return;
    }
    row->hash = hash;
    open_event("elements");
    say(",\"t\":%llu,\"bytes\":\"", (unsigned long long) (uintptr_t) t);
    const unsigned char * at = t->data;
    for (size_t k = 0; k < nbytes; k += 3) {
        const size_t left = nbytes - k;
        const unsigned word = at[k] << 16 | (left > 1 ? at[k + 1] : 0) << 8 | (left > 2 ? at[k + 2] : 0);
        say("%c%c%c%c", digits[word >> 18], digits[word >> 12 & 63], left > 1 ? digits[word >> 6 & 63] : '=',
            left > 2 ? digits[word & 63] : '=');
    }
    say("\"}\n");
}

static void say_all_elements(const void * graph) {
    const char * asked_for = getenv("ALLOCSIM_RECORD_ELEMENTS");
    const size_t most = asked_for ? strtoull(asked_for, NULL, 10) : 0;
    graph_head head;
    if (!most || !read_head(graph, &head)) { // no look at a tensor of any run where nothing is asked for
        return;
    }
    for (int k = 0; k < head.n_leafs + head.n_nodes; k++) {
        const tensor * t = k < head.n_leafs ? head.leafs[k] : head.nodes[k - head.n_leafs];
        say_elements(t->view_src ? t->view_src : t, most);
    }
}

static void run_begins(const void * by, const void * graph, bool waits) {
    if (!begin()) {
        return;
    }
    if (tell_graph(graph)) {
        say_cells(graph);
        say_all_elements(graph);
        open_event("run");
        say(",\"by\":%llu,\"graph\":%llu,\"waits\":%s,\"thread\":%llu", (unsigned long long) (uintptr_t) by,
            (unsigned long long) (uintptr_t) graph, waits ? "true" : "false", (unsigned long long) pthread_self());
        say_leafs(graph, "changed", true);
        say_leafs(graph, "same", false);
        if (by == scheduling) {
            say_backends(scheduling);
        }
        say("}\n");
        remember_leafs(graph);
    }
    flush();
}

static void run_ended(const void * by) {
    if (begin()) {
        note_content(NULL, (const char *) UINTPTR_MAX);
        open_event("ran");
        say(",\"by\":%llu}\n", (unsigned long long) (uintptr_t) by);
        flush();
    }
}

// the functions of a backend -----------------------------------------------------------------------
//
// `ggml_backend` is a guid and its functions: name, free, set and get that come back at once, in newer versions set_2d and
// get_2d, a copy from another backend, synchronize, four for plans, compute, record and wait of an event, in newer versions
// optimize; behind them lies its device. `ggml_backend_device`: fifteen, of which the last waits for an event, and its
// registry. A scheduler asks them by no name. Functions that give back nothing may give back something in other versions.

enum { COPY, SYNC, COMPUTE, RECORD, WAIT, SEND, FETCH, CALLS, DEVICE_CALLS = 15, MOST_WORDS = 18 };
enum { UNTOLD, SEEN, UNSEEN }; // what was said of a backend

static const int PLACES[CALLS] = { 0, 1, 6, 7, 8 }; // among the words of a backend, from the copy on
enum { SET_WORD = 3, GET_WORD };                    // those that come back at once, among all of its words

typedef struct { const void * head; void * call[CALLS]; } standing;

static const standing * standing_of(void * object) {
    const entry * known = find(&backends, object);
    const standing * found = known ? (const standing *) (uintptr_t) known->more : NULL;
    for (size_t k = 0; !found && k < backends.room; k++) { // a copy of one before whose functions ours stood
        const standing * other = (const standing *) (uintptr_t) backends.rows[k].more;
        found = other && other->head == *(void **) object ? other : NULL;
    }
    return found;
}

static void * behind_ours(void * object, int which) {
    pthread_mutex_lock(&tables);
    const standing * found = standing_of(object);
    void * call = found ? found->call[which] : NULL;
    pthread_mutex_unlock(&tables);
    return call;
}

// Whether a call is one of a scheduler's that computes what is known, and of which its run is told: now, at the latest.
static bool seen_inside(void) {
    if (!computing || !laid || within) {
        return false;
    }
    if (!announced) {
        pthread_mutex_lock(&tables);
        const entry * of = find(&runs, scheduling);
        const void * graph = of ? (const void *) (uintptr_t) of->more : NULL;
        pthread_mutex_unlock(&tables);
        if (!graph) {
            return false;
        }
        announced = true;
        run_begins(scheduling, graph, awaited);
    }
    return true;
}

static void inside(const char * word, const void * by, const void * other, const void * first, const void * last, int count) {
    if (begin()) {
        open_event("inside");
        say(",\"in\":%llu,\"word\":\"%s\",\"by\":%llu,\"other\":%llu,\"first\":%llu,\"last\":%llu,\"count\":%d}\n",
            (unsigned long long) (uintptr_t) scheduling, word, (unsigned long long) (uintptr_t) by,
            (unsigned long long) (uintptr_t) other, (unsigned long long) (uintptr_t) first,
            (unsigned long long) (uintptr_t) last, count);
        flush();
    }
}

// A part of a tensor was sent from host memory, or fetched into it, by a backend later or by the host at once.
static void moved(bool sent, const void * by, const void * host, const tensor * t, size_t offset, size_t size) {
    if (begin()) {
        open_event("inside");
        say(",\"in\":%llu,\"word\":\"%s\",\"by\":%llu,\"other\":%llu,\"first\":%llu,\"last\":%zu,\"count\":%zu}\n",
            (unsigned long long) (uintptr_t) scheduling, sent ? "sent" : "fetched", (unsigned long long) (uintptr_t) by,
            (unsigned long long) (uintptr_t) host, (unsigned long long) (uintptr_t) t, offset, size);
        flush();
    }
}

static void backend_send(void * backend, tensor * t, const void * data, size_t offset, size_t size) {
    void (* call)(void *, tensor *, const void *, size_t, size_t) =
        (void (*)(void *, tensor *, const void *, size_t, size_t)) behind_ours(backend, SEND);
    if (seen_inside()) {
        moved(true, backend, data, t, offset, size);
    }
    within++;
    call(backend, t, data, offset, size);
    within--;
}

static void backend_fetch(void * backend, const tensor * t, void * data, size_t offset, size_t size) {
    void (* call)(void *, const tensor *, void *, size_t, size_t) =
        (void (*)(void *, const tensor *, void *, size_t, size_t)) behind_ours(backend, FETCH);
    if (seen_inside()) {
        moved(false, backend, data, t, offset, size);
    }
    within++;
    call(backend, t, data, offset, size);
    within--;
}

static bool backend_copy(void * one, void * other, const tensor * from, tensor * to) {
    bool (* call)(void *, void *, const tensor *, tensor *) =
        (bool (*)(void *, void *, const tensor *, tensor *)) behind_ours(other, COPY);
    const bool seen = seen_inside();
    within++;
    const bool done = call(one, other, from, to);
    within--;
    if (seen && done) {
        inside("copy", other, one, from, to, 0);
    }
    return done;
}

static uintptr_t backend_sync(void * backend) {
    uintptr_t (* call)(void *) = (uintptr_t (*)(void *)) behind_ours(backend, SYNC);
    if (seen_inside()) {
        inside("sync", backend, NULL, NULL, NULL, 0);
    } else if (!within && (computing || depth == 0)) {
        plain("sync", backend, NULL);
    }
    within++;
    const uintptr_t back = call ? call(backend) : 0;
    within--;
    return back;
}

static int backend_compute(void * backend, void * graph) {
    int (* call)(void *, void *) = (int (*)(void *, void *)) behind_ours(backend, COMPUTE);
    const int count = ASK(int, ggml_graph_n_nodes, (const void *), graph);
    if (count && seen_inside()) {
        tensor ** nodes = ASK(tensor **, ggml_graph_nodes, (const void *), graph);
        inside("split", backend, NULL, nodes[0], nodes[count - 1], count);
    }
    within++;
    const int status = call(backend, graph);
    within--;
    return status;
}

#define OF_EVENTS(name, which, word, by, other) \
    static uintptr_t name(void * one, void * event) { \
        uintptr_t (* call)(void *, void *) = (uintptr_t (*)(void *, void *)) behind_ours(one, which); \
        if (seen_inside()) { \
            inside(word, by, other, NULL, NULL, 0); \
        } \
        within++; \
        const uintptr_t back = call(one, event); \
        within--; \
        return back; \
    }
OF_EVENTS(backend_record, RECORD, "record", event, one)
OF_EVENTS(backend_wait, WAIT, "wait", event, one)
OF_EVENTS(device_wait, WAIT, "wait", event, NULL)

static void stand_before(void * object, const standing * as_they_were) {
    standing * kept = malloc(sizeof(standing));
    entry * row = enter(&backends, object);
    if (kept) {
        *kept = *as_they_were;
        free((void *) (uintptr_t) row->more);
    }
    row->more = (int64_t) (uintptr_t) kept;
}

// Whether the wait of a device, where it has one, is seen: or what the host waits for would not be known.
static bool know_device(void * device) {
    void ** words = device;
    void ** wait = &words[DEVICE_CALLS - 1];
    if (words[DEVICE_CALLS] != ASK(void *, ggml_backend_dev_backend_reg, (void *), device)) {
        return false;
    }
    if (*wait && *wait != (void *) device_wait) {
        if (find(&backends, device)) { // somebody else's stands before ours by now
            return false;
        }
        stand_before(device, &(standing) { words[0], { [WAIT] = *wait } });
        *wait = (void *) device_wait;
    }
    return true;
}

// Says a backend, unless it was told, and whether ours stand before its functions now. Where a program has put functions of
// its own before ours, which may go on to them, ours are not put before those: they would ask each other without end.
static bool know_backend(void * backend) {
    void * ours[CALLS] = { (void *) backend_copy, (void *) backend_sync, (void *) backend_compute, (void *) backend_record,
                           (void *) backend_wait, (void *) backend_send, (void *) backend_fetch };
    void ** words = backend, * device = ASK(void *, ggml_backend_get_device, (void *), backend);
    const entry * row = find(&backends, backend);
    const uint64_t told = row ? row->hash : UNTOLD;
    if (told == UNSEEN) {
        return false;
    }
    const standing * before = standing_of(backend);
    int at = 1;
    while (at < MOST_WORDS && words[at] != device) {
        at++;
    }
    void ** functions = at == 17 ? &words[7] : at == 14 || at == 15 ? &words[5] : NULL;
    bool there = device && functions && functions[PLACES[COMPUTE]] && know_device(device);
    standing were = { .head = words[0] };
    for (int k = 0; there && k < CALLS; k++) {
        void ** function = k < SEND ? &functions[PLACES[k]] : &words[k == SEND ? SET_WORD : GET_WORD];
        if (told == SEEN) {
            there = !*function || *function == ours[k];
            continue;
        }
        were.call[k] = *function != ours[k] ? *function : before ? before->call[k] : NULL;
        *function = were.call[k] || k == SYNC ? ours[k] : NULL;
    }
    if (told == SEEN && there) {
        return true;
    }
    if (there) {
        stand_before(backend, &were);
    }
    enter(&backends, backend)->hash = there ? SEEN : UNSEEN;
    open_event("backend");
    say(",\"at\":%llu,\"seen\":%s,\"queues\":%s,\"name\":", (unsigned long long) (uintptr_t) backend,
        there ? "true" : "false", !there || were.call[SYNC] ? "true" : "false");
    say_text(ASK(const char *, ggml_backend_name, (void *), backend), 64);
    say("}\n");
    return there;
}

// Whether a scheduler has several backends, and all that it asks of them is seen.
static bool know_backends(void * sched) {
    bool all = backends_are_told() && HAS(ggml_backend_get_device) && HAS(ggml_backend_dev_backend_reg) && begin();
    if (!all) {
        return false;
    }
    const int count = count_backends(sched);
    for (int k = 0; count > 1 && k < count; k++) {
        all = know_backend(backend_of(sched, k)) && all;
    }
    flush();
    return all && count > 1;
}

// the functions that stand before ggml's -------------------------------------------------------------

#ifdef ALLOCSIM_LINKED
#define REAL(result, name, types) \
    result name types __asm__("__wrap_" #name); \
    LINKED(result, name##_linked, types, "__real_" #name); \
    typedef result (*name##_type) types; \
    static name##_type name##_real(const void * caller) { (void) caller; return name##_linked; }
#else
#define REAL(result, name, types) \
    static void * name##_kept; \
    typedef result (*name##_type) types; \
    static name##_type name##_real(const void * caller) { return (name##_type) behind(#name, &name##_kept, caller); }
#endif
#define CALL(name) name##_real(__builtin_return_address(0))

REAL(void, ggml_backend_tensor_set, (tensor *, const void *, size_t, size_t))
void ggml_backend_tensor_set(tensor * t, const void * data, size_t offset, size_t size) {
    ggml_backend_tensor_set_type call = CALL(ggml_backend_tensor_set);
    if (depth++ == 0) {
        touched("set", t, offset, size, NULL);
    }
    call(t, data, offset, size);
    if (--depth == 0) {
        settled(t);
    }
}

REAL(void, ggml_backend_tensor_set_async, (void *, tensor *, const void *, size_t, size_t))
void ggml_backend_tensor_set_async(void * backend, tensor * t, const void * data, size_t offset, size_t size) {
    ggml_backend_tensor_set_async_type call = CALL(ggml_backend_tensor_set_async);
    if (depth++ == 0) {
        touched("set", t, offset, size, backend);
    }
    call(backend, t, data, offset, size);
    if (--depth == 0) {
        settled(t);
    }
}

REAL(void, ggml_backend_tensor_get, (const tensor *, void *, size_t, size_t))
void ggml_backend_tensor_get(const tensor * t, void * data, size_t offset, size_t size) {
    ggml_backend_tensor_get_type call = CALL(ggml_backend_tensor_get);
    if (depth++ == 0) {
        touched("get", t, offset, size, NULL);
    }
    call(t, data, offset, size);
    depth--;
}

REAL(void, ggml_backend_tensor_get_async, (void *, const tensor *, void *, size_t, size_t))
void ggml_backend_tensor_get_async(void * backend, const tensor * t, void * data, size_t offset, size_t size) {
    ggml_backend_tensor_get_async_type call = CALL(ggml_backend_tensor_get_async);
    if (depth++ == 0) {
        touched_into("get", t, offset, size, backend, data);
    }
    call(backend, t, data, offset, size);
    depth--;
}

REAL(void, ggml_backend_tensor_memset, (tensor *, uint8_t, size_t, size_t))
void ggml_backend_tensor_memset(tensor * t, uint8_t value, size_t offset, size_t size) {
    ggml_backend_tensor_memset_type call = CALL(ggml_backend_tensor_memset);
    if (depth++ == 0) {
        touched("set", t, offset, size, NULL);
    }
    call(t, value, offset, size);
    if (--depth == 0) {
        settled(t);
    }
}

REAL(void, ggml_backend_tensor_copy, (tensor *, tensor *))
void ggml_backend_tensor_copy(tensor * from, tensor * to) {
    ggml_backend_tensor_copy_type call = CALL(ggml_backend_tensor_copy);
    if (depth++ == 0) {
        touched("get", from, 0, nbytes_of(from), NULL);
        touched("set", to, 0, nbytes_of(to), NULL);
    }
    call(from, to);
    if (--depth == 0) {
        settled(to);
    }
}

REAL(void, ggml_backend_tensor_copy_async, (void *, void *, tensor *, tensor *))
void ggml_backend_tensor_copy_async(void * one, void * other, tensor * from, tensor * to) {
    ggml_backend_tensor_copy_async_type call = CALL(ggml_backend_tensor_copy_async);
    if (depth++ == 0) {
        touched("get", from, 0, nbytes_of(from), one);
        touched("set", to, 0, nbytes_of(to), other);
    }
    call(one, other, from, to);
    if (--depth == 0) {
        settled(to);
    }
}

#define WRITES(name) \
    REAL(tensor *, name, (tensor *)) \
    tensor * name(tensor * t) { \
        name##_type call = CALL(name); \
        if (depth++ == 0) { \
            touched("set", t, 0, nbytes_of(t), NULL); \
        } \
        tensor * same = call(t); \
        if (--depth == 0) { \
            settled(t); \
        } \
        return same; \
    }
WRITES(ggml_set_zero)

REAL(float, ggml_get_f32_1d, (const tensor *, int))
float ggml_get_f32_1d(const tensor * t, int at) {
    ggml_get_f32_1d_type call = CALL(ggml_get_f32_1d);
    if (depth++ == 0) {
        touched("get", t, 0, nbytes_of(t), NULL);
    }
    const float found = call(t, at);
    depth--;
    return found;
}

REAL(void, ggml_backend_synchronize, (void *))
void ggml_backend_synchronize(void * backend) {
    ggml_backend_synchronize_type call = CALL(ggml_backend_synchronize);
    if (depth++ == 0) {
        plain("sync", backend, NULL);
    }
    call(backend);
    depth--;
}

REAL(void, ggml_backend_sched_synchronize, (void *))
void ggml_backend_sched_synchronize(void * sched) {
    ggml_backend_sched_synchronize_type call = CALL(ggml_backend_sched_synchronize);
    if (depth++ == 0) {
        scheduler_waits(sched);
    }
    call(sched);
    depth--;
}

#define ENDS(name) \
    REAL(void, name, (void *)) \
    void name(void * one) { \
        name##_type call = CALL(name); \
        ended(one); \
        call(one); \
    }
ENDS(ggml_backend_sched_free)
ENDS(ggml_backend_free)
ENDS(ggml_backend_event_free)

REAL(void, ggml_backend_event_record, (void *, void *))
void ggml_backend_event_record(void * event, void * backend) {
    ggml_backend_event_record_type call = CALL(ggml_backend_event_record);
    if (depth == 0) {
        plain("record", event, backend);
    }
    call(event, backend);
}

REAL(void, ggml_backend_event_wait, (void *, void *))
void ggml_backend_event_wait(void * backend, void * event) {
    ggml_backend_event_wait_type call = CALL(ggml_backend_event_wait);
    if (depth == 0) {
        plain("wait", event, backend);
    }
    call(backend, event);
}

REAL(void, ggml_backend_event_synchronize, (void *))
void ggml_backend_event_synchronize(void * event) {
    ggml_backend_event_synchronize_type call = CALL(ggml_backend_event_synchronize);
    if (depth == 0) {
        plain("wait", event, NULL);
    }
    call(event);
}

REAL(bool, ggml_gallocr_alloc_graph, (void *, void *))
bool ggml_gallocr_alloc_graph(void * planner, void * graph) {
    const bool done = CALL(ggml_gallocr_alloc_graph)(planner, graph);
    if (done) {
        planned(planner, graph);
    }
    return done;
}

REAL(void *, ggml_backend_buft_alloc_buffer, (void *, size_t))
void * ggml_backend_buft_alloc_buffer(void * kind, size_t size) {
    void * made = CALL(ggml_backend_buft_alloc_buffer)(kind, size);
    if (made && begin()) {
        entry * known = find(&buffers, made);
        if (known) {
            known->more = 0;
        }
        enter(&born, made);
        flush();
    }
    return made;
}

static void freed(void * buffer) {
    if (buffer && begin()) {
        entry * known = find(&buffers, buffer);
        if (known && known->more > 0) {
            open_event("free");
            say(",\"at\":%llu}\n", (unsigned long long) (uintptr_t) buffer);
            const char * base = ASK(void *, ggml_backend_buffer_get_base, (void *), buffer);
            forget_leafs(base, base + ASK(size_t, ggml_backend_buffer_get_size, (void *), buffer));
            known->more = known->more == 2 ? -1 : 0; // one whose birth was not seen may be followed by another like it
        }
        flush();
    }
}

REAL(void, ggml_backend_buffer_free, (void *))
void ggml_backend_buffer_free(void * buffer) {
    ggml_backend_buffer_free_type call = CALL(ggml_backend_buffer_free);
    freed(buffer);
    call(buffer);
}

static void context_ends(void * ctx) {
    if (ctx && HAS(ggml_get_mem_buffer) && begin()) {
        const char * from = ASK(void *, ggml_get_mem_buffer, (const void *), ctx);
        const char * to = from + ASK(size_t, ggml_get_mem_size, (const void *), ctx);
        forget(from, to);
        open_event("gone");
        say(",\"from\":%llu,\"to\":%llu}\n", (unsigned long long) (uintptr_t) from, (unsigned long long) (uintptr_t) to);
        flush();
    }
}

REAL(void, ggml_free, (void *))
void ggml_free(void * ctx) {
    ggml_free_type call = CALL(ggml_free);
    context_ends(ctx);
    call(ctx);
}

REAL(void, ggml_reset, (void *))
void ggml_reset(void * ctx) {
    ggml_reset_type call = CALL(ggml_reset);
    context_ends(ctx);
    call(ctx);
}

#define COMPUTES(name, waits) \
    REAL(int, name, (void *, void *)) \
    int name(void * backend, void * graph) { \
        name##_type call = CALL(name); \
        if (depth++ == 0 && !within) { \
            run_begins(backend, graph, waits); \
        } else if (scheduling && !announced && !within) { \
            const entry * of = find(&runs, scheduling); \
            announced = true; \
            run_begins(scheduling, of && of->more ? (const void *) (uintptr_t) of->more : graph, awaited); \
        } \
        const int status = call(backend, graph); \
        if (--depth == 0 && !within) { \
            run_ended(backend); \
        } \
        return status; \
    }
COMPUTES(ggml_backend_graph_compute, true)
COMPUTES(ggml_backend_graph_compute_async, false)

#define SCHEDULED(result, name) \
    REAL(result, name, (void *, void *)) \
    result name(void * sched, void * graph) { \
        name##_type call = CALL(name); \
        void * before = scheduling; \
        scheduling = sched; \
        const result status = call(sched, graph); \
        scheduling = before; \
        if (status && depth == 0) { \
            holds(sched, graph); \
        } \
        return status; \
    }
SCHEDULED(bool, ggml_backend_sched_alloc_graph)

#define SCHEDULE_COMPUTES(name, waits) \
    REAL(int, name, (void *, void *)) \
    int name(void * sched, void * graph) { \
        name##_type call = CALL(name); \
        void * before = scheduling; \
        const bool outer = depth++ == 0, inner = computing; \
        scheduling = sched; \
        announced = outer ? false : announced; \
        awaited = outer ? waits || !backends_are_told() : awaited; /* or nobody could say what waits for it */ \
        const void * ready = outer ? asked_to_compute(sched, graph) : NULL; \
        if (ready) { /* no call within the library will be seen, and behind this one its inputs are gone */ \
            announced = true; \
            run_begins(sched, ready, awaited); \
        } \
        computing = know_backends(sched); \
        const int status = call(sched, graph); \
        computing = inner; \
        depth--; \
        if (outer && !announced) { /* calls within the library go by no name */ \
            run_begins(sched, graph, awaited); \
        } \
        scheduling = before; \
        if (outer) { \
            run_ended(sched); \
        } \
        return status; \
    }
SCHEDULE_COMPUTES(ggml_backend_sched_graph_compute, true)
SCHEDULE_COMPUTES(ggml_backend_sched_graph_compute_async, false)

REAL(void, ggml_backend_sched_reset, (void *))
void ggml_backend_sched_reset(void * sched) {
    ggml_backend_sched_reset_type call = CALL(ggml_backend_sched_reset);
    if (depth == 0) {
        given_up(sched);
    }
    call(sched);
}

REAL(bool, ggml_backend_sched_reserve, (void *, void *))
bool ggml_backend_sched_reserve(void * sched, void * graph) {
    ggml_backend_sched_reserve_type call = CALL(ggml_backend_sched_reserve);
    if (depth++ == 0) {
        scheduler_waits(sched);
    }
    const bool done = call(sched, graph);
    if (--depth == 0) {
        reserved(sched, graph, true, done);
        given_up(sched);
    }
    return done;
}

REAL(void, ggml_backend_sched_reserve_size, (void *, void *, size_t *))
void ggml_backend_sched_reserve_size(void * sched, void * graph, size_t * sizes) {
    CALL(ggml_backend_sched_reserve_size)(sched, graph, sizes);
    if (depth == 0) {
        given_up(sched); // its own call of reset is seen only where it goes by a name
    }
}

REAL(bool, ggml_gallocr_reserve, (void *, void *))
bool ggml_gallocr_reserve(void * planner, void * graph) {
    ggml_gallocr_reserve_type call = CALL(ggml_gallocr_reserve);
    const bool done = call(planner, graph);
    if (depth == 0 && !scheduling) {
        reserved(planner, graph, false, done);
    }
    return done;
}

REAL(void, ggml_opt_alloc, (void *, bool))
void ggml_opt_alloc(void * opt, bool backward) {
    ggml_opt_alloc_type call = CALL(ggml_opt_alloc);
    stepped("alloc", opt, backward);
    call(opt, backward);
}

REAL(void, ggml_opt_eval, (void *, void *))
void ggml_opt_eval(void * opt, void * result) {
    ggml_opt_eval_type call = CALL(ggml_opt_eval);
    stepped("eval", opt, false);
    call(opt, result);
    stepped("done", opt, false);
}

#include "llama_record.h"

#ifndef ALLOCSIM_LINKED

#define ROW(name) { #name, (void *) name, &name##_kept }
static const struct { const char * name; void * ours; void ** kept; } ROWS[] = {
    ROW(ggml_backend_tensor_set), ROW(ggml_backend_tensor_set_async), ROW(ggml_backend_tensor_get),
    ROW(ggml_backend_tensor_get_async), ROW(ggml_backend_tensor_memset), ROW(ggml_backend_tensor_copy),
    ROW(ggml_backend_tensor_copy_async), ROW(ggml_set_zero), ROW(ggml_get_f32_1d), ROW(ggml_backend_synchronize),
    ROW(ggml_backend_sched_synchronize), ROW(ggml_backend_event_record), ROW(ggml_backend_event_wait),
    ROW(ggml_backend_event_synchronize), ROW(ggml_gallocr_alloc_graph), ROW(ggml_backend_buft_alloc_buffer),
    ROW(ggml_backend_buffer_free), ROW(ggml_free), ROW(ggml_reset), ROW(ggml_backend_graph_compute),
    ROW(ggml_backend_graph_compute_async), ROW(ggml_backend_sched_alloc_graph), ROW(ggml_backend_sched_graph_compute),
    ROW(ggml_backend_sched_graph_compute_async), ROW(ggml_backend_sched_free), ROW(ggml_backend_free),
    ROW(ggml_backend_event_free), ROW(ggml_backend_sched_reset), ROW(ggml_backend_sched_reserve), ROW(ggml_gallocr_reserve),
    ROW(ggml_backend_sched_reserve_size), ROW(ggml_opt_alloc), ROW(ggml_opt_eval), ROW(llama_decode), ROW(llama_process),
    ROW(llama_batch_ext_add), ROW(llama_batch_ext_add_token), ROW(llama_batch_ext_add_embd), ROW(llama_batch_ext_add_seq),
    ROW(llama_batch_ext_set_pos), ROW(llama_batch_ext_clear), ROW(llama_batch_ext_free), ROW(llama_memory_clear), ROW(llama_memory_seq_rm),
    ROW(llama_memory_seq_cp), ROW(llama_memory_seq_keep), ROW(llama_memory_seq_add), ROW(llama_memory_seq_div),
    ROW(llama_get_logits), ROW(llama_get_logits_ith), ROW(llama_get_embeddings), ROW(llama_get_embeddings_ith),
    ROW(llama_get_embeddings_seq), ROW(llama_state_set_data), ROW(llama_state_seq_set_data),
    ROW(llama_state_seq_set_data_ext), ROW(llama_state_load_file), ROW(llama_state_seq_load_file),
    ROW(llama_state_get_data), ROW(llama_state_seq_get_data), ROW(llama_state_seq_get_data_ext), ROW(llama_state_save_file),
    ROW(llama_state_seq_save_file),
};

// Whoever asks the loader (ctypes, dlopen) gets ours too; a second ggml in the process is not recorded.
void * dlsym(void * handle, const char * name) {
    if (handle == RTLD_NEXT || (strncmp(name, "ggml_", 5) && strncmp(name, "llama_", 6))) {
        return real_dlsym()(handle, name); // a jump: the caller's address counts for RTLD_NEXT
    }
    void * found = real_dlsym()(handle, name);
    for (size_t k = 0; found && k < sizeof(ROWS) / sizeof(*ROWS); k++) {
        if (strcmp(ROWS[k].name, name)) {
            continue;
        }
        if (*ROWS[k].kept && *ROWS[k].kept != found) {
            return found;
        }
        adopt(found);
        *ROWS[k].kept = found == ROWS[k].ours ? *ROWS[k].kept : found;
        return ROWS[k].ours;
    }
    return found;
}

#endif
