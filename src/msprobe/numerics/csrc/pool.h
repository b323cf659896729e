/* Threads that share the blocks of one tensor. */
#ifndef MSPROBE_POOL_H
#define MSPROBE_POOL_H

#include "base.h"

typedef void (*TaskFn)(void *ctx, int64_t index);
static int pool_threads = 1;

static void pool_run(TaskFn task, void *ctx, int64_t count, int threads)
{
    (void)threads;
    for (int64_t i = 0; i < count; i++) task(ctx, i);
}

#endif
