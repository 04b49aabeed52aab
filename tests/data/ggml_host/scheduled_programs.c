// Programs of a backend scheduler whose backends really work behind the call: `scheduled_programs NAME wrong|right [SEED]`.
//
// A stand-in for a device is the CPU backend with a queue: what it is asked to copy, compute, record and wait for is done
// when somebody waits for it, at the latest moment that is allowed, so that a wait that is missing shows in the numbers
// every time. Its memory is of a kind of its own, so that the scheduler copies tensors to it and from it.
#include "ggml_api.h"

enum { N = 64, NODES = 256, RUNS = 6, WORDS = 20, TENSOR = 336, OP = 80, SRC = 152 };
enum { NAME = 1, SEND = 3, FETCH = 4, COPY = 7, SYNC = 8, COMPUTE = 13, RECORD = 14, WAIT = 15, OPTIMIZE = 16, DEVICE = 17, CONTEXT = 18 }; // of a backend
enum { TAKES = 10, EVENT_NEW = 12, EVENT_FREE = 13, EVENT_WAIT = 14 };                                   // of a device

typedef struct device device;
device * ggml_backend_get_device(backend *);
bool ggml_backend_buft_is_host(kind *);
device * ggml_backend_buft_get_device(kind *);
void ggml_backend_buffer_set_usage(buffer *, int);
tensor * ggml_new_tensor_3d(context *, int, int64_t, int64_t, int64_t);
tensor * ggml_mul_mat_id(context *, tensor *, tensor *, tensor *);
int ggml_graph_n_nodes(const graph *);
tensor ** ggml_graph_nodes(const graph *);

typedef struct stand_in stand_in;
struct job { int what; const tensor * from; tensor * to; graph * g; struct event * event; stand_in * other; int until; char * host; size_t offset, size; };
struct event { device * of; void * context; stand_in * by; int until; };
struct stand_in {
    void * words[WORDS], * device[WORDS], * kind[WORDS];
    struct job jobs[1024];
    int given, done;
    bool shares; // its memory is the CPU's
};

static bool wrong, declines; // copies from a backend that does not queue
static backend * cpu;
static int (* cpu_compute)(backend *, graph *);

static stand_in * of(void * one) { return ((void **) one)[COPY] ? ((void **) one)[CONTEXT] : NULL; } // the CPU copies nothing

static void work(stand_in * one, int until) {
    while (one->done < until) {
        struct job j = one->jobs[one->done++];
        if (j.what == COPY) {
            ggml_backend_tensor_get(j.from, ggml_get_data_f32(j.to), 0, ggml_nbytes(j.to));
        } else if (j.what == COMPUTE) {
            cpu_compute(cpu, j.g);
        } else if (j.what == SEND) {
            memcpy((char *) ggml_get_data_f32(j.to) + j.offset, j.host, j.size);
        } else if (j.what == FETCH) {
            memcpy(j.host, (char *) ggml_get_data_f32(j.to) + j.offset, j.size);
        } else {
            work(j.other, j.until);
        }
    }
}

static void give(stand_in * one, struct job j) { one->jobs[one->given++] = j; }

static const char * name_of(void * one) {
    (void) one;
    return "queue";
}

static tensor * kept(const tensor * t) { // as it is now: the scheduler makes its tensors anew for each graph
    return t ? memcpy(malloc(TENSOR), t, TENSOR) : NULL;
}

// Behind all that either was given, and before all that it will be: in the order of the source, if that has one.
static bool copy(void * from_backend, void * to_backend, const tensor * from, tensor * to) {
    stand_in * source = of(from_backend), * target = of(to_backend), * at = source ? source : target;
    if (!source && declines) {
        return false;
    }
    if (at != target) {
        give(at, (struct job) { .what = WAIT, .other = target, .until = target->given });
    }
    give(at, (struct job) { .what = COPY, .from = kept(from), .to = kept(to) });
    if (at != target) {
        give(target, (struct job) { .what = WAIT, .other = at, .until = at->given });
    }
    return true;
}

static void send(void * one, tensor * t, const void * data, size_t offset, size_t size) {
    give(of(one), (struct job) { .what = SEND, .to = kept(t), .host = (char *) data, .offset = offset, .size = size });
}

