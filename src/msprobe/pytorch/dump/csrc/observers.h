/* What the gradients of all calls of one step share: the twin of `GradientObservers` in gradients.py, of which a class in Python makes one. */
#ifndef MSPROBE_OBSERVERS_H
#define MSPROBE_OBSERVERS_H

#include "entries.h"
#include "graph_results.h"

#include <structmember.h>

#define EACH_GRADIENT_NAME(X) \
    X(tally) X(writer) X(keeps_construct) X(encoder) X(table) X(register_hook) X(register_prehook) X(remove) X(at_end) X(clear) X(append) X(hooks_dict_ref) \
    X(id) \
    X(report_cut) X(kept_nodes) X(_tell_cut) X(_leaf_nodes) X(_end) X(grad) X(requires_grad) X(is_leaf) X(reduced) X(close) \
    X(_post_accumulate_grad_hooks) X(msprobe) X(pop) X(_tell_gone) X(_tell_elsewhere)
EACH_GRADIENT_NAME(DECLARE_NAME)

/* Functions of Python for the rare cases; see set_helpers. */
static PyObject *total_of, *part_from_outside, *in_dtype, *hooks_class, *dispatch_modes;
static PyTypeObject *observers_type, *gradient_call_type, *hook_type;

/* An observer on a node, and what takes it off: it is an item of `hooks`, the node's dictionary of hooks, under `key`. Torch's handle for it
   and that one's weak reference would be two objects more for the garbage collector to look at. */
typedef struct {
    PyObject *hook, *hooks, *key;
    int always; /* it is taken off whether it fired or not */
} Handle;

/* The identity of a node, and the call whose output it made; see gradients._identity. */
typedef struct {
    PyObject *class; /* NULL: a leaf */
    unsigned long thread;
    unsigned long long number; /* the node's sequence number; of a leaf, its address */
    PyObject *name;
} Maker;

typedef struct {
    PyObject_HEAD
    PyObject *encoder, *sink, *report, *late, *running; /* attributes that Python sets */
    PyObject *table, *tally, *writer;                   /* of the encoder and the sink, once they were needed */
    int keeps_construct;
    double spent;
    long long task;
    char closed;
    long calls, tensors; /* not yet in the tally */
    Handle *handles;
    int used_handles, room_for_handles;
    Maker *makers;
    int used_makers, room_for_makers;
} Observers;

static PyMemberDef observers_members[] = {
    {"encoder", T_OBJECT_EX, offsetof(Observers, encoder), 0, NULL},
    {"sink", T_OBJECT_EX, offsetof(Observers, sink), 0, NULL},
    {"report", T_OBJECT_EX, offsetof(Observers, report), 0, NULL},
    {"late", T_OBJECT_EX, offsetof(Observers, late), 0, NULL},
    {"_running", T_OBJECT_EX, offsetof(Observers, running), 0, NULL},
    {"spent", T_DOUBLE, offsetof(Observers, spent), 0, NULL},
    {"task", T_LONGLONG, offsetof(Observers, task), 0, NULL},
    {"closed", T_BOOL, offsetof(Observers, closed), 0, NULL},
    {NULL, 0, 0, 0, NULL},
};

static int no_memory(void)
{
    PyErr_NoMemory();
    return 0;
}

/* Py_XSETREF, which the stable ABI lacks; takes the object. */
static void replace(PyObject **where, PyObject *object)
{
    PyObject *before = *where;
    *where = object;
    Py_XDECREF(before);
}

/* Whether an attribute is true; -1 with an error set. */
static int says(PyObject *object, PyObject *name)
{
    PyObject *answer = PyObject_GetAttr(object, name);
    int yes = answer ? PyObject_IsTrue(answer) : -1;
    Py_XDECREF(answer);
    return yes;
}

/* function(first[, second]), which works with tensors: no mode and no subclass is asked. */
static PyObject *call_quietly(PyObject *function, PyObject *first, PyObject *second)
{
    Quiet quiet = {NULL};
    PyObject *result = quiet_enter(&quiet) ? PyObject_CallFunctionObjArgs(function, first, second, NULL) : NULL;
    quiet_end(&quiet);
    return result;
}

