/* Values of tensors on their way to files: `Encoder._keep` with a `TensorSaver`. */
#ifndef MSPROBE_KEEPING_H
#define MSPROBE_KEEPING_H

#include "pieces.h"

#define EACH_KEEPING_NAME(X) X(_save) X(_md5_last) X(directory) X(queue) X(files) X(submit) X(write) X(data_name) X(md5) X(dtype) X(shape)
EACH_KEEPING_NAME(DECLARE_NAME)

enum { LONGEST_FILE_NAME = 255, BEFORE_DTYPE = 6 /* "torch." */, READ_ONLY = 0x100 /* PyBUF_READ */ };

static int keeping_init(void)
{
    EACH_KEEPING_NAME(MAKE_NAME)
    return 1;
}

/* layout.safe_file_name: most names are safe as they are. Takes the name. */
static PyObject *safe_name(PyObject *name)
{
    Py_ssize_t size = 0;
    const char *text = name ? PyUnicode_AsUTF8AndSize(name, &size) : NULL;
    if (!name) return NULL;
    if (text && size <= LONGEST_FILE_NAME && size == PyUnicode_GetLength(name) && !memchr(text, '/', (size_t)size)
        && !memchr(text, 0, (size_t)size))
        return name;
    PyErr_Clear(); /* half of a surrogate pair */
    PyObject *safe = PyObject_CallFunctionObjArgs(safe_file_name, name, NULL);
    Py_DECREF(name);
    return safe;
}

/* layout.tensor_file_name, of a value that is no part of another. */
static PyObject *file_of_value(PyObject *entry, PyObject *role, PyObject *name)
{
    PyObject *text = PyObject_Str(name), *file = NULL;
    if (text) file = PyUnicode_GetLength(role) ? PyUnicode_FromFormat("%U.%U.%U.pt", entry, role, text) : PyUnicode_FromFormat("%U.%U.pt", entry, text);
    Py_XDECREF(text);
    return safe_name(file);
}

/* As TensorPool.submit takes it; NULL without an error: such files cannot hold it. */
static PyObject *dtype_of_file(PyObject *record)
{
    PyObject *text = PyDict_GetItemWithError(record, n_dtype);
    PyObject *dtype = text ? PyUnicode_Substring(text, BEFORE_DTYPE, PyUnicode_GetLength(text)) : NULL;
    int can = dtype ? PyDict_Contains(dtypes_of_files, dtype) : 0;
    if (can <= 0) Py_CLEAR(dtype);
    return dtype;
}

/* Elements that lie side by side, to a NativePool's queue: its True, its False where a file of that name was submitted before. */
static PyObject *submit_values(PyObject *saver, PyObject *queue, PyObject *file, PyObject *record, PyObject *dtype, const void *address,
                               long long bytes)
{
    PyObject *directory = PyObject_GetAttr(saver, n_directory), *shape = PyList_AsTuple(PyDict_GetItem(record, n_shape));
    PyObject *place = PyLong_FromVoidPtr((void *)address), *size = PyLong_FromLongLong(bytes), *done = NULL;
    if (directory && shape && place && size)
        done = PyObject_CallMethodObjArgs(queue, n_submit, directory, file, dtype, shape, place, size, Py_None, NULL);
    Py_XDECREF(directory);
    Py_XDECREF(shape);
    Py_XDECREF(place);
    Py_XDECREF(size);
    return done;
}

static int save_values(PyObject *saver, PyObject *tensor, PyObject *file, PyObject *record, const void *address, long long bytes)
{
    PyObject *queue = address ? PyObject_GetAttr(saver, n_queue) : NULL, *done = NULL;
    PyObject *dtype = queue && queue != Py_None ? dtype_of_file(record) : NULL;
    if (dtype) done = submit_values(saver, queue, file, record, dtype, address, bytes);
    Py_XDECREF(queue);
    Py_XDECREF(dtype);
    if (PyErr_Occurred()) return 0;
    int submitted = done == Py_True;
    Py_XDECREF(done);
    if (submitted) return add_to(saver, n_files, 1);
    done = PyObject_CallMethodObjArgs(saver, n_write, tensor, file, NULL);
    Py_XDECREF(done);
    return done != NULL;
}

/* The file's name goes into the record; 0 with an error set. */
static int name_file(PyObject *encoder, PyObject *record, PyObject *file)
{
    if (PyDict_SetItem(record, n_data_name, file) < 0) return 0;
    PyObject *digest = PyDict_GetItemWithError(record, n_md5);
    if (!digest) return !PyErr_Occurred();
    if (!is_attribute(encoder, n__md5_last, Py_True)) return 1;
    Py_INCREF(digest);
    int ok = PyDict_DelItem(record, n_md5) == 0 && PyDict_SetItem(record, n_md5, digest) == 0;
    Py_DECREF(digest);
    return ok;
}

/* Keeps a tensor's values; 0: an error is to be let through. */
static int keep_values(PyObject *encoder, PyObject *entry, PyObject *role, PyObject *tensor, PyObject *record, PyObject *name, const void *address,
                       long long bytes)
{
    PyObject *saver = PyObject_GetAttr(encoder, n__save), *file = saver ? file_of_value(entry, role, name) : NULL;
    int ok = file && save_values(saver, tensor, file, record, address, bytes) && name_file(encoder, record, file);
    Py_XDECREF(saver);
    Py_XDECREF(file);
    if (ok || !PyErr_ExceptionMatches(PyExc_Exception)) return ok;
    PyObject *type, *value, *traceback;
    PyErr_Fetch(&type, &value, &traceback);
    PyErr_NormalizeException(&type, &value, &traceback);
    if (value && traceback) PyException_SetTraceback(value, traceback);
    PyObject *told = PyObject_CallFunctionObjArgs(not_kept, encoder, entry, role, name, value, NULL);
    Py_XDECREF(type);
    Py_XDECREF(value);
    Py_XDECREF(traceback);
    Py_XDECREF(told);
    return told != NULL;
}

#endif