static void fetch(void * one, const tensor * t, void * data, size_t offset, size_t size) {
    give(of(one), (struct job) { .what = FETCH, .to = kept(t), .host = data, .offset = offset, .size = size });
}

static void synchronize(void * one) { work(of(one), of(one)->given); }

static tensor * given(const tensor * t) { // what others made, or nobody
    tensor * same = kept(t);
    if (same) {
        memset((char *) same + OP, 0, sizeof(int));
        memset((char *) same + SRC, 0, 10 * sizeof(tensor *));
    }
    return same;
}

static int compute(void * one, graph * g) {
    context * room = ggml_init((struct ggml_init_params) { ggml_graph_overhead_custom(NODES, false), NULL, true });
    graph * same = ggml_new_graph_custom(room, NODES, false);
    tensor * old[NODES], * made[NODES];
    for (int k = 0; k < ggml_graph_n_nodes(g); k++) {
        old[k] = ggml_graph_nodes(g)[k];
        made[k] = kept(old[k]);
        tensor ** sources = (tensor **) ((char *) made[k] + SRC);
        for (int s = 0; s < 10; s++) {
            tensor * source = sources[s];
            sources[s] = NULL;
            for (int earlier = 0; earlier < k; earlier++) {
                sources[s] = old[earlier] == source ? made[earlier] : sources[s];
            }
            sources[s] = sources[s] ? sources[s] : given(source);
        }
        ggml_build_forward_expand(same, made[k]);
    }
    give(of(one), (struct job) { .what = COMPUTE, .g = same });
    return 0;
}

static struct event * event_new(device * of) { return memcpy(calloc(1, sizeof(struct event)), &of, sizeof(of)); }

static void event_free(device * of, struct event * event) {
    (void) of;
    free(event);
}

static void event_record(void * one, struct event * event) {
    event->by = of(one);
    event->until = of(one)->given;
}

static void event_wait(void * one, struct event * event) {
    if (event->by && event->by != of(one)) {
        give(of(one), (struct job) { .what = WAIT, .other = event->by, .until = event->until });
    }
}

static void event_synchronize(device * of, struct event * event) {
    (void) of;
    if (event->by) {
        work(event->by, event->until);
    }
}

static bool takes(device * of, kind * asked) {
    const stand_in * one = (stand_in *) ((char *) of - offsetof(stand_in, device));
    return one->shares ? asked == ggml_backend_cpu_buffer_type() : (void *) asked == (void *) one->kind;
}

static void set_where(void ** words, void * value, bool (*holds)(kind *, void *)) {
    for (int k = 11; k >= 0; k--) {
        void * before = words[k];
        words[k] = value;
        if (holds((kind *) words, value)) {
            return;
        }
        words[k] = before;
    }
    abort();
}

static bool is_no_host(kind * one, void * value) { return !value && !ggml_backend_buft_is_host(one); }

static bool is_of(kind * one, void * device) { return (void *) ggml_backend_buft_get_device(one) == device; }

static stand_in * stand_in_new(bool shares) {
    stand_in * one = calloc(1, sizeof(stand_in));
    backend * like = ggml_backend_cpu_init();
    memcpy(one->words, like, sizeof(void *) * (CONTEXT + 1));
    memcpy(one->device, ggml_backend_get_device(like), sizeof(void *) * 17);
    memcpy(one->kind, ggml_backend_cpu_buffer_type(), sizeof(void *) * 12);
    if (one->words[DEVICE] != (void *) ggml_backend_get_device(like)) {
        abort(); // a version with other words
    }
    one->shares = shares;
    set_where(one->kind, NULL, is_no_host);
    set_where(one->kind, one->device, is_of);
    void * mine[] = { [NAME] = (void *) name_of, [SEND] = (void *) send, [FETCH] = (void *) fetch, [COPY] = (void *) copy, [SYNC] = (void *) synchronize, [COMPUTE] = (void *) compute,
                      [RECORD] = (void *) event_record, [WAIT] = (void *) event_wait, [DEVICE] = one->device, [CONTEXT] = one };
    for (int k = 0; k <= CONTEXT; k++) {
        one->words[k] = mine[k] ? mine[k] : one->words[k];
    }
    one->device[TAKES] = (void *) takes;
    one->device[EVENT_NEW] = (void *) event_new;
    one->device[EVENT_FREE] = (void *) event_free;
    one->device[EVENT_WAIT] = (void *) event_synchronize;
    return one;
}