/* What is asked of the sink in every call, asked once; 0 with an error set. */
static int observers_ready(Observers *o)
{
    if (o->tally) return 1;
    PyObject *keeps = PyObject_GetAttr(o->sink, n_keeps_construct);
    o->keeps_construct = keeps ? PyObject_IsTrue(keeps) : -1;
    Py_XDECREF(keeps);
    if (o->keeps_construct < 0) return 0;
    replace(&o->table, PyObject_GetAttr(o->encoder, n_table));
    replace(&o->writer, o->table ? PyObject_GetAttr(o->sink, n_writer) : NULL);
    o->tally = o->writer ? PyObject_GetAttr(o->sink, n_tally) : NULL;
    return o->tally != NULL;
}

/* --- which calls made which nodes; asked for a message only ------------------------------------------------------------------------------ */
static int add_maker(Observers *o, const Edge *edge, PyObject *name)
{
    long long age = 0;
    if (edge->node && (age = sequence(edge->node)) < 0) return 0;
    if (o->used_makers == o->room_for_makers) {
        int room = o->room_for_makers ? 2 * o->room_for_makers : 64;
        Maker *makers = PyMem_Realloc(o->makers, (size_t)room * sizeof *makers);
        if (!makers) return no_memory();
        o->makers = makers;
        o->room_for_makers = room;
    }
    Maker *maker = o->makers + o->used_makers++;
    if (edge->node) *maker = (Maker){(PyObject *)Py_TYPE(edge->node), PyThread_get_thread_ident(), (unsigned long long)age, name};
    else *maker = (Maker){NULL, 0, (unsigned long long)(uintptr_t)edge->key, name};
    Py_XINCREF(maker->class);
    Py_INCREF(name);
    return 1;
}

static void clear_makers(Observers *o)
{
    while (o->used_makers) {
        Maker maker = o->makers[--o->used_makers];
        Py_XDECREF(maker.class);
        Py_DECREF(maker.name);
    }
    PyMem_Free(o->makers);
    o->makers = NULL;
    o->room_for_makers = 0;
}

PyDoc_STRVAR(makers_of_doc, "_makers_of(identity, /)\n--\n\nNames of the calls that made a node; see gradients._identity.");

static PyObject *observers_makers_of(PyObject *self, PyObject *identity)
{
    Observers *o = (Observers *)self;
    int is_node = PyTuple_Size(identity) == 3;
    unsigned long thread = 0;
    PyObject *class = NULL, *last = PyTuple_GetItem(identity, is_node ? 2 : 0);
    if (!last) return NULL;
    if (is_node) {
        thread = PyLong_AsUnsignedLong(PyTuple_GetItem(identity, 0));
        class = PyTuple_GetItem(identity, 1);
    }
    unsigned long long number = PyLong_AsUnsignedLongLong(last);
    if (PyErr_Occurred()) return NULL;
    if (is_node && number > INT64_MAX) number = INT64_MAX;
    PyObject *names = PyList_New(0);
    for (int k = 0; names && k < o->used_makers; k++) {
        const Maker *maker = o->makers + k;
        if (maker->class == class && maker->thread == thread && maker->number == number && PyList_Append(names, maker->name) < 0)
            Py_CLEAR(names);
    }
    return names;
}

/* --- the observers on nodes ------------------------------------------------------------------------------------------------------------ */
/* What a handle takes off: `*hooks` and `*key` become new references. 0 with an error set. */
static int look_behind(PyObject *handle, PyObject *hook, PyObject **hooks, PyObject **key)
{
    if ((PyObject *)Py_TYPE(handle) == hooks_class) { /* register_hook has put it there */
        *hooks = handle;
        *key = hook;
        Py_INCREF(handle);
        Py_INCREF(hook);
        return 1;
    }
    PyObject *dictionary = PyObject_GetAttr(handle, n_hooks_dict_ref);
    *hooks = dictionary ? call0(dictionary) : NULL;
    *key = *hooks ? PyObject_GetAttr(handle, n_id) : NULL;
    Py_XDECREF(dictionary);
    if (!*key) Py_XDECREF(*hooks);
    return *key != NULL;
}

