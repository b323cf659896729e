/* The threads of the OpenMP runtime that a framework in this process computes with. They spin for some milliseconds after each of its
   operations, so that they are at work at once, where threads of our own would first have to be woken and then share their processors. */
#ifndef MSPROBE_TEAM_H
#define MSPROBE_TEAM_H

#include "base.h"

typedef void (*TaskFn)(void *ctx, int64_t index);

/* All of the team come and go for each job, which takes the longer the more they are: at most so many of them for each part of it. */
#define TEAM_UP_TO 4

#if defined(_WIN32)

static int team_join(const char *library) { (void)library; return 0; }
static int team_run(TaskFn task, void *ctx, int64_t count) { (void)task; (void)ctx; (void)count; return 0; }
static void team_forget(void) {}
static int team_exists(void) { return 0; }

#else

#include <dlfcn.h>

typedef void (*ParallelFn)(void (*)(void *), void *, unsigned, unsigned);
static ParallelFn team_parallel;
static int (*team_size)(void), (*team_at_work)(void);
static int forked;

/* From a shared library that is loaded already: it, or one that it needs, is an OpenMP runtime. 0: it is not. */
static int team_join(const char *library)
{
    void *handle = forked ? NULL : dlopen(library, RTLD_NOW | RTLD_NOLOAD);
    if (!handle) return 0;
    void *parallel = dlsym(handle, "GOMP_parallel"), *size = dlsym(handle, "omp_get_max_threads"), *at_work = dlsym(handle, "omp_in_parallel");
    dlclose(handle); /* the framework still holds it */
    if (!parallel || !size || !at_work) return 0;
    memcpy(&team_size, &size, sizeof size);
    memcpy(&team_at_work, &at_work, sizeof at_work);
    memcpy(&team_parallel, &parallel, sizeof parallel);
    return 1;
}

static void team_forget(void) { team_parallel = NULL; }
static int team_exists(void) { return team_parallel != NULL; }

/* In a forked child the runtime may believe in threads that are gone, and would wait for them forever. */
static void team_after_fork(void)
{
    team_forget();
    forked = 1;
}

typedef struct {
    TaskFn task;
    void *ctx;
    int64_t count, next;
} TeamJob;

static void team_part(void *argument)
{
    TeamJob *job = (TeamJob *)argument;
    FpEnv env;
    fp_enter(&env);
    for (;;) {
        int64_t i = __atomic_fetch_add(&job->next, 1, __ATOMIC_RELAXED);
        if (i >= job->count) break;
        job->task(job->ctx, i);
    }
    fp_leave(&env);
}

/* task(ctx, 0 .. count - 1), in any order; 0: nothing is done, there is no team. The framework's own operations ask for as many threads
   as the runtime holds to be right, and so does this: another number would have the runtime end some and start them again. */
static int team_run(TaskFn task, void *ctx, int64_t count)
{
    int size = team_parallel ? team_size() : 1;
    if (size < 2 || size > TEAM_UP_TO * count || team_at_work()) return 0;
    TeamJob job = {task, ctx, count, 0};
    team_parallel(team_part, &job, 0, 0);
    return 1;
}

#endif

#endif
