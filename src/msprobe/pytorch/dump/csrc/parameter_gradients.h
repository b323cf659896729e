/* Gradients of parameters: the twin of `ParameterGradients` in parameter_gradients.py, of which a class in Python makes one. */
#ifndef MSPROBE_PARAMETER_GRADIENTS_H
#define MSPROBE_PARAMETER_GRADIENTS_H

#include "gradient_calls.h"
#include "module_names.h"

static PyTypeObject *parameter_gradients_type, *owner_type, *watched_type;

/* A module with parameters of its own, and its entries that are not complete. */
typedef struct {
    PyObject_HEAD
    PyObject *prefix;
    Py_ssize_t expected;
    struct {
        long number;
        PyObject *entry;
    } *open;
    int used, room;
} Owner;

typedef struct {
    Owner *owner;
    PyObject *name;
} Owned;

/* The gradients of one step. */
typedef struct {
    PyObject_HEAD
    PyObject *observers; /* Observers */
    char window_open;
    PyObject *owners;  /* dict: prefix -> Owner */
    PyObject *watched; /* dict: id of a parameter -> Watched */
    struct Begun {
        long long task;
        Owner *owner;
        long number;
    } *begun; /* the entries that backward passes began */
    int used, room;
} ParameterGradients;

/* A parameter; also the hook that torch calls when its gradient has changed. */
typedef struct {
    PyObject_HEAD
    ParameterGradients *gradients;
    PyObject *parameter;
    Owned *owners;
    int used, untouched; /* the parameter carried no hooks before */
    long fired;
} Watched;

/* --- entries ---------------------------------------------------------------------------------------------------------------------------- */
static int finish_owner(const ParameterGradients *g, Owner *owner, long number)
{
    for (int k = 0; k < owner->used; k++) {
        if (owner->open[k].number != number) continue;
        PyObject *entry = owner->open[k].entry;
        owner->open[k] = owner->open[--owner->used];
        int ok = entry_finish(((Observers *)g->observers)->writer, entry);
        Py_DECREF(entry);
        return ok;
    }
    return 1;
}

/* A new entry of the owner; borrowed. NULL with an error set. */
static PyObject *begin_owner(ParameterGradients *g, Owner *owner, long number)
{
    Observers *o = (Observers *)g->observers;
    PyObject *name = gradients_name(owner->prefix, number), *data = PyDict_New();
    PyObject *entry = NULL;
    if (name && data) {
        o->calls++;
        entry = entry_add(o->writer, name, data, 0, 0);
    }
    Py_XDECREF(name);
    Py_XDECREF(data);
    if (!entry) return NULL;
    if (owner->used == owner->room) {
        int room = owner->room ? 2 * owner->room : 2;
        void *open = PyMem_Realloc(owner->open, (size_t)room * sizeof *owner->open);
        if (!open) goto failed;
        owner->open = open;
        owner->room = room;
    }
    owner->open[owner->used].number = number;
    owner->open[owner->used++].entry = entry;
    if (g->used == g->room) {
        int room = g->room ? 2 * g->room : 32;
        void *begun = PyMem_Realloc(g->begun, (size_t)room * sizeof *g->begun);
        if (!begun) {
            PyErr_NoMemory();
            return NULL;
        }
        g->begun = begun;
        g->room = room;
    }
    long long task = ask_long(graph_task);
    if (task == -1 && PyErr_Occurred()) return NULL;
    int known = 0;
    for (int k = g->used; k-- && !known;) known = g->begun[k].task == task;
    Py_INCREF(owner);
    g->begun[g->used++] = (struct Begun){task, owner, number};
    if (!known) {
        PyObject *end = PyObject_GetAttr((PyObject *)g, n__end);
        int ok = end && call_at_end(o, task, end);
        Py_XDECREF(end);
        if (!ok) return NULL;
    }
    return entry;
failed:
    Py_DECREF(entry);
    PyErr_NoMemory();
    return NULL;
}

