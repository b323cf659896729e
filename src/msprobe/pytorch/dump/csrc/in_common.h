/* What calls of APIs and of modules have in common. */
#ifndef MSPROBE_IN_COMMON_H
#define MSPROBE_IN_COMMON_H

#include "entries.h"

/* Counters.take: the number of this call, by its name; 0 with an error set. */
static int take_number(PyObject *counts, PyObject *full, long *number)
{
    PyObject *before = PyDict_GetItemWithError(counts, full);
    if (!before && PyErr_Occurred()) return 0;
    *number = before ? PyLong_AsLong(before) : 0;
    PyObject *after = PyLong_FromLong(*number + 1);
    int ok = after && PyDict_SetItem(counts, full, after) == 0;
    Py_XDECREF(after);
    return ok;
}

/* Where the inputs of a call lie in the graph, and the thread's sequence number then; 0 with an error set. */
static int edges_of_inputs(PyObject *edges_of, PyObject *recorder, PyObject *step, PyObject *name, PyObject *leaves, PyObject **edges,
                           long long *floor)
{
    *edges = PyObject_CallFunctionObjArgs(edges_of, leaves, NULL);
    if (!*edges && PyErr_ExceptionMatches(PyExc_Exception)) { /* Python finds out which of them cannot be read, and tells */
        PyErr_Clear();
        *edges = PyObject_CallMethodObjArgs(recorder, n__edges, step, name, leaves, NULL);
    }
    if (!*edges) return 0;
    *floor = ask_long(sequence_number);
    return !(*floor == -1 && PyErr_Occurred());
}

/* The list of records of a result: a tuple is spread, everything else is one element. */
static PyObject *output_records(Records *records, PyObject *result)
{
    if (PyTuple_CheckExact(result)) return positional_records(records, result);
    if (PyTuple_Check(result) && !PyObject_HasAttrString((PyObject *)Py_TYPE(result), "_fields")) return positional_records(records, result);
    PyObject *one = PyTuple_Pack(1, result), *list = one ? positional_records(records, one) : NULL;
    Py_XDECREF(one);
    return list;
}

#endif
