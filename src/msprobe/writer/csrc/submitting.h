/* From a tensor's memory to a job. */
#ifndef MSPROBE_SUBMITTING_H
#define MSPROBE_SUBMITTING_H

#include "directories.h"

/* --- a new job -------------------------------------------------------------------------------------------------------------------------- */
typedef struct {
    PyObject *name, *dtype, *shape, *data, *owner; /* data: bytes, or an int, where it lies */
    const char *address;
    Py_ssize_t nbytes;
} Given;

/* Whether others may change the data while it is looked at. */
static int is_live(const Given *given) { return given->owner == Py_None && !PyBytes_Check(given->data) && given->nbytes; }

static PyObject *view_of(const Given *given)
{
    if (PyBytes_Check(given->data) || !given->nbytes) {
        PyObject *bytes = given->nbytes ? given->data : PyBytes_FromStringAndSize(NULL, 0);
        if (given->nbytes) Py_INCREF(bytes);
        return bytes;
    }
    return PyMemoryView_FromMemory((char *)given->address, given->nbytes, READ_ONLY);
}

/* What tells contents apart: (digest, dtype, shape). */
static PyObject *key_of(const TensorQueue *self, const Given *given)
{
    PyObject *view = view_of(given), *digest = view ? PyObject_CallFunctionObjArgs(self->digest, view, NULL) : NULL;
    PyObject *key = digest ? PyTuple_Pack(3, digest, given->dtype, given->shape) : NULL;
    Py_XDECREF(view);
    Py_XDECREF(digest);
    return key;
}

/* Copies an attribute that is bytes to `*to`, and moves that on. */
static int copy_part(PyObject *object, PyObject *name, char **to, const char **where, Py_ssize_t *size)
{
    PyObject *bytes = PyObject_GetAttr(object, name);
    char *text;
    int ok = bytes && PyBytes_AsStringAndSize(bytes, &text, size) == 0;
    if (ok) {
        memcpy(*to, text, (size_t)*size);
        *where = *to;
        *to += *size;
    }
    Py_XDECREF(bytes);
    return ok;
}

static Py_ssize_t number_of(PyObject *object, PyObject *name)
{
    PyObject *value = PyObject_GetAttr(object, name);
    Py_ssize_t number = value ? PyLong_AsSsize_t(value) : -1;
    Py_XDECREF(value);
    return number;
}

static Py_ssize_t size_of(PyObject *object, PyObject *name)
{
    PyObject *value = PyObject_GetAttr(object, name);
    Py_ssize_t size = value ? PyBytes_Size(value) : -1;
    Py_XDECREF(value);
    return size;
}

static Job *new_job(Directory *directory, PyObject *name, Py_ssize_t more)
{
    PyObject *encoded = PyUnicode_EncodeFSDefault(name);
    char *text;
    Py_ssize_t size;
    Job *job = NULL;
    if (encoded && PyBytes_AsStringAndSize(encoded, &text, NULL) == 0) { /* ValueError where there is a 0 in it */
        size = PyBytes_Size(encoded) + 1;
        if (!(job = malloc(sizeof *job + (size_t)(size + more)))) PyErr_NoMemory();
    }
    if (job) {
        memset(job, 0, sizeof *job);
        memcpy(job->memory, text, (size_t)size);
        job->directory = directory;
        job->operation.name = job->memory;
    }
    Py_XDECREF(encoded);
    return job;
}

/* The data into memory of ours; each piece of the copy is checksummed, and digested where `digest` is not NULL, while it is in the cache. */
static void copy_data(Operation *op, char *to, const Given *given, Digest *digest)
{
    uint32_t state = 0xFFFFFFFFu;
    if (digest) digest_begin(digest, (uint64_t)given->nbytes);
    for (Py_ssize_t at = 0; at < given->nbytes; at += COPY_PIECE) {
        Py_ssize_t n = given->nbytes - at < COPY_PIECE ? given->nbytes - at : COPY_PIECE;
        const unsigned char *piece = memcpy(to + at, given->address + at, (size_t)n);
        state = crc_path.update(state, piece, n);
        if (digest) digest_piece(digest, piece, (size_t)n);
    }
    op->data = to;
    op->has_crc = 1;
    op->crc = ~state;
}