/* Somebody took a gradient away before we could look; 0 with an error set. */
static int tell_gone(ParameterGradients *g, PyObject *entry_name, PyObject *name)
{
    PyObject *told = PyObject_CallMethodObjArgs((PyObject *)g, n__tell_gone, entry_name, name, NULL);
    Py_XDECREF(told);
    return told != NULL;
}

/* Puts one gradient into the entry; 0 with an error set. */
static int record_owned(ParameterGradients *g, Owner *owner, PyObject *name, long number, PyObject *gradient)
{
    Observers *o = (Observers *)g->observers;
    PyObject *entry = NULL, *record = Py_None;
    for (int k = 0; k < owner->used && !entry; k++)
        if (owner->open[k].number == number) entry = owner->open[k].entry;
    if (!entry && !(entry = begin_owner(g, owner, number))) return 0;
    Py_INCREF(entry);
    PyObject *entry_name = PyObject_GetAttr(entry, n_name), *data = PyObject_GetAttr(entry, n_data), *list = NULL;
    int ok = entry_name && data;
    if (ok && gradient != Py_None) {
        PyObject *role = PyUnicode_FromString("");
        Records records;
        records_begin(&records, o->encoder, o->table, entry_name, role, NULL);
        record = role ? gradient_record(&records, gradient, name) : NULL;
        ok = records_end(&records, record != NULL);
        Py_XDECREF(role);
    } else {
        Py_INCREF(record);
        ok = ok && tell_gone(g, entry_name, name);
    }
    if (ok) list = PyList_New(1);
    if (list) {
        PyList_SetItem(list, 0, record); /* takes it */
        record = NULL;
    }
    ok = list && PyObject_SetItem(data, name, list) == 0;
    if (ok && gradient != Py_None) o->tensors++;
    if (ok && PyObject_Size(data) == owner->expected) ok = finish_owner(g, owner, number);
    Py_XDECREF(record);
    Py_XDECREF(list);
    Py_XDECREF(entry_name);
    Py_XDECREF(data);
    Py_DECREF(entry);
    return ok;
}

static int record_watched(Watched *watched, PyObject *gradient)
{
    long number = watched->fired++;
    for (int k = 0; k < watched->used; k++)
        if (!record_owned(watched->gradients, watched->owners[k].owner, watched->owners[k].name, number, gradient)) return 0;
    return 1;
}

/* --- what torch calls --------------------------------------------------------------------------------------------------------------------- */
/* 1, 0, or -1 with an error set. */
static int still_counts(const ParameterGradients *g)
{
    const Observers *o = (const Observers *)g->observers;
    if (!o || o->closed) return 0;
    if (g->window_open) return 1;
    long long task = ask_long(graph_task);
    return task == -1 && PyErr_Occurred() ? -1 : o->task == task;
}

static PyObject *gradient_of(PyObject *parameter)
{
    Quiet quiet;
    PyObject *gradient = quiet_for(&quiet, parameter) ? PyObject_GetAttr(parameter, n_grad) : NULL;
    quiet_end(&quiet);
    return gradient;
}

/* gradient NULL: the parameter's. None, or NULL where an error is the user's. */
static PyObject *gradient_arrived(Watched *watched, PyObject *parameter, PyObject *gradient)
{
    ParameterGradients *g = watched->gradients;
    Py_INCREF(g);
    Py_INCREF(watched);
    int ok = still_counts(g);
    Quiet quiet;
    if (ok == 0) {
        ok = 1;
    } else if (ok > 0 && (ok = observers_ready((Observers *)g->observers) && quiet_begin(&quiet))) {
        if (gradient) Py_INCREF(gradient);
        else gradient = gradient_of(parameter);
        ok = gradient && record_watched(watched, gradient);
        Py_XDECREF(gradient);
        quiet_end(&quiet);
    }
    if (ok <= 0) {
        PyObject *entry = PyUnicode_FromString("parameters_grad");
        ok = contained(((Observers *)g->observers)->sink, entry ? entry : Py_None, "gradient of a parameter could not be recorded");
        Py_XDECREF(entry);
    }
    Py_DECREF(watched);
    Py_DECREF(g);
    return ok > 0 ? Py_BuildValue("") : NULL;
}

