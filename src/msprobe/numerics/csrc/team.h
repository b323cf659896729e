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
#include <pthread.h>
#include <signal.h>
#include <time.h>

#define TEAM_MOST 256

typedef void (*ParallelFn)(void (*)(void *), void *, unsigned, unsigned);
static ParallelFn team_parallel;
static int (*team_size)(void), (*team_at_work)(void), (*team_pause)(int);
static int forked;
/* A team belongs to the thread that calls it. 0: this one has had none yet; -1: it gets none; else that many are known to find room. */
static __thread int team_room;

static int find_function(void *library, const char *name, void *function)
{
    void *found = dlsym(library, name);
    memcpy(function, &found, sizeof found);
    return found != NULL;
}

/* From a shared library that is loaded already: torch's, which needs an OpenMP runtime. 0: it is not.
   How many threads there shall be is asked of torch, which tells the runtime so in each thread before its first operation there. */
static int team_join(const char *library)
{
    void *handle = forked ? NULL : dlopen(library, RTLD_NOW | RTLD_NOLOAD);
    if (!handle) return 0;
    ParallelFn parallel;
    int all = find_function(handle, "_ZN2at15get_num_threadsEv", &team_size) && find_function(handle, "omp_in_parallel", &team_at_work)
        && find_function(handle, "omp_pause_resource_all", &team_pause) && find_function(handle, "GOMP_parallel", &parallel);
    dlclose(handle); /* the framework still holds it */
    if (all) team_parallel = parallel;
    return all;
}

static void team_forget(void) { team_parallel = NULL; }
static int team_exists(void) { return team_parallel != NULL; }

/* --- fork --------------------------------------------------------------------------------------------------------------------------------- */
/* A child that computes would wait forever for threads that this thread's runtime has here and not there, and the user's own operations may
   have been too small for any: the runtime gives them up, and starts them again when they are needed. */
static void team_before_fork(void)
{
    enum { SOFT = 1 };
    if (team_room > 0) team_pause(SOFT);
    if (team_room > 0) team_room = 0;
}

static void team_after_fork(void)
{
    team_forget();
    forked = 1;
}

/* --- is there room for so many threads? --------------------------------------------------------------------------------------------------- */
static void *pass_by(void *gate)
{
    pthread_mutex_lock(gate);
    pthread_mutex_unlock(gate);
    return NULL;
}

/* Where a thread cannot be started the runtime ends the process. So as many are tried here first, at the same time. */
static int find_room(int size)
{
    pthread_t threads[TEAM_MOST];
    pthread_mutex_t gate = PTHREAD_MUTEX_INITIALIZER;
    sigset_t all, before;
    int started = 0;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before); /* a signal must go to a thread where Python looks for it */
    pthread_mutex_lock(&gate);
    while (started < size - 1 && pthread_create(&threads[started], NULL, pass_by, &gate) == 0) started++;
    pthread_mutex_unlock(&gate);
    for (int k = 0; k < started; k++) pthread_join(threads[k], NULL);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return started == size - 1;
}

static int has_room(int size)
{
    if (team_room < 0 || size > TEAM_MOST) return 0;
    if (team_room < size) team_room = find_room(size) ? size : -1;
    return team_room > 0;
}

/* --- is it worth it? ---------------------------------------------------------------------------------------------------------------------- */
/* Where others want the processors too, a job waits until each of the team has had its turn, which may take milliseconds. Whoever waited
   does the next jobs alone, the more of them the more often that happens. */
enum { REST_FIRST = 16, REST_MOST = 1024 };
#define REST_AFTER 20e-6
static int resting, next_rest = REST_FIRST;

static int team_rests(void)
{
    int left = __atomic_load_n(&resting, __ATOMIC_RELAXED);
    if (left > 0) __atomic_store_n(&resting, left - 1, __ATOMIC_RELAXED);
    return left > 0;
}

static void note_wait(double worked, double whole)
{
    int rest = __atomic_load_n(&next_rest, __ATOMIC_RELAXED), waited = whole > 2 * worked + REST_AFTER;
    if (waited) __atomic_store_n(&resting, rest, __ATOMIC_RELAXED);
    rest = waited ? 2 * rest : rest / 2;
    __atomic_store_n(&next_rest, rest < REST_FIRST ? REST_FIRST : rest > REST_MOST ? REST_MOST : rest, __ATOMIC_RELAXED);
}

static double team_clock(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* --- a job ---------------------------------------------------------------------------------------------------------------------------------- */
typedef struct {
    TaskFn task;
    void *ctx;
    int64_t count, next;
    pthread_t owner;
    double worked; /* the owner, in seconds */
} TeamJob;

static void team_part(void *argument)
{
    TeamJob *job = (TeamJob *)argument;
    int is_owner = pthread_equal(pthread_self(), job->owner);
    double began = is_owner ? team_clock() : 0;
    FpEnv env;
    fp_enter(&env);
    for (;;) {
        int64_t i = __atomic_fetch_add(&job->next, 1, __ATOMIC_RELAXED);
        if (i >= job->count) break;
        job->task(job->ctx, i);
    }
    fp_leave(&env);
    if (is_owner) job->worked = team_clock() - began;
}

/* task(ctx, 0 .. count - 1), in any order; 0: there is no team. The framework's own operations ask for as many threads as the runtime holds
   to be right, and so does this: another number would have the runtime end some and start them again. */
static int team_run(TaskFn task, void *ctx, int64_t count)
{
    int size = team_parallel ? team_size() : 1;
    if (size < 2 || size > TEAM_UP_TO * count || team_at_work() || !has_room(size)) return 0;
    if (team_rests()) {
        for (int64_t i = 0; i < count; i++) task(ctx, i);
        return 1;
    }
    TeamJob job = {task, ctx, count, 0, pthread_self(), 0};
    double began = team_clock();
    team_parallel(team_part, &job, 0, 0);
    note_wait(job.worked, team_clock() - began);
    return 1;
}

#endif

#endif