/* A job that writes a new file, its data not yet held. */
static Job *writing_job(const TensorQueue *self, Directory *directory, const Given *given)
{
    PyObject *frame = PyObject_CallFunctionObjArgs(self->frame, given->dtype, given->shape, NULL);
    if (!frame) return NULL;
    Job *job = NULL;
    Py_ssize_t expected = number_of(frame, n_nbytes), head = size_of(frame, n_head), tail = size_of(frame, n_tail);
    int small = given->nbytes < RING_FROM && given->owner == Py_None;
    if (expected != given->nbytes && !PyErr_Occurred())
        PyErr_Format(PyExc_ValueError, "%zd bytes given for %U of shape %R, which has %zd", given->nbytes, given->dtype, given->shape, expected);
    if (!PyErr_Occurred()) job = new_job(directory, given->name, head + tail + (small ? given->nbytes : 0));
    if (job) {
        Operation *op = &job->operation;
        char *at = job->memory + strlen(job->memory) + 1;
        op->n_data = given->nbytes;
        op->head_crc = number_of(frame, n_head_crc);
        op->tail_crc = number_of(frame, n_tail_crc);
        if (!copy_part(frame, n_head, &at, &op->head, &op->n_head) || !copy_part(frame, n_tail, &at, &op->tail, &op->n_tail)
            || op->head_crc < 0 || op->tail_crc < 0) {
            free(job);
            job = NULL;
        } else if (small) {
            copy_data(op, at, given, NULL);
        }
    }
    Py_DECREF(frame);
    return job;
}

/* Makes room for one more owner that is to be let go of some time; 0 with an error set. */
static int room_for_owner(Queue *q)
{
    pthread_mutex_lock(&q->lock);
    size_t needed = q->used_dead + (size_t)(q->waiting + q->in_hand) + 1;
    int ok = needed <= q->room_dead;
    if (!ok) {
        PyObject **more = realloc(q->dead, 2 * needed * sizeof *more);
        if ((ok = more != NULL)) {
            q->dead = more;
            q->room_dead = 2 * needed;
        }
    }
    pthread_mutex_unlock(&q->lock);
    if (!ok) PyErr_NoMemory();
    return ok;
}

/* Sees to it that nobody changes the data; 0: there is no room, and the caller has to write it now. `digest`: of what is copied. */
static int hold_data(TensorQueue *self, Job *job, const Given *given, Digest *digest)
{
    Queue *q = &self->q;
    Operation *op = &job->operation;
    PyObject *owner = given->owner != Py_None ? given->owner : PyBytes_Check(given->data) ? given->data : NULL;
    pthread_mutex_lock(&q->lock);
    int full = is_full(q) || (q->most_threads == 0 && !q->threads);
    if (!full && !op->data && !owner && given->nbytes) job->span = ring_take(&q->ring, (size_t)given->nbytes);
    pthread_mutex_unlock(&q->lock);
    if (full) return 0;
    job->nbytes = (size_t)given->nbytes;
    if (op->data || !given->nbytes) return 1;
    if (owner) {
        Py_INCREF(owner);
        job->owner = owner;
        op->data = given->address;
        return 1;
    }
    if (!job->span) return 0;
    copy_data(op, q->ring.memory + job->span->start, given, digest);
    return 1;
}

static int state_of(Queue *q, const Content *content)
{
    pthread_mutex_lock(&q->lock);
    int state = content->state;
    pthread_mutex_unlock(&q->lock);
    return state;
}

/* The content of a key; NULL, perhaps with an error set: there is none, or none that can be linked to. */
static Content *known_content(Queue *q, const Directory *directory, PyObject *key)
{
    PyObject *known = PyDict_GetItemWithError(directory->contents, key);
    Content *content = known ? PyLong_AsVoidPtr(known) : NULL;
    return content && state_of(q, content) != FAILED ? content : NULL;
}

