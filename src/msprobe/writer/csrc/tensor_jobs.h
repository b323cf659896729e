/* What waits to be written: files, each content once, and further names for them; see tensor_jobs.py. */
#ifndef MSPROBE_TENSOR_JOBS_H
#define MSPROBE_TENSOR_JOBS_H

#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <time.h>

#include "../../format/csrc/tensor_file.h"
#include "ring.h"

typedef struct Name {
    struct Name *next;
    char text[];
} Name;

enum { PENDING, WRITTEN, FAILED };

/* A content of one directory. While its file is being written, further names for it wait here. */
typedef struct Content {
    int state;
    char *name; /* a file that holds it, once it is written */
    Name *waiting;
    struct Content *next;
} Content;

typedef struct Directory {
    PyObject *path_object, *names, *contents; /* str; set of str; dict: (digest, dtype, shape) -> address of a Content */
    char *path;
    int file;  /* -1: not opened yet */
    long jobs; /* that are not done */
    int gone;  /* nobody submits to it any more */
    Content *all;
    struct Directory *next; /* in the list of those that can be freed */
} Directory;

typedef struct Job {
    struct Job *next;
    Directory *directory;
    Content *content;
    Operation operation; /* `original` is not used; head NULL: a further name */
    Span *span;
    PyObject *owner;
    size_t nbytes; /* of data held */
    char memory[];
} Job;

typedef struct Failure {
    struct Failure *next;
    int error, of_content; /* of_content: it is the file with the same content that failed */
    char *path;
} Failure;

typedef struct {
    pthread_mutex_t lock;
    pthread_cond_t work, room;
    Job *first, *last;
    long waiting, in_hand;
    size_t submitted, finished, most;
    int threads, most_threads, idle, stopping;
    double idle_seconds;
    Ring ring;
    long long files, bytes;
    Failure *failures;
    PyObject **dead; /* owners of what is done; whoever has Python's lock next lets go of them */
    size_t used_dead, room_dead;
    Directory *dead_directories;
    int refuse_links; /* for tests: an errno */
} Queue;

/* Waits for a signal of the condition, so long at most. Holds the lock. */
static void wait_for(Queue *q, pthread_cond_t *condition, double seconds)
{
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    long long nanoseconds = until.tv_nsec + (long long)(seconds * 1e9);
    until.tv_sec += (time_t)(nanoseconds / 1000000000);
    until.tv_nsec = (long)(nanoseconds % 1000000000);
    pthread_cond_timedwait(condition, &q->lock, &until);
}

#include "doing.h"

/* --- the list ---------------------------------------------------------------------------------------------------------------------------- */
/* All of these hold the lock. */
static void directory_done(Queue *q, Directory *directory)
{
    if (!directory->gone || directory->jobs) return;
    directory->next = q->dead_directories;
    q->dead_directories = directory;
}

/* Whatever a job held is free; room for its owner was made when it was submitted. */
static void finish_job(Queue *q, Job *job)
{
    q->finished += job->nbytes;
    if (job->span) job->span->done = 1;
    if (job->owner) q->dead[q->used_dead++] = job->owner;
    job->directory->jobs--;
    directory_done(q, job->directory);
    free(job);
}

static Job *take_job(Queue *q)
{
    Job *job = q->first;
    q->first = job->next;
    if (!q->first) q->last = NULL;
    q->waiting--;
    q->in_hand++;
    return job;
}

/* Takes a job, does it without the lock, and has it again. */
static void do_one(Queue *q)
{
    Job *job = take_job(q);
    pthread_mutex_unlock(&q->lock);
    do_job(q, job);
    pthread_mutex_lock(&q->lock);
    finish_job(q, job);
    q->in_hand--;
    if (!q->first && !q->in_hand) pthread_cond_broadcast(&q->room);
}

/* --- the threads --------------------------------------------------------------------------------------------------------------------------- */
/* With nothing to do a thread is woken for so many bytes or jobs; it looks by itself this often. */
enum { WORTH_WAKING = 1 << 16, MANY_JOBS = 64 };
#define POLL_SECONDS 0.1

static void *work(void *given)
{
    Queue *q = (Queue *)given;
    pthread_mutex_lock(&q->lock);
    double idle = 0;
    for (;;) {
        while (!q->first && !q->stopping && idle < q->idle_seconds) {
            q->idle++;
            wait_for(q, &q->work, POLL_SECONDS < q->idle_seconds ? POLL_SECONDS : q->idle_seconds);
            q->idle--;
            idle += POLL_SECONDS;
        }
        if (!q->first) break;
        idle = 0;
        do_one(q);
    }
    q->threads--;
    pthread_cond_broadcast(&q->room);
    pthread_mutex_unlock(&q->lock);
    return NULL;
}

/* Holds the lock; 0: there is none, and no more can be had. */
static int have_thread(Queue *q)
{
    if (q->threads >= q->most_threads) return q->threads > 0;
    pthread_attr_t attributes;
    sigset_t all, before;
    pthread_t thread;
    if (pthread_attr_init(&attributes) != 0) return q->threads > 0;
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    pthread_attr_setstacksize(&attributes, 256 * 1024);
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before); /* a signal must go to a thread where Python looks for it */
    if (pthread_create(&thread, &attributes, work, q) == 0) q->threads++;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attributes);
    return q->threads > 0;
}

static int is_full(const Queue *q) { return q->submitted - q->finished >= q->most; }

/* The job is done some time; where there is no thread, by the caller and now. Holds no lock. */
static void put_job(Queue *q, Job *job)
{
    pthread_mutex_lock(&q->lock);
    job->next = NULL;
    job->directory->jobs++;
    if (q->last) q->last->next = job;
    else q->first = job;
    q->last = job;
    q->waiting++;
    q->submitted += job->nbytes;
    int worth = q->submitted - q->finished >= WORTH_WAKING || q->waiting >= MANY_JOBS;
    if (q->idle) {
        if (worth) pthread_cond_signal(&q->work);
    } else if ((!q->threads || (worth && q->threads < q->most_threads)) && !have_thread(q)) {
        while (q->first) do_one(q);
    }
    pthread_mutex_unlock(&q->lock);
}

/* The caller does it. Holds no lock. */
static void do_now(Queue *q, Job *job)
{
    pthread_mutex_lock(&q->lock);
    job->directory->jobs++;
    q->submitted += job->nbytes;
    q->in_hand++;
    pthread_mutex_unlock(&q->lock);
    do_job(q, job);
    pthread_mutex_lock(&q->lock);
    finish_job(q, job);
    q->in_hand--;
    if (!q->first && !q->in_hand) pthread_cond_broadcast(&q->room);
    pthread_mutex_unlock(&q->lock);
}

/* Helps until all is done or the time is over; whether all is done. */
static int settle(Queue *q, double seconds)
{
    struct timespec began, t;
    clock_gettime(CLOCK_MONOTONIC, &began);
    pthread_mutex_lock(&q->lock);
    for (;;) {
        clock_gettime(CLOCK_MONOTONIC, &t);
        double left = seconds - (double)(t.tv_sec - began.tv_sec) - 1e-9 * (double)(t.tv_nsec - began.tv_nsec);
        if (left <= 0 || (!q->first && !q->in_hand)) break;
        if (q->first) do_one(q);
        else wait_for(q, &q->room, left);
    }
    int done = !q->first && !q->in_hand;
    pthread_mutex_unlock(&q->lock);
    return done;
}

#endif