/* Puts an observer on a node, and keeps what takes it off; 0 with an error set. */
static int observe(Observers *o, PyObject *node, PyObject *how, PyObject *hook, int always)
{
    PyObject *handle = PyObject_CallMethodObjArgs(node, how, hook, NULL), *hooks, *key;
    int ok = handle && look_behind(handle, hook, &hooks, &key);
    Py_XDECREF(handle);
    if (!ok) return 0;
    if (o->used_handles == o->room_for_handles) {
        int room = o->room_for_handles ? 2 * o->room_for_handles : 64;
        Handle *handles = PyMem_Realloc(o->handles, (size_t)room * sizeof *handles);
        if (!handles) {
            Py_DECREF(hooks);
            Py_DECREF(key);
            return no_memory();
        }
        o->handles = handles;
        o->room_for_handles = room;
    }
    Py_INCREF(hook);
    o->handles[o->used_handles++] = (Handle){hook, hooks, key, always};
    return 1;
}

static int hook_has_fired(PyObject *hook);
static PyObject *call_of_hook(PyObject *hook);

/* Takes off what fired, where the node still lives: else nobody but we hold its hooks. 0 with an error set. */
static int take_off(Observers *o, int only_free)
{
    int ok = 1;
    while (o->used_handles) {
        Handle one = o->handles[--o->used_handles];
        if (!only_free && (one.always || hook_has_fired(one.hook)) && Py_REFCNT(one.hooks) > 1) {
            int there = PySequence_Contains(one.hooks, one.key);
            if (there < 0 || (there && PyObject_DelItem(one.hooks, one.key) < 0)) ok = 0;
        }
        Py_DECREF(one.hook);
        Py_DECREF(one.hooks);
        Py_DECREF(one.key);
    }
    PyMem_Free(o->handles);
    o->handles = NULL;
    o->room_for_handles = 0;
    return ok;
}

/* --- the end of a backward pass, and of the step ---------------------------------------------------------------------------------------- */
/* See GradientObservers.at_end; `finish` is a call, or something that Python calls. 0 with an error set. */
static int call_at_end(Observers *o, long long task, PyObject *finish)
{
    PyObject *number = PyLong_FromLongLong(task), *waiting = number && o->running ? PyDict_GetItemWithError(o->running, number) : NULL;
    int ok = 0;
    if (waiting) {
        ok = PyList_Append(waiting, finish) == 0;
    } else if (number && !PyErr_Occurred()) {
        PyObject *done = PyObject_CallMethodObjArgs((PyObject *)o, n_at_end, number, finish, NULL);
        ok = done != NULL;
        Py_XDECREF(done);
    }
    Py_XDECREF(number);
    return ok;
}

static int finish_pass(PyObject *call, long long task);

static int finish_one(PyObject *finish, PyObject *number)
{
    Quiet quiet;
    if (!quiet_begin(&quiet)) return 0;
    int ok;
    if (Py_TYPE(finish) == gradient_call_type) {
        ok = finish_pass(finish, PyLong_AsLongLong(number));
    } else {
        PyObject *done = PyObject_CallFunctionObjArgs(finish, number, NULL);
        ok = done != NULL;
        Py_XDECREF(done);
    }
    quiet_end(&quiet);
    return ok;
}

PyDoc_STRVAR(end_doc, "_end(task, /)\n--\n\nA backward pass has ended: finish what waits for that.");