/* The content of a key: one that is known, or a new one, `*is_new`. NULL with an error set. */
static Content *content_of(Queue *q, Directory *directory, PyObject *key, int *is_new)
{
    Content *content = known_content(q, directory, key);
    if (content || PyErr_Occurred()) return content;
    *is_new = 1;
    if (!(content = calloc(1, sizeof *content))) return (Content *)PyErr_NoMemory();
    content->next = directory->all;
    directory->all = content;
    return content;
}

static int put_content(Directory *directory, PyObject *key, Content *content)
{
    PyObject *address = PyLong_FromVoidPtr(content);
    int ok = address && PyDict_SetItem(directory->contents, key, address) == 0;
    Py_XDECREF(address);
    return ok;
}

/* From now on other names of the content are linked to it. `digest`: of what is written, where that may be another content than the
   key's, since somebody changed the memory meanwhile; else NULL. 0 with an error set. */
static int remember(Queue *q, Directory *directory, PyObject *key, const Given *given, Digest *digest, Content *content)
{
    char sum[DIGEST_SIZE];
    if (digest) {
        digest_end(digest, (unsigned char *)sum);
        PyObject *bytes = PyBytes_FromStringAndSize(sum, sizeof sum);
        key = bytes ? PyTuple_Pack(3, bytes, given->dtype, given->shape) : NULL;
        Py_XDECREF(bytes);
    } else {
        Py_INCREF(key);
    }
    int ok = key && (known_content(q, directory, key) || (!PyErr_Occurred() && put_content(directory, key, content)));
    Py_XDECREF(key);
    return ok;
}

/* A job that is not put into the list after all. */
static void drop_job(Queue *q, Job *job)
{
    pthread_mutex_lock(&q->lock);
    if (job->span) job->span->done = 1;
    pthread_mutex_unlock(&q->lock);
    Py_XDECREF(job->owner);
    free(job);
}

/* 0 with an error set; nothing has been submitted then. */
static int submit_new(TensorQueue *self, Directory *directory, const Given *given, PyObject *key, Content *content)
{
    Queue *q = &self->q;
    Job *job = writing_job(self, directory, given);
    if (!job) return 0;
    job->content = content;
    if (!room_for_owner(q) || PySet_Add(directory->names, given->name) < 0) {
        free(job);
        return 0;
    }
    Digest digest;
    int held = hold_data(self, job, given, &digest), live = !held && !job->operation.data && is_live(given);
    if (!live && !remember(q, directory, key, given, job->span ? &digest : NULL, content)) {
        drop_job(q, job);
        return 0;
    }
    if (held) {
        put_job(q, job);
        return 1;
    }
    if (!job->operation.data) job->operation.data = given->address;
    if (live) job->operation.live = &digest;
    Py_BEGIN_ALLOW_THREADS
    do_now(q, job);
    Py_END_ALLOW_THREADS
    /* Where that fails there is no memory, and the next of this content is written once more. */
    if (live && state_of(q, content) == WRITTEN && !remember(q, directory, key, given, &digest, content)) PyErr_Clear();
    return 1;
}

static int submit_known(TensorQueue *self, Directory *directory, PyObject *name, Content *content)
{
    Job *job = room_for_owner(&self->q) ? new_job(directory, name, 0) : NULL;
    if (!job) return 0;
    if (PySet_Add(directory->names, name) < 0) {
        free(job);
        return 0;
    }
    job->content = content;
    put_job(&self->q, job);
    return 1;
}

/* While somebody submits to a directory it stays, though other threads may run whenever Python does. */
static void pin(Queue *q, Directory *directory, int by)
{
    pthread_mutex_lock(&q->lock);
    directory->jobs += by;
    directory_done(q, directory);
    pthread_mutex_unlock(&q->lock);
}

#endif