static context * room(void) {
    return ggml_init((struct ggml_init_params) { 64 * ggml_tensor_overhead() + 2 * ggml_graph_overhead_custom(NODES, false), NULL, true });
}

static tensor * named(tensor * one, const char * name) { return ggml_set_name(one, name); }

static void upload(tensor * to, float value) {
    float data[N];
    for (int k = 0; k < N; k++) {
        data[k] = value;
    }
    ggml_backend_tensor_set(to, data, 0, ggml_nbytes(to));
}

// Two stages in turn: `first` computes of x what `second` adds to a sum, run after run; nobody waits in between.
static void stages(stand_in * first, stand_in * second, void (*about)(sched *, tensor *)) {
    context * last = room();
    tensor * sum = named(ggml_new_tensor_1d(last, F32, N), "sum");
    ggml_backend_alloc_ctx_tensors_from_buft(last, second->shares ? ggml_backend_cpu_buffer_type() : (kind *) second->kind);
    upload(sum, 0);
    backend * all[] = { (backend *) first->words, (backend *) second->words, cpu };
    kind * cpus = ggml_backend_cpu_buffer_type();
    kind * kinds[] = { first->shares ? cpus : (kind *) first->kind, second->shares ? cpus : (kind *) second->kind, cpus };
    sched * s = ggml_backend_sched_new(all, kinds, 3, NODES, true, false);
    for (int run = 0; run < RUNS; run++) {
        context * ctx = room();
        tensor * x = named(ggml_new_tensor_1d(ctx, F32, N), "x");
        tensor * half = named(ggml_sqr(ctx, ggml_scale(ctx, x, 0.5f)), "half");
        tensor * grown = named(ggml_add(ctx, sum, ggml_scale(ctx, half, 3)), "grown");
        graph * g = ggml_new_graph_custom(ctx, NODES, false);
        ggml_build_forward_expand(g, ggml_cpy(ctx, grown, sum));
        ggml_backend_sched_reset(s);
        ggml_backend_sched_set_tensor_backend(s, half, all[0]);
        ggml_backend_sched_set_tensor_backend(s, grown, all[1]);
        about(s, x);
        ggml_backend_sched_alloc_graph(s, g);
        upload(x, (float) run + 1);
        ggml_backend_sched_graph_compute_async(s, g);
    }
    ggml_backend_sched_synchronize(s);
    float found[N];
    ggml_backend_tensor_get(sum, found, 0, sizeof(found));
    printf("sum %g\n", found[0]); // of 3 * (x / 2)^2: 68.25
}

static void flagged(sched * s, tensor * x) {
    (void) s;
    ggml_set_input(x);
}

static void on_the_cpu(sched * s, tensor * x) {
    ggml_backend_sched_set_tensor_backend(s, x, cpu);
    if (!wrong) {
        ggml_set_input(x);
    }
}

static void where_it_is_read(sched * s, tensor * x) {
    (void) s;
    if (!wrong) {
        ggml_set_input(x);
    }
}

// The scheduler copies at once what is flagged as input; of the rest it makes an asynchronous copy, and the next upload is
// laid over what may not have been copied yet.
static void overwritten_before_it_was_copied(void) { stages(stand_in_new(false), stand_in_new(false), on_the_cpu); }

// A leaf that is not flagged lies in the memory of the backend that reads it: later than the next upload.
static void overwritten_before_it_was_read(void) { stages(stand_in_new(false), stand_in_new(false), where_it_is_read); }

// A backend that takes the memory in which the host lays its inputs gets no copy, and the scheduler waits for nobody.
static void read_where_the_host_laid_it(void) { stages(stand_in_new(wrong), stand_in_new(wrong), flagged); }

