/* The objects behind parameter_gradients.h: how they end. */
#ifndef MSPROBE_PARAMETER_OBJECTS_H
#define MSPROBE_PARAMETER_OBJECTS_H

#include "parameter_gradients.h"

/* --- an owner ------------------------------------------------------------------------------------------------------------------------------- */
static void owner_dealloc(PyObject *self)
{
    Owner *owner = (Owner *)self;
    PyTypeObject *type = Py_TYPE(self);
    for (int k = 0; k < owner->used; k++) Py_DECREF(owner->open[k].entry);
    PyMem_Free(owner->open);
    Py_DECREF(owner->prefix);
    PyObject_Free(self);
    Py_DECREF(type);
}

static PyType_Slot owner_slots[] = {
    {Py_tp_dealloc, (void *)owner_dealloc},
    {0, NULL},
};
static PyType_Spec owner_spec = {"msprobe.pytorch.dump._hot.Owner", sizeof(Owner), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
                                 owner_slots};

/* --- a parameter's hook ------------------------------------------------------------------------------------------------------------------------ */
static int watched_traverse(PyObject *self, visitproc visit, void *arg)
{
    Watched *watched = (Watched *)self;
    Py_VISIT(Py_TYPE(self));
    Py_VISIT(watched->gradients);
    Py_VISIT(watched->parameter);
    return 0;
}

static int watched_clear(PyObject *self)
{
    Watched *watched = (Watched *)self;
    Py_CLEAR(watched->parameter);
    return 0;
}

static void watched_dealloc(PyObject *self)
{
    Watched *watched = (Watched *)self;
    PyTypeObject *type = Py_TYPE(self);
    PyObject_GC_UnTrack(self);
    watched_clear(self);
    for (int k = 0; k < watched->used; k++) {
        Py_DECREF(watched->owners[k].owner);
        Py_DECREF(watched->owners[k].name);
    }
    PyMem_Free(watched->owners);
    Py_DECREF(watched->gradients);
    PyObject_GC_Del(self);
    Py_DECREF(type);
}

static PyType_Slot watched_slots[] = {
    {Py_tp_dealloc, (void *)watched_dealloc},
    {Py_tp_traverse, (void *)watched_traverse},
    {Py_tp_clear, (void *)watched_clear},
    {Py_tp_call, (void *)watched_call},
    {0, NULL},
};
static PyType_Spec watched_spec = {"msprobe.pytorch.dump._hot.Watched", sizeof(Watched), 0,
                                   Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_DISALLOW_INSTANTIATION, watched_slots};

/* --- the gradients of a step ------------------------------------------------------------------------------------------------------------------- */
/* Finishes what a backward pass has begun; 0 with an error set. */
static int end_task(ParameterGradients *g, long long task)
{
    int kept = 0, ended = 0, ok = 1;
    struct Begun *ends = PyMem_Malloc((size_t)g->used * sizeof *ends + 1);
    if (!ends) return no_memory();
    for (int k = 0; k < g->used; k++) {
        if (g->begun[k].task == task) ends[ended++] = g->begun[k];
        else g->begun[kept++] = g->begun[k];
    }
    g->used = kept;
    for (int k = 0; k < ended; k++) {
        ok = ok && finish_owner(g, ends[k].owner, ends[k].number);
        Py_DECREF(ends[k].owner);
    }
    PyMem_Free(ends);
    return ok;
}

PyDoc_STRVAR(end_task_doc, "_end(task, /)\n--\n\nA backward pass has ended: what it began is complete.");

static PyObject *parameter_gradients_end(PyObject *self, PyObject *number)
{
    long long task = PyLong_AsLongLong(number);
    if (task == -1 && PyErr_Occurred()) return NULL;
    return end_task((ParameterGradients *)self, task) ? Py_BuildValue("") : NULL;
}

static int release(const ParameterGradients *g, const Watched *watched)
{
    if (!watched->parameter) return 1;
    Quiet quiet;
    int taken = quiet_for(&quiet, watched->parameter) && take_gradient_hook(watched->parameter, watched->untouched);
    quiet_end(&quiet);
    if (taken) return 1;
    PyObject *entry = PyUnicode_FromString("parameters_grad");
    int ok = entry && contained(((Observers *)g->observers)->sink, entry, "a hook could not be taken off a parameter");
    Py_XDECREF(entry);
    return ok;
}

