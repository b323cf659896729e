/* Small pieces that all parts of _hot.c use. Stable ABI of CPython 3.10. */
#ifndef MSPROBE_PIECES_H
#define MSPROBE_PIECES_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <string.h>
#include <time.h>
#ifdef _WIN32
#include <windows.h>
#endif

#include "../../../numerics/csrc/shared.h"
#include "../../../writer/csrc/entry.h"

/* Names of attributes, made once. A part adds its own here. */
#define EACH_NAME(X) \
    X(step) X(only) X(state) X(stacks) X(mode) X(open) X(inside) X(spelling) X(anchor) X(name) X(full) X(prefix) X(hidden) X(parameters) \
    X(ignored) X(written) X(data) X(done) X(ordinary) X(text) X(_entries) X(_calls) X(_stacks) X(_ready) X(_encode_ready) X(__dict__) \
    X(__enter__) X(__exit__) X(input) X(output) X(input_args) X(input_kwargs) X(leaves) X(tensors) X(value) X(_keyword_value) X(kwargs) \
    X(closed) X(spent) X(task) X(calls) X(apis) X(watch) X(edges) X(floor) X(entry) X(stack) X(parent) X(number) \
    X(api) X(role) X(meet) X(_known) X(_counted) X(_unwind) X(_loose_parent) X(_edges) X(_as_called) X(_changed) X(_give_up) \
    X(meet_above) X(meet_module) X(_numbers) X(_parameters) X(_modules) X(modules_in_c) X(module_before) X(module_after) X(_guard_thread) \
    X(_defer_contained) X(_raised_contained) X(f_back)

#define DECLARE_NAME(word) static PyObject *n_##word;
EACH_NAME(DECLARE_NAME)

