/* A planner as a shared library, for `--allocator lib:./planner.so` (docs/allocators.md): four functions.
   Columns have a row for each buffer; lives are half-open steps, offsets and sizes are bytes. */
#ifndef ALLOCSIM_PLANNER_H
#define ALLOCSIM_PLANNER_H
#include <stdint.h>

#define ALLOCSIM_VERSION 1
#define ALLOCSIM_OWN (-1)      /* an offset: in memory of its own, which `own` must have told */
#define ALLOCSIM_UNPLACED (-2) /* an offset: no memory at all */
#define ALLOCSIM_PLANNED 0     /* what `allocsim_plan` returns; anything but these two is a failure */
#define ALLOCSIM_REFUSED 1     /* the buffers do not fit */

struct allocsim_problem {
  int64_t buffers, steps, arenas, pairs, gaps;
  const int64_t *start, *stop, *nbytes, *alignment;
  const int64_t *arena;                 /* where the buffer lies */
  const int64_t *fixed;                 /* an offset that is decided, -1 for none */
  const int64_t *order;                 /* the buffers in order of birth */
  const uint8_t *pinned, *own;          /* kept to the end of the run; in memory of its own */
  const int64_t *may_share;             /* `pairs` rows: donor, recipient */
  const int64_t *gap;                   /* `gaps` rows: buffer, start, stop: its bytes need not survive */
  const int64_t *capacity, *granule;    /* of each arena: bytes, -1 for no end; its alignment */
};

#ifdef __cplusplus
extern "C" {
#endif
/* Return a planner, NULL where this version of the interface is not known. Called once in a process. */
void *allocsim_open(int64_t version);
/* Write an offset for each buffer. All columns are the caller's, and only to be read. */
int64_t allocsim_plan(void *planner, const struct allocsim_problem *problem, int64_t *offset);
/* Return why the last answer was no plan, in one line; the planner's until it is asked again. */
const char *allocsim_why(void *planner);
void allocsim_close(void *planner);
#ifdef __cplusplus
}
#endif
#endif
