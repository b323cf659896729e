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

/* --- doing one ------------------------------------------------------------------------------------------------------------------------- */
static void note_failure(Queue *q, const Directory *directory, const char *name, int error, int of_content)
{
    size_t n = strlen(directory->path), m = strlen(name);
    Failure *failure = malloc(sizeof *failure);
    char *path = malloc(n + m + 2);
    if (!failure || !path) { /* it is not told then */
        free(failure);
        free(path);
        return;
    }
    memcpy(path, directory->path, n);
    path[n] = '/';
    memcpy(path + n + 1, name, m + 1);
    *failure = (Failure){NULL, error, of_content, path};
    pthread_mutex_lock(&q->lock);
    failure->next = q->failures;
    q->failures = failure;
    pthread_mutex_unlock(&q->lock);
}

static int make_directories(const char *path)
{
    char *part = strdup(path);
    int error = part ? 0 : ENOMEM;
    for (char *at = part; at && *at && !error;) {
        at = strchr(at + 1, '/');
        if (at) *at = 0;
        if (mkdir(part, 0777) < 0 && errno != EEXIST && (!at || errno != EROFS)) error = errno;
        if (at) *at = '/';
    }
    free(part);
    return error;
}

/* Opens the directory, which may not be there yet, or no longer: then it is made. The number stays: another thread may be using it. */
static int open_directory(Queue *q, Directory *directory, int again)
{
    if (directory->file >= 0 && !again) return 0;
    int file = open(directory->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC), error = file < 0 ? errno : 0;
    if (error == ENOENT && !(error = make_directories(directory->path))) {
        file = open(directory->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        error = file < 0 ? errno : 0;
    }
    if (error) return error;
    pthread_mutex_lock(&q->lock);
    if (directory->file < 0) {
        directory->file = file;
        file = -1;
    } else if (again && (dup2(file, directory->file) < 0 || fcntl(directory->file, F_SETFD, FD_CLOEXEC) < 0)) {
        error = errno;
    }
    pthread_mutex_unlock(&q->lock);
    if (file >= 0) close(file);
    return error;
}

static int write_new(Queue *q, Directory *directory, const Operation *operation)
{
    int error = open_directory(q, directory, 0);
    if (!error) error = write_file(directory->file, operation);
    if (error == ENOENT && !(error = open_directory(q, directory, 1))) error = write_file(directory->file, operation);
    return error;
}

static void count_file(Queue *q, long long bytes)
{
    pthread_mutex_lock(&q->lock);
    q->files++;
    q->bytes += bytes;
    pthread_mutex_unlock(&q->lock);
}

static int copy_bytes(int from, int to, long long *bytes)
{
    enum { AT_A_TIME = 1 << 16 };
    char *buffer = malloc(AT_A_TIME);
    int error = buffer ? 0 : ENOMEM;
    *bytes = 0;
    while (!error) {
        ssize_t n = read(from, buffer, AT_A_TIME);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) error = errno;
        if (n <= 0) break;
        struct iovec part = {buffer, (size_t)n};
        if (write_all(to, &part, 1, (off_t)*bytes) < 0) error = errno;
        *bytes += n;
    }
    free(buffer);
    return error;
}

static int copy_file(Queue *q, int directory, const char *original, const char *name)
{
    char hidden[32];
    long long bytes = 0;
    hidden_name(hidden, sizeof hidden, name);
    int from = openat(directory, original, O_RDONLY | O_CLOEXEC), error = from < 0 ? errno : 0;
    int to = error ? -1 : open_new(directory, hidden);
    if (!error && to < 0) error = errno;
    if (!error) error = copy_bytes(from, to, &bytes);
    if (from >= 0) close(from);
    if (to >= 0 && close(to) < 0 && !error && errno != EINTR) error = errno;
    if (!error && renameat(directory, hidden, directory, name) < 0) error = errno;
    if (error && to >= 0) unlinkat(directory, hidden, 0);
    if (!error) count_file(q, bytes);
    return error;
}