// Weights of experts lie with the CPU, and the backend that multiplies by them is sent those that `ids`, which it has, name:
// later than the host writes others, unless that waits.
static void experts_changed_before_they_were_sent(void) {
    enum { ROWS = 4, EXPERTS = 5, USED = 2, WEIGHTS = 1, I32 = 26 };
    stand_in * one = stand_in_new(false);
    context * with_cpu = room(), * with_one = room();
    tensor * w = named(ggml_new_tensor_3d(with_cpu, F32, N, ROWS, EXPERTS), "w");
    tensor * ids = named(ggml_new_tensor_2d(with_one, I32, USED, 1), "ids");
    tensor * x = named(ggml_new_tensor_3d(with_one, F32, N, 1, 1), "x");
    tensor * sum = named(ggml_new_tensor_2d(with_one, F32, ROWS, USED), "sum");
    ggml_backend_buffer_set_usage(ggml_backend_alloc_ctx_tensors_from_buft(with_cpu, ggml_backend_cpu_buffer_type()), WEIGHTS);
    ggml_backend_alloc_ctx_tensors_from_buft(with_one, (kind *) one->kind);
    const int32_t named_by[USED] = { 1, 3 };
    const float nothing[ROWS * USED] = { 0 };
    float weights[N * ROWS * EXPERTS];
    ggml_backend_tensor_set(ids, named_by, 0, sizeof(named_by));
    ggml_backend_tensor_set(sum, nothing, 0, sizeof(nothing));
    upload(x, 1);
    backend * all[] = { (backend *) one->words, cpu };
    kind * kinds[] = { (kind *) one->kind, ggml_backend_cpu_buffer_type() };
    sched * s = ggml_backend_sched_new(all, kinds, 2, NODES, false, false);
    for (int run = 0; run < RUNS; run++) {
        for (int k = 0; k < N * ROWS * EXPERTS; k++) {
            weights[k] = (float) (run + k / (N * ROWS));
        }
        if (!wrong) {
            ggml_backend_sched_synchronize(s);
        }
        ggml_backend_tensor_set(w, weights, 0, sizeof(weights));
        context * ctx = room();
        tensor * y = named(ggml_mul_mat_id(ctx, w, x, ids), "y");
        tensor * grown = named(ggml_add(ctx, sum, y), "grown");
        graph * g = ggml_new_graph_custom(ctx, NODES, false);
        ggml_build_forward_expand(g, ggml_cpy(ctx, grown, sum));
        ggml_backend_sched_reset(s);
        ggml_backend_sched_set_tensor_backend(s, y, all[0]);
        ggml_backend_sched_alloc_graph(s, g);
        ggml_backend_sched_graph_compute_async(s, g);
    }
    ggml_backend_sched_synchronize(s);
    float found[ROWS * USED];
    ggml_backend_tensor_get(sum, found, 0, sizeof(found));
    printf("sum %g\n", found[0]); // of 64 * (run + 1)
}

static stand_in * hooked[2];
static int (* computed_below)(void *, graph *);
static void (* ended_below)(void *);

static int compute_above(void * one, graph * g) { return computed_below(one, g); }

static void synchronize_above(void * one) { ended_below(one); }

// From the second run on the program stands before functions of its backends itself, and goes on to those that it found.
static void hooks(sched * s, tensor * x) {
    static int run;
    ggml_set_input(x);
    (void) s;
    for (int k = 0; run == 1 && k < 2; k++) {
        memcpy(&computed_below, &hooked[k]->words[COMPUTE], sizeof(void *));
        memcpy(&ended_below, &hooked[k]->words[SYNC], sizeof(void *));
        hooked[k]->words[COMPUTE] = (void *) compute_above;
        hooked[k]->words[SYNC] = (void *) synchronize_above;
    }
    run++;
}

static void hooked_by_the_program_too(void) {
    hooked[0] = stand_in_new(false);
    hooked[1] = stand_in_new(false);
    stages(hooked[0], hooked[1], hooks);
}

static uint64_t state;

static uint32_t drawn(uint32_t below) {
    state = state * 6364136223846793005ull + 1442695040888963407ull;
    return (uint32_t) (state >> 33) % below;
}