static int make_names(void)
{
#define MAKE_NAME(word) \
    if (!(n_##word = PyUnicode_InternFromString(#word))) return 0;
    EACH_NAME(MAKE_NAME)
    return 1;
}

/* What the parts need of Python and torch; set once by `set_up`. */
static PyObject *no_torch_function; /* the class of a context inside of which no function mode and no subclass is asked */
static PyObject *mode_depth;        /* gives how many function modes this thread is in */
static PyObject *graph_task;        /* gives the number of the running backward pass */
static PyObject *sequence_number;   /* gives this thread's sequence number */
static PyObject *grad_enabled;      /* says whether gradients are on */
static PyObject *tensor_classes;    /* (Tensor, Parameter) */
static PyObject *entry_class, *side_class, *api_call_class;
static PyObject *backward_of;       /* api_call.backward_of */
static PyObject *contain;           /* contain(step, entry, what, error): lets through what is the user's, tells of the rest */
static PyObject *declines;          /* what is given where Python has to do it */
static PyObject *safe_file_name;    /* layout.safe_file_name */
static PyObject *dtypes_of_files;   /* by their names */
static PyObject *not_kept;          /* not_kept(encoder, entry, role, name, error): as contain, of values that could not be kept */
static const SharedKernels *kernels;

/* Whether object.name is this very object. */
static int is_attribute(PyObject *object, PyObject *name, PyObject *wanted)
{
    PyObject *value = PyObject_GetAttr(object, name);
    Py_XDECREF(value);
    if (!value) PyErr_Clear();
    return value == wanted;
}

/* Seconds, as time.perf_counter counts them from some moment. */
static double now(void)
{
#ifdef _WIN32
    LARGE_INTEGER count, frequency;
    QueryPerformanceCounter(&count);
    QueryPerformanceFrequency(&frequency);
    return (double)count.QuadPart / (double)frequency.QuadPart;
#else
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
#endif
}

static PyObject *call0(PyObject *function) { return PyObject_CallFunctionObjArgs(function, NULL); }

/* The answer of a function that gives a number; -1 with an error set. */
static long long ask_long(PyObject *function)
{
    PyObject *answer = call0(function);
    long long number = answer ? PyLong_AsLongLong(answer) : -1;
    Py_XDECREF(answer);
    return number;
}

/* 1, 0, or -1 with an error set. */
static int ask_yes(PyObject *function)
{
    PyObject *answer = call0(function);
    int yes = answer ? PyObject_IsTrue(answer) : -1;
    Py_XDECREF(answer);
    return yes;
}

/* object.name += by; 0 with an error set. */
static int add_to(PyObject *object, PyObject *name, long by)
{
    if (!by) return 1;
    PyObject *before = PyObject_GetAttr(object, name);
    PyObject *more = before ? PyLong_FromLong(by) : NULL;
    PyObject *after = more ? PyNumber_Add(before, more) : NULL;
    int ok = after && PyObject_SetAttr(object, name, after) == 0;
    Py_XDECREF(before);
    Py_XDECREF(more);
    Py_XDECREF(after);
    return ok;
}

/* object.name += seconds; an error is dropped: it is only the cost that the closing line tells. */
static void add_seconds(PyObject *object, PyObject *name, double seconds)
{
    PyObject *before = PyObject_GetAttr(object, name);
    PyObject *after = before ? PyFloat_FromDouble(PyFloat_AsDouble(before) + seconds) : NULL;
    if (!after || PyObject_SetAttr(object, name, after) < 0) PyErr_Clear();
    Py_XDECREF(before);
    Py_XDECREF(after);
}

/* --- no function mode and no subclass is asked while we look at values -------------------------------------------------------------- */
typedef struct {
    PyObject *context; /* NULL: none was needed */
} Quiet;

/* 0 with an error set. */
static int quiet_enter(Quiet *quiet)
{
    PyObject *context = call0(no_torch_function);
    PyObject *entered = context ? PyObject_CallMethodObjArgs(context, n___enter__, NULL) : NULL;
    if (!entered) {
        Py_XDECREF(context);
        return 0;
    }
    Py_DECREF(entered);
    quiet->context = context;
    return 1;
}

/* 0 with an error set. Where this thread is in no mode there is nothing to keep away: only plain tensors are looked at here, and what
   looks at others sees to it itself. */
static int quiet_begin(Quiet *quiet)
{
    quiet->context = NULL;
    long long depth = ask_long(mode_depth);
    return depth == 0 || (depth > 0 && quiet_enter(quiet));
}

/* For looking at one object, where it may be of a subclass that would be asked; 0 with an error set. */
static int quiet_for(Quiet *quiet, PyObject *object)
{
    quiet->context = NULL;
    PyObject *class = (PyObject *)Py_TYPE(object);
    return class == PyTuple_GetItem(tensor_classes, 0) || class == PyTuple_GetItem(tensor_classes, 1) || quiet_enter(quiet);
}

/* Keeps an error that is set. */
static void quiet_end(Quiet *quiet)
{
    if (!quiet->context) return;
    PyObject *type, *value, *traceback;
    PyErr_Fetch(&type, &value, &traceback);
    PyObject *left = PyObject_CallMethodObjArgs(quiet->context, n___exit__, Py_None, Py_None, Py_None, NULL);
    Py_XDECREF(left);
    if (!left) PyErr_Clear();
    Py_CLEAR(quiet->context);
    PyErr_Restore(type, value, traceback);
}

/* --- errors of ours ----------------------------------------------------------------------------------------------------------------- */
/* Takes the error that is set to Python's `contain`, which tells of it, or lets it through where it is the user's.
   0: it was let through and is set again. */
static int contained(PyObject *step, PyObject *entry, const char *what)
{
    PyObject *type, *value, *traceback;
    PyErr_Fetch(&type, &value, &traceback);
    PyErr_NormalizeException(&type, &value, &traceback);
    if (!type || !PyErr_GivenExceptionMatches(type, PyExc_Exception)) {
        PyErr_Restore(type, value, traceback);
        return 0;
    }
    if (value && traceback) PyException_SetTraceback(value, traceback);
    PyObject *text = PyUnicode_FromString(what);
    PyObject *told = text ? PyObject_CallFunctionObjArgs(contain, step, entry, text, value, NULL) : NULL;
    Py_XDECREF(text);
    Py_XDECREF(type);
    Py_XDECREF(value);
    Py_XDECREF(traceback);
    Py_XDECREF(told);
    return told != NULL;
}

#endif
