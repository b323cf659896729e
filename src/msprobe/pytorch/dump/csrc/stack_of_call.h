/* The stack that a call was made from: StackCache.take. */
#ifndef MSPROBE_STACK_OF_CALL_H
#define MSPROBE_STACK_OF_CALL_H

#include "../../../recording/csrc/walk.h"
#include "pieces.h"

typedef struct {
    PyObject *stacks; /* borrowed */
    PyObject *known;  /* key -> Stack, the cache's own */
    Counted counted;
} KnownStacks;

/* 0 with an error set. */
static int known_stacks_init(KnownStacks *known, PyObject *stacks)
{
    PyObject *counted = PyObject_GetAttr(stacks, n__counted);
    int ok = counted && counted_codes(&known->counted, counted);
    Py_XDECREF(counted);
    known->stacks = stacks;
    known->known = ok ? PyObject_GetAttr(stacks, n__known) : NULL;
    return known->known != NULL;
}

static void known_stacks_clear(KnownStacks *known) { Py_CLEAR(known->known); }

/* The Stack of the frames from `frame` outwards, a new reference, and how many of them are counted. `anchor`: of the innermost open
   module, or NULL. `hidden`: ids of code objects whose frames are left out of the text where they are innermost. */
static PyObject *stack_of_call(const KnownStacks *known, PyObject *frame, PyObject *anchor, PyObject *hidden, long *depth)
{
    void *stop = NULL;
    long long above = 0;
    long start = 0;
    if (anchor) {
        stop = PyLong_AsVoidPtr(PyTuple_GetItem(anchor, 0));
        above = PyLong_AsLongLong(PyTuple_GetItem(anchor, 1));
        start = PyLong_AsLong(PyTuple_GetItem(anchor, 2));
        if (PyErr_Occurred()) return NULL;
    }
    PyObject *key = walk_frames(frame, stop, above, start, &known->counted, depth);
    PyObject *stack = key ? PyDict_GetItemWithError(known->known, key) : NULL;
    Py_XINCREF(stack);
    if (key && !stack && !PyErr_Occurred()) {
        PyObject *end = PyLong_FromVoidPtr(stop), *number = PyLong_FromLongLong(above);
        if (end && number) stack = PyObject_CallMethodObjArgs(known->stacks, n_meet, key, frame, end, number, hidden, NULL);
        Py_XDECREF(end);
        Py_XDECREF(number);
    }
    Py_XDECREF(key);
    return stack;
}

#endif
