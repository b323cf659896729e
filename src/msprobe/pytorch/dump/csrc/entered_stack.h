/* The stack of a module's call: StackCache.enter. */
#ifndef MSPROBE_ENTERED_STACK_H
#define MSPROBE_ENTERED_STACK_H

#include "../../../recording/csrc/walk.h"
#include "open_module.h"

/* Of one StackCache, which the owner of this holds. */
typedef struct {
    PyObject *stacks;          /* borrowed */
    PyObject *known, *numbers; /* key -> Stack; key of what is above a module -> its number: the cache's own */
    Counted counted;
} EnteredStacks;

/* 0 with an error set. */
static int entered_stacks_init(EnteredStacks *entered, PyObject *stacks)
{
    PyObject *counted = PyObject_GetAttr(stacks, n__counted);
    int ok = counted && counted_codes(&entered->counted, counted);
    Py_XDECREF(counted);
    entered->stacks = stacks;
    entered->known = ok ? PyObject_GetAttr(stacks, n__known) : NULL;
    entered->numbers = entered->known ? PyObject_GetAttr(stacks, n__numbers) : NULL;
    return entered->numbers != NULL;
}

static void entered_stacks_clear(EnteredStacks *entered)
{
    Py_CLEAR(entered->known);
    Py_CLEAR(entered->numbers);
}

/* stacks.meet_above(key, frame, stop, above), or stacks.meet(key, frame, stop, above, hidden) with none hidden. */
static PyObject *meet(const EnteredStacks *entered, PyObject *method, PyObject *key, PyObject *frame, const void *stop, long long above)
{
    PyObject *end = PyLong_FromVoidPtr((void *)stop), *number = PyLong_FromLongLong(above), *met = NULL;
    if (end && number) met = PyObject_CallMethodObjArgs(entered->stacks, method, key, frame, end, number, NULL);
    Py_XDECREF(end);
    Py_XDECREF(number);
    return met;
}

/* The number of the frames from `outer` outwards, up to where the module around lies (NULL for none); *depth: how many are counted. */
static long long number_of_above(const EnteredStacks *entered, PyObject *outer, const OpenModule *around, long *depth)
{
    const void *stop = around ? around->frame : NULL;
    long long above = around ? around->above : 0, number = -1;
    PyObject *key = walk_frames(outer, stop, above, around ? around->depth : 0, &entered->counted, depth);
    PyObject *known = key ? PyDict_GetItemWithError(entered->numbers, key) : NULL;
    Py_XINCREF(known);
    if (key && !known && !PyErr_Occurred()) known = meet(entered, n_meet_above, key, outer, stop, above);
    if (known) number = PyLong_AsLongLong(known);
    Py_XDECREF(known);
    Py_XDECREF(key);
    return number;
}

/* The Stack of the frames from `frame` outwards, a new reference; where that frame lies is noted in `opened`. NULL with an error set.
   Its key is the one that a walk has which ends at that very frame. */
static PyObject *enter_stack(const EnteredStacks *entered, PyObject *frame, const OpenModule *around, OpenModule *opened)
{
    long depth = 0;
    long long number = 0;
    PyObject *outer = PyObject_GetAttr(frame, f_back);
    if (outer && outer != Py_None) number = number_of_above(entered, outer, around, &depth);
    Py_XDECREF(outer);
    if (!outer || number < 0) return NULL;
    void *code = code_of(frame);
    long at = offset_of(frame);
    if (at == -1 && PyErr_Occurred()) return NULL;
    int64_t words[] = {(int64_t)(intptr_t)code, at, number};
    PyObject *key = PyBytes_FromStringAndSize((const char *)words, sizeof words);
    PyObject *stack = key ? PyDict_GetItemWithError(entered->known, key) : NULL;
    Py_XINCREF(stack);
    if (key && !stack && !PyErr_Occurred()) stack = meet(entered, n_meet_module, key, frame, frame, number);
    Py_XDECREF(key);
    opened->frame = frame;
    opened->above = number;
    opened->depth = depth + count_code(&entered->counted, code);
    return stack;
}

#endif