static int is_refusal(int error)
{
    return error == EMLINK || error == EPERM || error == EOPNOTSUPP || error == ENOSYS || error == EXDEV || error == ENOENT || error == EACCES;
}

static int another_name(const Queue *q, int directory, const char *original, const char *name)
{
    if (q->refuse_links) return q->refuse_links;
    Operation link = {.name = name, .original = original};
    return link_file(directory, &link);
}

/* The name of the file that holds a content, as long as that is; 0: there is none. Holds no lock. */
static int file_of(Queue *q, const Content *content, char *out, size_t room)
{
    pthread_mutex_lock(&q->lock);
    int known = content->state == WRITTEN && strlen(content->name) < room;
    if (known) strcpy(out, content->name);
    pthread_mutex_unlock(&q->lock);
    return known;
}

/* A further name for a content that is written. */
static void link_name(Queue *q, Directory *directory, Content *content, const char *name)
{
    char original[NAME_MAX + 1], later[NAME_MAX + 1];
    if (!file_of(q, content, original, sizeof original)) {
        note_failure(q, directory, name, 0, 1);
        return;
    }
    int error = another_name(q, directory->file, original, name);
    if (is_refusal(error) && file_of(q, content, later, sizeof later) && strcmp(later, original) != 0)
        error = another_name(q, directory->file, later, name); /* there has been a new file meanwhile */
    if (!error) {
        count_file(q, 0);
        return;
    }
    char *own = is_refusal(error) ? strdup(name) : NULL;
    if (!own || (error = copy_file(q, directory->file, original, name))) {
        if (own) {
            pthread_mutex_lock(&q->lock);
            content->state = FAILED; /* the next of this content brings its data along */
            pthread_mutex_unlock(&q->lock);
        }
        free(own);
        note_failure(q, directory, name, error, 0);
        return;
    }
    pthread_mutex_lock(&q->lock);
    char *before = content->name;
    content->name = own;
    pthread_mutex_unlock(&q->lock);
    free(before);
}

/* The file of a content has been written or not: what has waited for it. */
static void settle_content(Queue *q, Directory *directory, Content *content, const char *name, int error)
{
    char *own = error ? NULL : strdup(name);
    if (!own && !error) error = ENOMEM;
    pthread_mutex_lock(&q->lock);
    content->state = error ? FAILED : WRITTEN;
    content->name = own;
    Name *waiting = content->waiting;
    content->waiting = NULL;
    pthread_mutex_unlock(&q->lock);
    while (waiting) {
        Name *next = waiting->next;
        if (error) note_failure(q, directory, waiting->text, 0, 1);
        else link_name(q, directory, content, waiting->text);
        free(waiting);
        waiting = next;
    }
}

/* Whether the name waits now for the file to be written. */
static int joins_waiting(Queue *q, Content *content, const char *text)
{
    size_t size = strlen(text) + 1;
    Name *name = malloc(sizeof *name + size);
    if (name) memcpy(name->text, text, size);
    pthread_mutex_lock(&q->lock);
    int joins = name && content->state == PENDING;
    if (joins) {
        Name **last = &content->waiting;
        while (*last) last = &(*last)->next;
        name->next = NULL;
        *last = name;
    }
    pthread_mutex_unlock(&q->lock);
    if (!joins) free(name);
    return joins;
}

static void do_job(Queue *q, Job *job)
{
    const Operation *op = &job->operation;
    if (!op->head) {
        if (!joins_waiting(q, job->content, op->name)) link_name(q, job->directory, job->content, op->name);
        return;
    }
    int error = write_new(q, job->directory, op);
    if (error) note_failure(q, job->directory, op->name, error, 0);
    else count_file(q, op->n_head + op->n_data + op->n_tail);
    settle_content(q, job->directory, job->content, op->name, error);
}

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
