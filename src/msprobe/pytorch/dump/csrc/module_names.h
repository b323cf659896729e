/* Names of modules' calls: `{prefix}.forward.{number}`, and their mirror images in the backward pass. */
#ifndef MSPROBE_MODULE_NAMES_H
#define MSPROBE_MODULE_NAMES_H

#include "pieces.h"

/* Kept: every step makes the same ones again. prefix -> list of (forward, backward), by number. */
static PyObject *names_by_prefix;
enum { MOST_NUMBERS_OF_MODULES = 5000, MOST_PREFIXES = 20000 };

static int module_names_init(void) { return (names_by_prefix = PyDict_New()) != NULL; }

static PyObject *new_module_names(PyObject *prefix, long number)
{
    PyObject *forward = PyUnicode_FromFormat("%U.forward.%ld", prefix, number), *backward = PyUnicode_FromFormat("%U.backward.%ld", prefix, number);
    PyObject *pair = forward && backward ? PyTuple_Pack(2, forward, backward) : NULL;
    Py_XDECREF(forward);
    Py_XDECREF(backward);
    return pair;
}

/* The two names, new references. 0 with an error set. */
static int module_names(PyObject *prefix, long number, PyObject **forward, PyObject **backward)
{
    PyObject *list = PyDict_GetItemWithError(names_by_prefix, prefix), *pair;
    if (!list && PyErr_Occurred()) return 0;
    if (!list && PyDict_Size(names_by_prefix) < MOST_PREFIXES) {
        list = PyList_New(0);
        if (!list || PyDict_SetItem(names_by_prefix, prefix, list) < 0) {
            Py_XDECREF(list);
            return 0;
        }
        Py_DECREF(list); /* the dict holds it */
    }
    if (list && number < PyList_Size(list)) {
        pair = PyList_GetItem(list, number);
        Py_XINCREF(pair);
    } else {
        pair = new_module_names(prefix, number);
        if (pair && list && number == PyList_Size(list) && number < MOST_NUMBERS_OF_MODULES && PyList_Append(list, pair) < 0) Py_CLEAR(pair);
    }
    if (!pair) return 0;
    *forward = PyTuple_GetItem(pair, 0);
    *backward = PyTuple_GetItem(pair, 1);
    Py_XINCREF(*forward);
    Py_XINCREF(*backward);
    Py_DECREF(pair);
    return 1;
}

#endif