static PyObject *watched_call(PyObject *self, PyObject *args, PyObject *kwargs)
{
    (void)kwargs;
    PyObject *parameter = PyTuple_GetItem(args, 0);
    if (!parameter) return NULL;
    return gradient_arrived((Watched *)self, parameter, NULL);
}

/* The hook of a parameter; borrowed, NULL without an error where none is. */
static Watched *watched_of(const ParameterGradients *g, PyObject *parameter)
{
    PyObject *id = PyLong_FromVoidPtr(parameter), *found = id && g->watched ? PyDict_GetItemWithError(g->watched, id) : NULL;
    Py_XDECREF(id);
    return (Watched *)found;
}

PyDoc_STRVAR(record_doc, "record(parameter, gradient, /)\n--\n\nSee ParameterGradients.record.");

static PyObject *parameter_gradients_record(PyObject *self, PyObject *const *args, Py_ssize_t nargs)
{
    if (nargs != 2) return PyErr_Format(PyExc_TypeError, "record() takes 2 arguments");
    Watched *watched = watched_of((ParameterGradients *)self, args[0]);
    if (!watched) return PyErr_Occurred() ? NULL : Py_BuildValue("");
    return gradient_arrived(watched, args[0], args[1]);
}

/* --- which parameters ----------------------------------------------------------------------------------------------------------------------- */
/* hooks[msprobe] = hook, before all others: torch goes by the order of insertion. 0 with an error set. */
static int put_first(PyObject *hooks, PyObject *hook)
{
    PyObject *others = PyObject_Size(hooks) > 0 ? PyDict_Items(hooks) : NULL;
    if (!others) return !PyErr_Occurred() && PyObject_SetItem(hooks, n_msprobe, hook) == 0;
    PyObject *cleared = PyObject_CallMethodObjArgs(hooks, n_clear, NULL);
    int ok = cleared && PyObject_SetItem(hooks, n_msprobe, hook) == 0;
    for (Py_ssize_t k = 0; cleared && k < PyList_Size(others); k++) {
        PyObject *key = PyTuple_GetItem(PyList_GetItem(others, k), 0), *value = PyTuple_GetItem(PyList_GetItem(others, k), 1);
        if (key != n_msprobe && PyObject_SetItem(hooks, key, value) < 0) ok = 0;
    }
    Py_XDECREF(cleared);
    Py_DECREF(others);
    return ok;
}

/* What torch_internals.put_gradient_hook does. `*untouched`: there was no dictionary of hooks before. */
static int put_gradient_hook(PyObject *parameter, PyObject *hook, int *untouched)
{
    PyObject *hooks = PyObject_GetAttr(parameter, n__post_accumulate_grad_hooks);
    *untouched = hooks == Py_None;
    if (*untouched) {
        Py_DECREF(hooks);
        hooks = call0(hooks_class);
        if (hooks && PyObject_SetAttr(parameter, n__post_accumulate_grad_hooks, hooks) < 0) Py_CLEAR(hooks);
    }
    int ok = hooks && put_first(hooks, hook);
    Py_XDECREF(hooks);
    return ok;
}

/* What torch_internals.take_gradient_hook does. */
static int take_gradient_hook(PyObject *parameter, int untouched)
{
    PyObject *hooks = PyObject_GetAttr(parameter, n__post_accumulate_grad_hooks);
    if (!hooks) return 0;
    int ok = 1;
    if (hooks != Py_None) {
        PyObject *taken = PyObject_CallMethodObjArgs(hooks, n_pop, n_msprobe, Py_None, NULL);
        ok = taken != NULL;
        Py_XDECREF(taken);
        if (ok && untouched && PyObject_Size(hooks) == 0) ok = PyObject_SetAttr(parameter, n__post_accumulate_grad_hooks, Py_None) == 0;
    }
    Py_DECREF(hooks);
    return ok;
}

