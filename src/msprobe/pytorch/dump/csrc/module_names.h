/* Names of modules' calls: `{prefix}.forward.{number}`, their mirror images in the backward pass, and those of the gradients of parameters. */
#ifndef MSPROBE_MODULE_NAMES_H
#define MSPROBE_MODULE_NAMES_H

#include "pieces.h"

/* Kept: every step makes the same ones again. prefix -> list of (forward, backward, gradients of parameters), by number. */
static PyObject *names_by_prefix;
enum { MOST_NUMBERS_OF_MODULES = 5000, MOST_PREFIXES = 20000 };

static int module_names_init(void) { return (names_by_prefix = PyDict_New()) != NULL; }

static PyObject *new_module_names(PyObject *prefix, long number)
{
    PyObject *forward = PyUnicode_FromFormat("%U.forward.%ld", prefix, number), *backward = PyUnicode_FromFormat("%U.backward.%ld", prefix, number);
    PyObject *gradients = PyUnicode_FromFormat("%U.parameters_grad.%ld", prefix, number);
    PyObject *names = forward && backward && gradients ? PyTuple_Pack(3, forward, backward, gradients) : NULL;
    Py_XDECREF(forward);
    Py_XDECREF(backward);
    Py_XDECREF(gradients);
    return names;
}

/* The names of one number, a new reference; NULL with an error set. */
static PyObject *names_of_module(PyObject *prefix, long number)
{
    PyObject *list = PyDict_GetItemWithError(names_by_prefix, prefix), *names;
    if (!list && PyErr_Occurred()) return NULL;
    if (!list && PyDict_Size(names_by_prefix) < MOST_PREFIXES) {
        list = PyList_New(0);
        if (!list || PyDict_SetItem(names_by_prefix, prefix, list) < 0) {
            Py_XDECREF(list);
            return NULL;
        }
        Py_DECREF(list); /* the dict holds it */
    }
    if (list && number < PyList_Size(list)) {
        names = PyList_GetItem(list, number);
        Py_XINCREF(names);
    } else {
        names = new_module_names(prefix, number);
        if (names && list && number == PyList_Size(list) && number < MOST_NUMBERS_OF_MODULES && PyList_Append(list, names) < 0) Py_CLEAR(names);
    }
    return names;
}

/* The two names, new references. 0 with an error set. */
static int module_names(PyObject *prefix, long number, PyObject **forward, PyObject **backward)
{
    PyObject *names = names_of_module(prefix, number);
    if (!names) return 0;
    *forward = PyTuple_GetItem(names, 0);
    *backward = PyTuple_GetItem(names, 1);
    Py_XINCREF(*forward);
    Py_XINCREF(*backward);
    Py_DECREF(names);
    return 1;
}

/* The name of the gradients of parameters, a new reference; NULL with an error set. */
static PyObject *gradients_name(PyObject *prefix, long number)
{
    PyObject *names = names_of_module(prefix, number), *name = names ? PyTuple_GetItem(names, 2) : NULL;
    Py_XINCREF(name);
    Py_XDECREF(names);
    return name;
}

#endif
