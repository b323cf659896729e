/* Tensor files on their way to the disk, written by threads that know nothing of Python: the fast twin of TensorPool's `submit` and of what
   its threads do with it. Stable ABI of CPython 3.10. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "csrc/submitting.h"

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
"for as long as `owner`, not None, is there. Where other threads change it meanwhile the file holds what was read from it, and no other\n"
"name is linked to it but those of that content.");

static PyObject *queue_submit(PyObject *object, PyObject *const *args, Py_ssize_t count)
{
    TensorQueue *self = (TensorQueue *)object;
    Given given;
    if (count != 7) return PyErr_Format(PyExc_TypeError, "submit() takes 7 positional arguments, not %zd", count);
    if (!read_given(&given, args)) return NULL;
    if (!is_alive(self)) Py_RETURN_TRUE;
    if (self->q.used_dead || self->q.dead_directories) bury(self);
    char copy[RING_FROM];
    if (is_live(&given) && given.nbytes < RING_FROM) given.address = memcpy(copy, given.address, (size_t)given.nbytes);
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