static Watched *new_watched(ParameterGradients *g, PyObject *parameter)
{
    Watched *watched = PyObject_GC_New(Watched, watched_type);
    if (!watched) return NULL;
    Py_INCREF(g);
    Py_INCREF(parameter);
    watched->gradients = g;
    watched->parameter = parameter;
    watched->owners = NULL;
    watched->used = watched->untouched = 0;
    watched->fired = 0;
    PyObject_GC_Track(watched);
    return watched;
}

/* One parameter of an owner; 0 with an error set. */
static int own(ParameterGradients *g, Owner *owner, PyObject *name, PyObject *parameter)
{
    int wanted = says(parameter, n_requires_grad);
    if (wanted > 0) wanted = says(parameter, n_is_leaf);
    if (wanted <= 0) return wanted == 0;
    owner->expected++;
    Watched *watched = watched_of(g, parameter);
    if (!watched && PyErr_Occurred()) return 0;
    Py_XINCREF(watched);
    if (!watched) {
        watched = new_watched(g, parameter);
        PyObject *id = watched ? PyLong_FromVoidPtr(parameter) : NULL;
        int ok = id && PyDict_SetItem(g->watched, id, (PyObject *)watched) == 0;
        Py_XDECREF(id);
        if (!ok || !put_gradient_hook(parameter, (PyObject *)watched, &watched->untouched)) {
            Py_XDECREF(watched);
            return 0;
        }
    }
    Owned *owners = PyMem_Realloc(watched->owners, (size_t)(watched->used + 1) * sizeof *owners);
    if (owners) {
        Py_INCREF(owner);
        Py_INCREF(name);
        owners[watched->used++] = (Owned){owner, name};
        watched->owners = owners;
    }
    Py_DECREF(watched);
    return owners ? 1 : no_memory();
}

PyDoc_STRVAR(watch_parameters_doc, "watch(prefix, parameters, /)\n--\n\nSee ParameterGradients.watch.");

static PyObject *parameter_gradients_watch(PyObject *self, PyObject *const *args, Py_ssize_t nargs)
{
    ParameterGradients *g = (ParameterGradients *)self;
    if (nargs != 2) return PyErr_Format(PyExc_TypeError, "watch() takes 2 arguments");
    if ((!g->owners && !(g->owners = PyDict_New())) || (!g->watched && !(g->watched = PyDict_New()))) return NULL;
    if (PyDict_GetItemWithError(g->owners, args[0])) return Py_BuildValue("");
    Owner *owner = PyErr_Occurred() ? NULL : PyObject_New(Owner, owner_type);
    if (!owner) return NULL;
    Py_INCREF(args[0]);
    owner->prefix = args[0];
    owner->expected = 0;
    owner->open = NULL;
    owner->used = owner->room = 0;
    PyObject *items = PyDict_SetItem(g->owners, args[0], (PyObject *)owner) == 0 ? PyMapping_Items(args[1]) : NULL;
    int ok = items != NULL;
    for (Py_ssize_t k = 0; ok && k < PyList_Size(items); k++) {
        PyObject *pair = PyList_GetItem(items, k);
        if (PyTuple_GetItem(pair, 1) == Py_None) continue;
        Quiet quiet;
        ok = quiet_for(&quiet, PyTuple_GetItem(pair, 1)) && own(g, owner, PyTuple_GetItem(pair, 0), PyTuple_GetItem(pair, 1));
        quiet_end(&quiet);
    }
    Py_XDECREF(items);
    Py_DECREF(owner);
    return ok ? Py_BuildValue("") : NULL;
}

#endif