static PyObject *observers_end(PyObject *self, PyObject *number)
{
    Observers *o = (Observers *)self;
    PyObject *waiting = o->running ? PyDict_GetItemWithError(o->running, number) : NULL;
    if (!waiting) return PyErr_Occurred() ? NULL : Py_BuildValue("");
    Py_INCREF(waiting);
    int ok = PyDict_DelItem(o->running, number) == 0;
    for (Py_ssize_t k = 0; ok && k < PyList_Size(waiting); k++) {
        PyObject *finish = PyList_GetItem(waiting, k), *entry;
        Py_INCREF(finish);
        if (!finish_one(finish, number)) {
            entry = PyUnicode_FromString("backward");
            ok = entry && contained(o->sink, entry, "could not be finished");
            Py_XDECREF(entry);
        }
        Py_DECREF(finish);
    }
    Py_DECREF(waiting);
    return ok ? Py_BuildValue("") : NULL;
}

/* 0 with an error set. */
static int pour_tally(Observers *o)
{
    long calls = o->calls, tensors = o->tensors;
    o->calls = o->tensors = 0;
    return !o->tally || (add_to(o->tally, n_calls, calls) && add_to(o->tally, n_tensors, tensors));
}

PyDoc_STRVAR(close_doc, "close()\n--\n\nEnd the step: finish what is open and take the observers off; those that never fired only count from now on.");

static PyObject *observers_close(PyObject *self, PyObject *unused)
{
    (void)unused;
    Observers *o = (Observers *)self;
    PyObject *tasks = o->running ? PyDict_Keys(o->running) : PyList_New(0);
    int ok = tasks != NULL;
    for (Py_ssize_t k = 0; ok && k < PyList_Size(tasks); k++) {
        PyObject *done = observers_end(self, PyList_GetItem(tasks, k));
        ok = done != NULL;
        Py_XDECREF(done);
    }
    Py_XDECREF(tasks);
    if (!ok) return NULL;
    o->closed = 1;
    PyObject *nodes = NULL, *cleared = NULL;
    ok = take_off(o, 0);
    clear_makers(o);
    if (!pour_tally(o)) ok = 0;
    if (!ok) return NULL;
    nodes = PyObject_GetAttr(self, n_kept_nodes);
    if (nodes) cleared = PyObject_CallMethodObjArgs(nodes, n_clear, NULL);
    Py_XDECREF(nodes);
    return cleared;
}

/* --- the object ------------------------------------------------------------------------------------------------------------------------ */
static int observers_traverse(PyObject *self, visitproc visit, void *arg)
{
    Observers *o = (Observers *)self;
    Py_VISIT(Py_TYPE(self));
    Py_VISIT(o->encoder);
    Py_VISIT(o->sink);
    Py_VISIT(o->report);
    Py_VISIT(o->late);
    Py_VISIT(o->running);
    Py_VISIT(o->table);
    Py_VISIT(o->tally);
    Py_VISIT(o->writer);
    for (int k = 0; k < o->used_handles; k++) {
        Py_VISIT(o->handles[k].hooks);
        /* The observer itself takes no part in garbage collection: where nobody else has it and its dictionary, its call is ours. */
        const Handle *one = o->handles + k;
        Py_ssize_t ours = one->key == one->hook ? 4 : 2;
        if (Py_REFCNT(one->hooks) == 1 && Py_REFCNT(one->hook) == ours) Py_VISIT(call_of_hook(one->hook));
    }
    return 0;
}

static int observers_clear(PyObject *self)
{
    Observers *o = (Observers *)self;
    take_off(o, 1);
    clear_makers(o);
    Py_CLEAR(o->encoder);
    Py_CLEAR(o->sink);
    Py_CLEAR(o->report);
    Py_CLEAR(o->late);
    Py_CLEAR(o->running);
    Py_CLEAR(o->table);
    Py_CLEAR(o->tally);
    Py_CLEAR(o->writer);
    return 0;
}

/* Frees an object of a type that takes part in garbage collection; `clear` is its own. */
static void dealloc_tracked(PyObject *self, int (*clear)(PyObject *))
{
    PyTypeObject *type = Py_TYPE(self);
    PyObject_GC_UnTrack(self);
    clear(self);
    ((freefunc)PyType_GetSlot(type, Py_tp_free))(self);
    Py_DECREF(type);
}

static void observers_dealloc(PyObject *self) { dealloc_tracked(self, observers_clear); }

#endif
