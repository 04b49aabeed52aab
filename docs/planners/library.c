/* First fit in order of birth as a shared library, for `--allocator lib:./library.so`:
   cc -O2 -shared -fPIC -o library.so library.c (docs/allocators.md). */
#include "allocsim_planner.h"
#include <stdio.h>
#include <stdlib.h>

struct planner { char why[96]; };

void *allocsim_open(int64_t version) {
  return version == ALLOCSIM_VERSION ? calloc(1, sizeof(struct planner)) : NULL;
}

const char *allocsim_why(void *planner) { return ((struct planner *)planner)->why; }

void allocsim_close(void *planner) { free(planner); }

static int64_t stop_of(const struct allocsim_problem *p, int64_t b) {
  return p->pinned[b] ? INT64_MAX : p->stop[b];
}

/* The lowest byte at which a buffer meets none of those placed, which are in order of offset. */
static int64_t lowest(const struct allocsim_problem *p, const int64_t *offset, const int64_t *placed, int64_t count,
                      int64_t b) {
  int64_t at = 0, step = p->alignment[b];
  for (int64_t turn = 0; turn < count; ++turn) {
    int64_t other = placed[turn], end = offset[other] + p->nbytes[other];
    if (p->arena[other] != p->arena[b] || !p->nbytes[other] || !p->nbytes[b]) continue;
    if (p->start[other] >= stop_of(p, b) || stop_of(p, other) <= p->start[b]) continue;
    if (offset[other] >= at + p->nbytes[b]) break;
    if (end > at) at = (end + step - 1) / step * step;
  }
  return at;
}

static void put(const int64_t *offset, int64_t *placed, int64_t count, int64_t b) {
  for (; count && offset[placed[count - 1]] > offset[b]; --count) placed[count] = placed[count - 1];
  placed[count] = b;
}

int64_t allocsim_plan(void *planner, const struct allocsim_problem *p, int64_t *offset) {
  int64_t *placed = malloc((p->buffers + 1) * sizeof *placed), count = 0, status = ALLOCSIM_PLANNED;
  for (int64_t b = 0; b < p->buffers; ++b)
    if (p->fixed[b] >= 0 && !p->own[b]) offset[b] = p->fixed[b], put(offset, placed, count++, b);
  for (int64_t turn = 0; turn < p->buffers && status == ALLOCSIM_PLANNED; ++turn) {
    int64_t b = p->order[turn], end = p->capacity[p->arena[b]];
    if (p->own[b]) { offset[b] = ALLOCSIM_OWN; continue; }
    if (p->fixed[b] < 0) {
      offset[b] = lowest(p, offset, placed, count, b);
      put(offset, placed, count++, b);
    }
    if (end >= 0 && offset[b] + p->nbytes[b] > end) {
      snprintf(((struct planner *)planner)->why, 96, "buffer %lld needs %lld bytes of %lld", (long long)b,
               (long long)(offset[b] + p->nbytes[b]), (long long)end);
      status = ALLOCSIM_REFUSED;
    }
  }
  free(placed);
  return status;
}
