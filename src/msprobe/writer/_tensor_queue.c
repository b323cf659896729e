/* Tensor files on their way to the disk, written by threads that know nothing of Python: the fast twin of TensorPool's `submit` and of what
   its threads do with it. Stable ABI of CPython 3.10. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "csrc/tensor_jobs.h"

/* From this size on data is copied into the ring; smaller data lies beside its job. */
enum { RING_FROM = 1 << 12, COPY_PIECE = 1 << 15, READ_ONLY = 0x100 /* PyBUF_READ */ };
/* Directories that are remembered: a step's own, and the one before while its last files come in. */
enum { DIRECTORIES = 2 };

typedef struct {
    PyObject_HEAD
    PyObject *digest, *frame; /* xxhash.xxh3_128_digest; torch_zip.frame */
    Directory *directories[DIRECTORIES]; /* the latest first */
    pid_t process;
    Queue q;
} TensorQueue;

static PyObject *n_head, *n_head_crc, *n_tail, *n_tail_crc, *n_nbytes;

/* --- directories ------------------------------------------------------------------------------------------------------------------------ */
static void free_contents(Directory *directory)
{
    for (Content *content = directory->all; content; content = directory->all) {
        directory->all = content->next;
        free(content->name);
        free(content);
    }
}

static void free_directory(Directory *directory)
{
    if (directory->file >= 0) close(directory->file);
    free_contents(directory);
    Py_XDECREF(directory->path_object);
    Py_XDECREF(directory->names);
    Py_XDECREF(directory->contents);
    free(directory->path);
    free(directory);
}

static Directory *new_directory(PyObject *path)
{
    Directory *directory = calloc(1, sizeof *directory);
    PyObject *encoded = directory ? PyUnicode_EncodeFSDefault(path) : PyErr_NoMemory();
    char *text;
    if (!directory) return NULL;
    directory->file = -1;
    directory->names = encoded ? PySet_New(NULL) : NULL;
    directory->contents = directory->names ? PyDict_New() : NULL;
    if (directory->contents && PyBytes_AsStringAndSize(encoded, &text, NULL) == 0 && !(directory->path = strdup(text))) PyErr_NoMemory();
    Py_XDECREF(encoded);
    if (!directory->path) {
        free_directory(directory);
        return NULL;
    }
    Py_INCREF(path);
    directory->path_object = path;
    return directory;
}

/* Lets go of what is done with: owners of data and directories. Python's lock is held, the queue's is not. */
static void bury(TensorQueue *self)
{
    Queue *q = &self->q;
    PyObject *few[64];
    size_t count;
    do {
        pthread_mutex_lock(&q->lock);
        count = q->used_dead < 64 ? q->used_dead : 64;
        q->used_dead -= count;
        if (count) memcpy(few, q->dead + q->used_dead, count * sizeof *few);
        Directory *gone = q->dead_directories;
        q->dead_directories = NULL;
        pthread_mutex_unlock(&q->lock);
        for (size_t k = 0; k < count; k++) Py_DECREF(few[k]);
        while (gone) {
            Directory *next = gone->next;
            free_directory(gone);
            gone = next;
        }
    } while (count);
}

static void let_directory_go(TensorQueue *self, Directory *directory)
{
    pthread_mutex_lock(&self->q.lock);
    directory->gone = 1;
    directory_done(&self->q, directory);
    pthread_mutex_unlock(&self->q.lock);
}

static int is_path_of(const Directory *directory, PyObject *path)
{
    return directory->path_object == path || PyUnicode_Compare(directory->path_object, path) == 0;
}

/* NULL with an error set. */
static Directory *directory_of(TensorQueue *self, PyObject *path)
{
    for (int k = 0; k < DIRECTORIES && self->directories[k]; k++)
        if (is_path_of(self->directories[k], path)) return self->directories[k];
    Directory *directory = new_directory(path);
    if (!directory) return NULL;
    if (self->directories[DIRECTORIES - 1]) let_directory_go(self, self->directories[DIRECTORIES - 1]);
    memmove(self->directories + 1, self->directories, (DIRECTORIES - 1) * sizeof *self->directories);
    self->directories[0] = directory;
    return directory;
}

