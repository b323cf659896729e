/* Writes and links many files of one directory without Python's lock: the fast twin of `_one_by_one` in tensor_files.py.
   Stable ABI of CPython 3.10. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "csrc/tensor_file.h"

/* --- the Python face -------------------------------------------------------------------------------------------------------------- */
static int text_of(PyObject *bytes, const char **text, Py_ssize_t *size) /* without a size: no byte may be 0 */
{
    char *found;
    if (PyBytes_AsStringAndSize(bytes, &found, size) < 0) return 0;
    *text = found;
    return 1;
}

static int read_write(Operation *op, PyObject *item)
{
    PyObject *data = PyTuple_GetItem(item, 3);
    if (!text_of(PyTuple_GetItem(item, 0), &op->name, NULL) || !text_of(PyTuple_GetItem(item, 1), &op->head, &op->n_head)) return 0;
    op->head_crc = PyLong_AsSsize_t(PyTuple_GetItem(item, 2));
    op->n_data = PyLong_AsSsize_t(PyTuple_GetItem(item, 4));
    if (!text_of(PyTuple_GetItem(item, 5), &op->tail, &op->n_tail)) return 0;
    op->tail_crc = PyLong_AsSsize_t(PyTuple_GetItem(item, 6));
    if (PyErr_Occurred()) return 0;
    if (PyBytes_Check(data)) {
        Py_ssize_t size;
        if (!text_of(data, &op->data, &size)) return 0;
        if (size < op->n_data) op->n_data = -1;
    } else {
        op->data = PyLong_AsVoidPtr(data);
        if (PyErr_Occurred()) return 0;
        if (!op->data && op->n_data) op->n_data = -1;
    }
    if (op->n_data >= 0 && op->head_crc >= 0 && op->head_crc + 4 <= op->n_head && op->tail_crc >= 0 && op->tail_crc + 4 <= op->n_tail)
        return 1;
    PyErr_SetString(PyExc_ValueError, "a place or a size is not within what was given");
    return 0;
}

static int read_operation(Operation *op, PyObject *item)
{
    memset(op, 0, sizeof *op);
    if (!PyTuple_Check(item)) {
        PyErr_SetString(PyExc_TypeError, "an operation is a tuple");
        return 0;
    }
    Py_ssize_t length = PyTuple_Size(item);
    if (length == 7) return read_write(op, item);
    if (length == 2) return text_of(PyTuple_GetItem(item, 0), &op->name, NULL) && text_of(PyTuple_GetItem(item, 1), &op->original, NULL);
    PyErr_Format(PyExc_ValueError, "an operation has 2 or 7 parts, not %zd", length);
    return 0;
}

PyDoc_STRVAR(carry_out_doc, "carry_out(directory, operations, /)\n--\n\n"
"Does the operations in a directory, in their order; gives a list of errno, 0 for what was done. Raises OSError where there is no such\n"
"directory: nothing was done then. directory: bytes. An operation is (name, original) for a link, or\n"
"(name, head, place of the CRC-32 in it, data, number of its bytes, tail, place of the CRC-32 in it) for a file; names, head and tail are\n"
"bytes, data bytes or the address of memory that stays as it is meanwhile.");

static PyObject *carry_out(PyObject *self, PyObject *const *args, Py_ssize_t nargs)
{
    (void)self;
    const char *path;
    if (nargs != 2) return PyErr_Format(PyExc_TypeError, "carry_out() takes 2 positional arguments, not %zd", nargs);
    if (!text_of(args[0], &path, NULL)) return NULL;
    Py_ssize_t count = PyList_Size(args[1]);
    if (count < 0) return NULL;
    Operation *ops = PyMem_Malloc(((size_t)count + 1) * sizeof *ops);
    PyObject *held = PyList_GetSlice(args[1], 0, count), *errors = NULL; /* what the addresses belong to */
    if (!ops || !held) {
        if (!ops) PyErr_NoMemory();
        goto done;
    }
    for (Py_ssize_t k = 0; k < count; k++)
        if (!read_operation(&ops[k], PyList_GetItem(held, k))) goto done;
    int directory, problem = 0;
    Py_BEGIN_ALLOW_THREADS
    do directory = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    while (directory < 0 && errno == EINTR);
    if (directory < 0) {
        problem = errno;
    } else {
        for (Py_ssize_t k = 0; k < count; k++) ops[k].error = ops[k].original ? link_file(directory, &ops[k]) : write_file(directory, &ops[k]);
        close(directory);
    }
    Py_END_ALLOW_THREADS
    if (problem) {
        errno = problem;
        PyErr_SetFromErrnoWithFilename(PyExc_OSError, path);
        goto done;
    }
    errors = PyList_New(count);
    for (Py_ssize_t k = 0; errors && k < count; k++) {
        PyObject *error = PyLong_FromLong(ops[k].error);
        if (!error || PyList_SetItem(errors, k, error) < 0) Py_CLEAR(errors);
    }
done:
    PyMem_Free(ops);
    Py_XDECREF(held);
    return errors;
}

static PyMethodDef methods[] = {
    {"carry_out", (PyCFunction)(void (*)(void))carry_out, METH_FASTCALL, carry_out_doc},
    {NULL, NULL, 0, NULL},
};

static int exec_module(PyObject *module)
{
    (void)module;
    crc_init();
    return 0;
}

static PyModuleDef_Slot slots[] = {
    {Py_mod_exec, (void *)exec_module},
#ifdef Py_GIL_DISABLED
    {Py_mod_gil, Py_MOD_GIL_NOT_USED},
#endif
    {0, NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "_tensor_files", "Writes many tensor files at once.", 0, methods, slots, NULL, NULL, NULL,
};

PyMODINIT_FUNC PyInit__tensor_files(void) { return PyModuleDef_Init(&definition); }