// A program drawn from its seed: ops of two inputs on three backends, run after run, with a wait here and there; `wrong`
// has the numbers that the CPU alone gives. It is right where the backends decline what they cannot put in order: this
// scheduler lets the CPU go on while they copy of its memory.
static void drawn_stages(void) {
    stand_in * one = stand_in_new(false), * two = stand_in_new(false);
    context * last = room();
    tensor * sum = named(ggml_new_tensor_1d(last, F32, N), "sum");
    ggml_backend_alloc_ctx_tensors_from_buft(last, wrong ? ggml_backend_cpu_buffer_type() : (kind *) two->kind);
    upload(sum, 0);
    backend * all[] = { (backend *) one->words, (backend *) two->words, cpu };
    kind * kinds[] = { (kind *) one->kind, (kind *) two->kind, ggml_backend_cpu_buffer_type() };
    sched * s = ggml_backend_sched_new(all + 2 * wrong, kinds + 2 * wrong, wrong ? 1 : 3, NODES, drawn(4) > 0, drawn(2));
    const uint64_t apart = drawn(2);
    declines = drawn(2);
    const uint64_t shape = state;
    for (int run = 0; run < 3 + 2 * RUNS; run++) {
        const uint64_t now = state;
        state = apart ? shape : now; // the same graph anew, or another
        context * ctx = room();
        tensor * made[24] = { ggml_new_tensor_1d(ctx, F32, N), ggml_new_tensor_1d(ctx, F32, N) };
        backend * where[24];
        const int count = 4 + (int) drawn(12);
        for (int k = 0; k < 2; k++) {
            ggml_set_input(named(made[k], k ? "y" : "x"));
        }
        for (int k = 2; k < count; k++) {
            tensor * left = made[drawn((uint32_t) k)], * right = made[k - 1];
            const uint32_t what = drawn(3);
            made[k] = what == 0 ? ggml_add(ctx, left, right) : what == 1 ? ggml_scale(ctx, right, 0.75f) : ggml_cont(ctx, left);
            where[k] = all[drawn(3)];
        }
        tensor * all_of_it = made[0];
        for (int k = 1; k < count; k++) {
            all_of_it = ggml_add(ctx, all_of_it, made[k]);
        }
        graph * g = ggml_new_graph_custom(ctx, NODES, false);
        ggml_build_forward_expand(g, ggml_cpy(ctx, ggml_add(ctx, ggml_scale(ctx, sum, 0.5f), all_of_it), sum));
        ggml_backend_sched_reset(s);
        for (int k = 2; k < count && !wrong; k++) {
            ggml_backend_sched_set_tensor_backend(s, made[k], where[k]);
        }
        ggml_backend_sched_alloc_graph(s, g);
        state = apart ? now + 1 : state;
        upload(made[0], (float) run + 1);
        upload(made[1], (float) drawn(5));
        ggml_backend_sched_graph_compute_async(s, g);
        if (drawn(4) == 0) {
            ggml_backend_sched_synchronize(s);
        }
    }
    ggml_backend_sched_synchronize(s);
    float found[N];
    ggml_backend_tensor_get(sum, found, 0, sizeof(found));
    printf("sum %.9g\n", found[0]);
}

#define ROW(name) { #name, name }
static const struct { const char * name; void (* run)(void); } PROGRAMS[] = {
    ROW(overwritten_before_it_was_copied), ROW(overwritten_before_it_was_read), ROW(read_where_the_host_laid_it),
    ROW(drawn_stages), ROW(hooked_by_the_program_too), ROW(experts_changed_before_they_were_sent),
};

int main(int count, char ** words) {
    wrong = count > 2 && !strcmp(words[2], "wrong");
    state = count > 3 ? strtoull(words[3], NULL, 10) : 0;
    cpu = ggml_backend_cpu_init();
    memcpy(&cpu_compute, (void **) cpu + COMPUTE, sizeof(cpu_compute));
    for (size_t k = 0; count > 1 && k < sizeof(PROGRAMS) / sizeof(*PROGRAMS); k++) {
        if (!strcmp(words[1], PROGRAMS[k].name)) {
            PROGRAMS[k].run();
            return 0;
        }
    }
    return 2;
}