/* --- a new job -------------------------------------------------------------------------------------------------------------------------- */
typedef struct {
    PyObject *name, *dtype, *shape, *data, *owner; /* data: bytes, or an int, where it lies */
    const char *address;
    Py_ssize_t nbytes;
} Given;

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

/* The data into memory of ours, with its checksum taken on the way, while each piece of it is in the cache. */
static void copy_data(Operation *op, char *to, const Given *given)
{
    uint32_t state = 0xFFFFFFFFu;
    for (Py_ssize_t at = 0; at < given->nbytes; at += COPY_PIECE) {
        Py_ssize_t n = given->nbytes - at < COPY_PIECE ? given->nbytes - at : COPY_PIECE;
        state = crc_path.update(state, (const unsigned char *)given->address + at, n);
        memcpy(to + at, given->address + at, (size_t)n);
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
            copy_data(op, at, given);
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

/* Sees to it that nobody changes the data; 0: there is no room, and the caller has to write it now. */
static int hold_data(TensorQueue *self, Job *job, const Given *given)
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
    copy_data(op, q->ring.memory + job->span->start, given);
    return 1;
}

/* The content of a key: one that is known, or a new one, `*is_new`. NULL with an error set. */
static Content *content_of(Queue *q, Directory *directory, PyObject *key, int *is_new)
{
    PyObject *known = PyDict_GetItemWithError(directory->contents, key);
    if (!known && PyErr_Occurred()) return NULL;
    Content *content = known ? PyLong_AsVoidPtr(known) : NULL;
    if (content) {
        pthread_mutex_lock(&q->lock);
        *is_new = content->state == FAILED;
        pthread_mutex_unlock(&q->lock);
        if (!*is_new) return content;
    }
    *is_new = 1;
    if (!(content = calloc(1, sizeof *content))) return (Content *)PyErr_NoMemory();
    content->next = directory->all;
    directory->all = content;
    return content;
}

static int remember(Directory *directory, PyObject *key, Content *content)
{
    PyObject *address = PyLong_FromVoidPtr(content);
    int ok = address && PyDict_SetItem(directory->contents, key, address) == 0;
    Py_XDECREF(address);
    return ok;
}

/* 0 with an error set; nothing has been submitted then. */
static int submit_new(TensorQueue *self, Directory *directory, const Given *given, PyObject *key, Content *content)
{
    Queue *q = &self->q;
    Job *job = writing_job(self, directory, given);
    if (!job) return 0;
    job->content = content;
    int held = room_for_owner(q) && PySet_Add(directory->names, given->name) == 0 && remember(directory, key, content);
    if (!held) {
        free(job);
        return 0;
    }
    if (hold_data(self, job, given)) {
        put_job(q, job);
        return 1;
    }
    if (!job->operation.data) job->operation.data = given->address;
    Py_BEGIN_ALLOW_THREADS
    do_now(q, job);
    Py_END_ALLOW_THREADS
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

/* --- the methods ---------------------------------------------------------------------------------------------------------------------------- */
static int read_given(Given *given, PyObject *const *args)
{
    *given = (Given){args[1], args[2], args[3], args[4], args[6], NULL, PyLong_AsSsize_t(args[5])};
    if (given->nbytes < 0) {
        if (!PyErr_Occurred()) PyErr_SetString(PyExc_ValueError, "a negative number of bytes");
        return 0;
    }
    if (!PyUnicode_Check(args[0]) || !PyUnicode_Check(given->name) || !PyUnicode_Check(given->dtype) || !PyTuple_Check(given->shape)) {
        PyErr_SetString(PyExc_TypeError, "submit() takes two names, a dtype's name and a tuple");
        return 0;
    }
    if (PyBytes_Check(given->data)) {
        given->address = PyBytes_AsString(given->data);
        if (PyBytes_Size(given->data) == given->nbytes) return 1;
        PyErr_SetString(PyExc_ValueError, "the bytes are not as many as is said");
        return 0;
    }
    given->address = PyLong_AsVoidPtr(given->data);
    if (!given->address && given->nbytes && !PyErr_Occurred()) PyErr_SetString(PyExc_ValueError, "there is no data");
    return !PyErr_Occurred();
}

/* A forked child has none of the threads, and the locks in whatever state they were. */
static int is_alive(const TensorQueue *self) { return self->process == getpid(); }

PyDoc_STRVAR(submit_doc, "submit(directory, name, dtype, shape, data, nbytes, owner, /)\n--\n\n"
"Have a file written, or linked to one of the same content. False: a file of that name has been submitted, and nothing is done; drain and\n"
"forget() first. Raises KeyError (a dtype that such files cannot hold), ValueError (data does not fit dtype and shape).\n"
"data: bytes, or the address of memory, which is copied, where it is new and not written at once, unless somebody else keeps it as it is\n"
"for as long as `owner`, not None, is there.");

static PyObject *queue_submit(PyObject *object, PyObject *const *args, Py_ssize_t count)
{
    TensorQueue *self = (TensorQueue *)object;
    Given given;
    if (count != 7) return PyErr_Format(PyExc_TypeError, "submit() takes 7 positional arguments, not %zd", count);
    if (!read_given(&given, args)) return NULL;
    if (!is_alive(self)) Py_RETURN_TRUE;
    if (self->q.used_dead || self->q.dead_directories) bury(self);
    PyObject *key = key_of(self, &given);
    Directory *directory = key ? directory_of(self, args[0]) : NULL;
    if (directory) pin(&self->q, directory, 1);
    int known = directory ? PySet_Contains(directory->names, given.name) : -1, ok = 0, is_new = 0;
    if (known == 0) {
        Content *content = content_of(&self->q, directory, key, &is_new);
        if (content) ok = is_new ? submit_new(self, directory, &given, key, content) : submit_known(self, directory, given.name, content);
    }
    if (directory) pin(&self->q, directory, -1);
    Py_XDECREF(key);
    if (known < 0 || (known == 0 && !ok)) return NULL;
    return PyBool_FromLong(!known);
}

PyDoc_STRVAR(note_doc, "note(directory, name, /)\n--\n\nA file of that name comes from elsewhere. False: one has been submitted here.");

static PyObject *queue_note(PyObject *object, PyObject *args)
{
    TensorQueue *self = (TensorQueue *)object;
    PyObject *path, *name;
    if (!PyArg_ParseTuple(args, "UU", &path, &name)) return NULL;
    Directory *directory = directory_of(self, path);
    int known = directory ? PySet_Contains(directory->names, name) : -1;
    if (known < 0 || (!known && PySet_Add(directory->names, name) < 0)) return NULL;
    return PyBool_FromLong(!known);
}

PyDoc_STRVAR(forget_doc, "forget(directory, /)\n--\n\nNothing is linked any more to what has been written into the directory. Drain before.");

static PyObject *queue_forget(PyObject *object, PyObject *path)
{
    TensorQueue *self = (TensorQueue *)object;
    for (int k = 0; k < DIRECTORIES && self->directories[k]; k++) {
        if (!PyUnicode_Check(path) || !is_path_of(self->directories[k], path)) continue;
        Directory *directory = self->directories[k];
        memmove(self->directories + k, self->directories + k + 1, (size_t)(DIRECTORIES - 1 - k) * sizeof *self->directories);
        self->directories[DIRECTORIES - 1] = NULL;
        let_directory_go(self, directory);
        break;
    }
    bury(self);
    Py_RETURN_NONE;
}

PyDoc_STRVAR(settle_doc, "settle(seconds, /)\n--\n\nHelp until everything submitted is done, or so long; whether all is done.");

static PyObject *queue_settle(PyObject *object, PyObject *seconds)
{
    TensorQueue *self = (TensorQueue *)object;
    double most = PyFloat_AsDouble(seconds);
    int done = 1;
    if (PyErr_Occurred()) return NULL;
    if (is_alive(self)) {
        Py_BEGIN_ALLOW_THREADS
        done = settle(&self->q, most);
        Py_END_ALLOW_THREADS
        bury(self);
    }
    return PyBool_FromLong(done);
}

PyDoc_STRVAR(close_doc, "close()\n--\n\nThe threads end when all is done; what is submitted later is written at once.");

static PyObject *queue_close(PyObject *object, PyObject *unused)
{
    TensorQueue *self = (TensorQueue *)object;
    (void)unused;
    if (!is_alive(self)) Py_RETURN_NONE;
    for (int k = 0; k < DIRECTORIES; k++) {
        if (self->directories[k]) let_directory_go(self, self->directories[k]);
        self->directories[k] = NULL;
    }
    pthread_mutex_lock(&self->q.lock);
    self->q.most_threads = 0;
    self->q.idle_seconds = 0;
    pthread_cond_broadcast(&self->q.work);
    pthread_mutex_unlock(&self->q.lock);
    bury(self);
    Py_RETURN_NONE;
}

PyDoc_STRVAR(failures_doc, "failures()\n--\n\n(path, errno; -1: the file with the same content failed) of all that failed since, in order.");

static PyObject *queue_failures(PyObject *object, PyObject *unused)
{
    TensorQueue *self = (TensorQueue *)object;
    (void)unused;
    PyObject *list = PyList_New(0);
    if (!list || !is_alive(self)) return list;
    pthread_mutex_lock(&self->q.lock);
    Failure *failure = self->q.failures;
    self->q.failures = NULL;
    pthread_mutex_unlock(&self->q.lock);
    while (failure) {
        Failure *next = failure->next;
        PyObject *path = list ? PyUnicode_DecodeFSDefault(failure->path) : NULL;
        PyObject *item = path ? Py_BuildValue("(Oi)", path, failure->of_content ? -1 : failure->error) : NULL;
        if (list && (!item || PyList_Append(list, item) < 0)) Py_CLEAR(list);
        Py_XDECREF(path);
        Py_XDECREF(item);
        free(failure->path);
        free(failure);
        failure = next;
    }
    if (list && PyList_Reverse(list) < 0) Py_CLEAR(list);
    return list;
}

PyDoc_STRVAR(counts_doc, "counts()\n--\n\n(files, bytes written, bytes that wait, threads) so far.");

static PyObject *queue_counts(PyObject *object, PyObject *unused)
{
    TensorQueue *self = (TensorQueue *)object;
    (void)unused;
    int alive = is_alive(self);
    if (alive) pthread_mutex_lock(&self->q.lock);
    long long files = self->q.files, bytes = self->q.bytes, wait = (long long)(self->q.submitted - self->q.finished);
    int threads = self->q.threads;
    if (alive) pthread_mutex_unlock(&self->q.lock);
    return Py_BuildValue("(LLLi)", files, bytes, wait, threads);
}

PyDoc_STRVAR(refuse_links_doc, "refuse_links(errno, /)\n--\n\nFor tests: links fail so from now on, 0: they no longer do.");

static PyObject *queue_refuse_links(PyObject *object, PyObject *number)
{
    long error = PyLong_AsLong(number);
    if (PyErr_Occurred()) return NULL;
    ((TensorQueue *)object)->q.refuse_links = (int)error;
    Py_RETURN_NONE;
}

static PyMethodDef queue_methods[] = {
    {"submit", (PyCFunction)(void (*)(void))queue_submit, METH_FASTCALL, submit_doc},
    {"note", queue_note, METH_VARARGS, note_doc},
    {"forget", queue_forget, METH_O, forget_doc},
    {"settle", queue_settle, METH_O, settle_doc},
    {"close", queue_close, METH_NOARGS, close_doc},
    {"failures", queue_failures, METH_NOARGS, failures_doc},
    {"counts", queue_counts, METH_NOARGS, counts_doc},
    {"refuse_links", queue_refuse_links, METH_O, refuse_links_doc},
    {NULL, NULL, 0, NULL},
};

/* --- the type -------------------------------------------------------------------------------------------------------------------------------- */
static PyObject *queue_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    (void)kwargs;
    Py_ssize_t most;
    int threads;
    double idle;
    PyObject *digest, *frame;
    if (!PyArg_ParseTuple(args, "nidOO", &most, &threads, &idle, &digest, &frame)) return NULL;
    TensorQueue *self = (TensorQueue *)PyType_GenericAlloc(type, 0);
    if (!self) return NULL;
    Py_INCREF(digest);
    Py_INCREF(frame);
    self->digest = digest;
    self->frame = frame;
    self->process = getpid();
    pthread_mutex_init(&self->q.lock, NULL);
    pthread_cond_init(&self->q.work, NULL);
    pthread_cond_init(&self->q.room, NULL);
    self->q.most = most < 0 ? 0 : (size_t)most;
    self->q.most_threads = threads;
    self->q.idle_seconds = idle;
    self->q.ring.size = self->q.most / 2;
    return (PyObject *)self;
}

/* All that was submitted is written, and no thread knows of the queue any more. */
static void end_threads(Queue *q)
{
    pthread_mutex_lock(&q->lock);
    q->stopping = 1;
    pthread_cond_broadcast(&q->work);
    while (q->first) do_one(q);
    while (q->threads) wait_for(q, &q->room, 1.0);
    pthread_mutex_unlock(&q->lock);
}

static void queue_dealloc(PyObject *object)
{
    TensorQueue *self = (TensorQueue *)object;
    PyTypeObject *type = Py_TYPE(object);
    if (is_alive(self)) { /* in a forked child all of it stays as it is */
        Py_BEGIN_ALLOW_THREADS
        end_threads(&self->q);
        Py_END_ALLOW_THREADS
        for (int k = 0; k < DIRECTORIES; k++)
            if (self->directories[k]) let_directory_go(self, self->directories[k]);
        bury(self);
        for (Failure *failure = self->q.failures; failure; failure = self->q.failures) {
            self->q.failures = failure->next;
            free(failure->path);
            free(failure);
        }
        ring_free(&self->q.ring);
        free(self->q.dead);
        pthread_cond_destroy(&self->q.work);
        pthread_cond_destroy(&self->q.room);
        pthread_mutex_destroy(&self->q.lock);
    }
    Py_XDECREF(self->digest);
    Py_XDECREF(self->frame);
    ((freefunc)PyType_GetSlot(type, Py_tp_free))(object);
    Py_DECREF(type);
}

PyDoc_STRVAR(queue_doc, "Queue(most, threads, idle_seconds, digest, frame, /)\n--\n\n"
"Tensor files that wait to be written, each content once per directory, its other names as hard links.\n"
"most: bytes that may wait; beyond it who submits writes. digest: of bytes. frame: torch_zip.frame.");

static PyType_Slot queue_slots[] = {
    {Py_tp_doc, (void *)queue_doc},
    {Py_tp_new, (void *)queue_new},
    {Py_tp_dealloc, (void *)queue_dealloc},
    {Py_tp_methods, queue_methods},
    {0, NULL},
};

static PyType_Spec queue_spec = {"msprobe.writer._tensor_queue.Queue", sizeof(TensorQueue), 0, Py_TPFLAGS_DEFAULT, queue_slots};

static int exec_module(PyObject *module)
{
    crc_init();
    n_head = PyUnicode_InternFromString("head");
    n_head_crc = PyUnicode_InternFromString("head_crc");
    n_tail = PyUnicode_InternFromString("tail");
    n_tail_crc = PyUnicode_InternFromString("tail_crc");
    n_nbytes = PyUnicode_InternFromString("nbytes");
    PyObject *type = PyType_FromSpec(&queue_spec);
    if (!type || !n_head || !n_head_crc || !n_tail || !n_tail_crc || !n_nbytes) return -1;
    int failed = PyObject_SetAttrString(module, "Queue", type);
    Py_DECREF(type);
    return failed;
}

static PyModuleDef_Slot slots[] = {
    {Py_mod_exec, (void *)exec_module},
    {0, NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "_tensor_queue", "Tensor files on their way to the disk.", 0, NULL, slots, NULL, NULL, NULL,
};

PyMODINIT_FUNC PyInit__tensor_queue(void) { return PyModuleDef_Init(&definition); }
