/* A queue as Python holds it, and the directories that are submitted to. Include Python.h before. */
#ifndef MSPROBE_DIRECTORIES_H
#define MSPROBE_DIRECTORIES_H

#include "tensor_jobs.h"

/* From this size on data is copied into the ring; smaller data lies beside its job. */
enum { RING_FROM = 1 << 12, COPY_PIECE = 1 << 15 /* a multiple of DIGEST_BLOCK */, READ_ONLY = 0x100 /* PyBUF_READ */ };
/* Directories that are remembered: a step's own, and the one before while its last files come in. */
enum { DIRECTORIES = 2 };

typedef struct {
    PyObject_HEAD
    PyObject *digest, *frame; /* xxhash.xxh3_128_digest, which digest.h has too; torch_zip.frame */
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

#endif
