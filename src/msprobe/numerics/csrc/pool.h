/* Threads that share the blocks of one tensor: those of team.h, or, without a team, threads of our own. These are started at the first large tensor, sleep between jobs, take no signals and
   never touch Python. Which thread did which block has no influence on the result: the caller combines the blocks in order. */
#ifndef MSPROBE_POOL_H
#define MSPROBE_POOL_H

#include "base.h"
#include "team.h"

#define MAX_THREADS 64
/* How many threads a job may use, the caller's among them. */
static int pool_threads = 1;

#if defined(_WIN32)

static void pool_init(void) {}

static void pool_run(TaskFn task, void *ctx, int64_t count, int threads)
{
    (void)threads;
    for (int64_t i = 0; i < count; i++) task(ctx, i);
}

#else

#include <pthread.h>
#include <signal.h>

typedef struct {
    pthread_mutex_t lock;
    pthread_cond_t wake, idle;
    int started;  /* helpers that exist */
    int busy;     /* a job is being worked on; a second caller works alone */
    int wanted;   /* helpers that may still join it */
    int active;   /* helpers that have joined it */
    TaskFn task;
    void *ctx;
    int64_t count, next;
} Pool;

#define POOL_INITIAL {PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, PTHREAD_COND_INITIALIZER, 0, 0, 0, 0, NULL, NULL, 0, 0}
static Pool pool = POOL_INITIAL;

static void work(TaskFn task, void *ctx, int64_t count)
{
    for (;;) {
        int64_t i = __atomic_fetch_add(&pool.next, 1, __ATOMIC_RELAXED);
        if (i >= count) return;
        task(ctx, i);
    }
}

static void *helper(void *unused)
{
    FpEnv env;
    (void)unused;
    fp_enter(&env); /* inherited from the thread that started it */
    pthread_mutex_lock(&pool.lock);
    for (;;) {
        while (pool.wanted == 0) pthread_cond_wait(&pool.wake, &pool.lock);
        pool.wanted--;
        pool.active++;
        TaskFn task = pool.task;
        void *ctx = pool.ctx;
        int64_t count = pool.count;
        pthread_mutex_unlock(&pool.lock);
        work(task, ctx, count);
        pthread_mutex_lock(&pool.lock);
        if (--pool.active == 0) pthread_cond_signal(&pool.idle);
    }
    return NULL;
}

/* Called with the lock held. Fewer helpers than wished for are no error. */
static void start_helpers(int wanted)
{
    pthread_attr_t attr;
    sigset_t all, before;
    if (pool.started >= wanted || pthread_attr_init(&attr) != 0) return;
    pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
    pthread_attr_setstacksize(&attr, 512 * 1024);
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before); /* a signal must go to a thread where Python looks for it */
    while (pool.started < wanted) {
        pthread_t thread;
        if (pthread_create(&thread, &attr, helper, NULL) != 0) break;
        pool.started++;
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attr);
}

/* task(ctx, 0 .. count - 1), in any order, on up to threads threads; returns when all are done. */
static void pool_run(TaskFn task, void *ctx, int64_t count, int threads)
{
    int helpers = threads - 1;
    if (helpers > 0 && team_run(task, ctx, count)) return;
    if (helpers > count - 1) helpers = (int)(count - 1);
    int mine = 0;
    if (helpers > 0) {
        pthread_mutex_lock(&pool.lock);
        mine = !pool.busy;
        if (mine) {
            start_helpers(helpers);
            pool.busy = 1;
            pool.task = task;
            pool.ctx = ctx;
            pool.count = count;
            pool.next = 0;
            pool.wanted = helpers < pool.started ? helpers : pool.started;
            pthread_cond_broadcast(&pool.wake);
        }
        pthread_mutex_unlock(&pool.lock);
    }
    if (!mine) {
        for (int64_t i = 0; i < count; i++) task(ctx, i);
        return;
    }
    work(task, ctx, count);
    pthread_mutex_lock(&pool.lock);
    pool.wanted = 0; /* a helper that did not wake up in time is not waited for */
    while (pool.active > 0) pthread_cond_wait(&pool.idle, &pool.lock);
    pool.busy = 0;
    pthread_mutex_unlock(&pool.lock);
}

/* A forked child has none of the helpers, and the lock in whatever state they held it. */
static void pool_after_fork(void)
{
    static const Pool fresh = POOL_INITIAL;
    pool = fresh;
    team_after_fork();
}

static void pool_init(void)
{
    static int registered;
    if (!registered) registered = pthread_atfork(team_before_fork, NULL, pool_after_fork) == 0;
    if (!registered) forked = 1; /* no team: a child would wait for it */
}

#endif

#endif
