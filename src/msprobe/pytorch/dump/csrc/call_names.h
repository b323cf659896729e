/* Names of calls: `{full}.{number}.forward`, and their mirror images in the backward pass. */
#ifndef MSPROBE_CALL_NAMES_H
#define MSPROBE_CALL_NAMES_H

#include "pieces.h"

/* Kept: every step makes the same ones again. full -> list of (forward, backward), by number. */
static PyObject *names_by_full;
enum { MOST_NUMBERS = 20000, MOST_FULL = 5000 };

static int call_names_init(void) { return (names_by_full = PyDict_New()) != NULL; }

static PyObject *new_names(PyObject *full, long number)
{
    PyObject *forward = PyUnicode_FromFormat("%U.%ld.forward", full, number), *backward = PyUnicode_FromFormat("%U.%ld.backward", full, number);
    PyObject *pair = forward && backward ? PyTuple_Pack(2, forward, backward) : NULL;
    Py_XDECREF(forward);
    Py_XDECREF(backward);
    return pair;
}

/* The two names, new references. 0 with an error set. */
static int call_names(PyObject *full, long number, PyObject **forward, PyObject **backward)
{
    PyObject *list = PyDict_GetItemWithError(names_by_full, full), *pair = NULL;
    if (!list && PyErr_Occurred()) return 0;
    if (!list && PyDict_Size(names_by_full) < MOST_FULL) {
        PyObject *made = PyList_New(0);
        if (!made || PyDict_SetItem(names_by_full, full, made) < 0) {
            Py_XDECREF(made);
            return 0;
        }
        Py_DECREF(made);
        list = made; /* the dict holds it */
    }
    if (list && number < PyList_Size(list)) {
        pair = PyList_GetItem(list, number);
        Py_XINCREF(pair);
    } else {
        pair = new_names(full, number);
        if (pair && list && number == PyList_Size(list) && number < MOST_NUMBERS && PyList_Append(list, pair) < 0) Py_CLEAR(pair);
    }
    if (!pair) return 0;
    *forward = PyTuple_GetItem(pair, 0);
    *backward = PyTuple_GetItem(pair, 1);
    Py_XINCREF(*forward);
    Py_XINCREF(*backward);
    Py_DECREF(pair);
    return *forward && *backward;
}

/* api_call.backward_of, and the latest answer: calls inside of one module follow each other. */
typedef struct {
    PyObject *forward, *backward;
} Mirror;

static void mirror_clear(Mirror *mirror)
{
    Py_CLEAR(mirror->forward);
    Py_CLEAR(mirror->backward);
}

/* A new reference; NULL with an error set. */
static PyObject *mirrored(Mirror *mirror, PyObject *forward)
{
    if (mirror->forward != forward) {
        PyObject *backward = PyObject_CallFunctionObjArgs(backward_of, forward, NULL);
        if (!backward) return NULL;
        mirror_clear(mirror);
        Py_INCREF(forward);
        mirror->forward = forward;
        mirror->backward = backward;
    }
    Py_INCREF(mirror->backward);
    return mirror->backward;
}

#endif