PyDoc_STRVAR(close_parameters_doc, "close()\n--\n\nTake all hooks off and leave the parameters as they were.");

static PyObject *parameter_gradients_close(PyObject *self, PyObject *unused)
{
    (void)unused;
    ParameterGradients *g = (ParameterGradients *)self;
    while (g->used)
        if (!end_task(g, g->begun[0].task)) return NULL;
    PyObject *keys = g->watched ? PyDict_Keys(g->watched) : PyList_New(0);
    int ok = keys != NULL;
    for (Py_ssize_t k = ok ? PyList_Size(keys) : 0; ok && k--;) {
        PyObject *key = PyList_GetItem(keys, k), *watched = PyDict_GetItemWithError(g->watched, key);
        ok = watched && release(g, (Watched *)watched) && PyDict_DelItem(g->watched, key) == 0;
    }
    Py_XDECREF(keys);
    PyObject *reduced = ok ? PyObject_GetAttr(self, n_reduced) : NULL;
    if (reduced && reduced != Py_None) {
        PyObject *closed = PyObject_CallMethodObjArgs(reduced, n_close, NULL);
        ok = closed != NULL;
        Py_XDECREF(closed);
    }
    Py_XDECREF(reduced);
    if (!ok || !reduced) return NULL;
    if (g->owners) PyDict_Clear(g->owners);
    return Py_BuildValue("");
}

static int parameter_gradients_traverse(PyObject *self, visitproc visit, void *arg)
{
    ParameterGradients *g = (ParameterGradients *)self;
    Py_VISIT(Py_TYPE(self));
    Py_VISIT(g->observers);
    Py_VISIT(g->owners);
    Py_VISIT(g->watched);
    return 0;
}

static int parameter_gradients_clear(PyObject *self)
{
    ParameterGradients *g = (ParameterGradients *)self;
    while (g->used) Py_DECREF(g->begun[--g->used].owner);
    PyMem_Free(g->begun);
    g->begun = NULL;
    g->room = 0;
    Py_CLEAR(g->observers);
    Py_CLEAR(g->owners);
    Py_CLEAR(g->watched);
    return 0;
}

static void parameter_gradients_dealloc(PyObject *self) { dealloc_tracked(self, parameter_gradients_clear); }

static PyMemberDef parameter_gradients_members[] = {
    {"_observers", T_OBJECT_EX, offsetof(ParameterGradients, observers), 0, NULL},
    {"window_open", T_BOOL, offsetof(ParameterGradients, window_open), 0, NULL},
    {NULL, 0, 0, 0, NULL},
};
static PyMethodDef parameter_gradients_methods[] = {
    {"watch", (PyCFunction)(void (*)(void))parameter_gradients_watch, METH_FASTCALL, watch_parameters_doc},
    {"record", (PyCFunction)(void (*)(void))parameter_gradients_record, METH_FASTCALL, record_doc},
    {"close", parameter_gradients_close, METH_NOARGS, close_parameters_doc},
    {"_end", parameter_gradients_end, METH_O, end_task_doc},
    {NULL, NULL, 0, NULL},
};
static PyType_Slot parameter_gradients_slots[] = {
    {Py_tp_doc, (void *)"The part in C of a class that derives from it and from ParameterGradients."},
    {Py_tp_dealloc, (void *)parameter_gradients_dealloc},
    {Py_tp_traverse, (void *)parameter_gradients_traverse},
    {Py_tp_clear, (void *)parameter_gradients_clear},
    {Py_tp_members, parameter_gradients_members},
    {Py_tp_methods, parameter_gradients_methods},
    {0, NULL},
};
static PyType_Spec parameter_gradients_spec = {"msprobe.pytorch.dump._hot.ParameterGradients", sizeof(ParameterGradients), 0,
                                               Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_BASETYPE, parameter_gradients_slots};

static int parameter_gradients_init(PyObject *module)
{
    return (owner_type = add_type(module, "Owner", &owner_spec)) && (watched_type = add_type(module, "Watched", &watched_spec))
        && (parameter_gradients_type = add_type(module, "ParameterGradients", &parameter_gradients_spec));
}

#endif
