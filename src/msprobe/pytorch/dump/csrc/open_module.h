/* A module whose forward is running: what recording/calls.py calls an OpenModule, with what only the common case needs of it. */
#ifndef MSPROBE_OPEN_MODULE_H
#define MSPROBE_OPEN_MODULE_H

#include <stddef.h>
#include <structmember.h>

#include "pieces.h"

typedef struct {
    PyObject_HEAD
    PyObject *name, *key, *data, *edges, *parent, *prefix;
    PyObject *backward;       /* the name of its backward entry */
    PyObject *backward_above; /* and of its parent's; NULL for none */
    PyObject *anchor;         /* made when Python asks for it */
    void *frame;
    long long above, floor;
    long depth, number, tensors;
    char forward, entered_mode, ordinary;
} OpenModule;

static PyTypeObject *open_module_type;
static PyObject *anchor_class;

static int is_open_module(PyObject *object) { return Py_TYPE(object) == open_module_type; }

/* New, with nothing in it but Nones; NULL with an error set. */
static OpenModule *new_open_module(void)
{
    OpenModule *opened = PyObject_GC_New(OpenModule, open_module_type);
    if (!opened) return NULL;
    memset((char *)opened + sizeof(PyObject), 0, sizeof *opened - sizeof(PyObject));
    PyObject_GC_Track((PyObject *)opened);
    return opened;
}

static int open_module_traverse(PyObject *self, visitproc visit, void *arg)
{
    OpenModule *opened = (OpenModule *)self;
    Py_VISIT(opened->key);
    Py_VISIT(opened->data);
    Py_VISIT(opened->edges);
    Py_VISIT(opened->anchor);
    Py_VISIT(Py_TYPE(self));
    return 0;
}

static int open_module_clear(PyObject *self)
{
    OpenModule *opened = (OpenModule *)self;
    Py_CLEAR(opened->key);
    Py_CLEAR(opened->data);
    Py_CLEAR(opened->edges);
    Py_CLEAR(opened->anchor);
    return 0;
}

static void open_module_dealloc(PyObject *self)
{
    OpenModule *opened = (OpenModule *)self;
    PyTypeObject *type = Py_TYPE(self);
    PyObject_GC_UnTrack(self);
    open_module_clear(self);
    Py_CLEAR(opened->name);
    Py_CLEAR(opened->parent);
    Py_CLEAR(opened->prefix);
    Py_CLEAR(opened->backward);
    Py_CLEAR(opened->backward_above);
    PyObject_GC_Del(self);
    Py_DECREF(type);
}

/* --- as Python sees it ---------------------------------------------------------------------------------------------------------------- */
static PyObject *open_module_anchor(PyObject *self, void *closure)
{
    (void)closure;
    OpenModule *opened = (OpenModule *)self;
    if (!opened->anchor) {
        PyObject *frame = PyLong_FromVoidPtr(opened->frame), *above = PyLong_FromLongLong(opened->above), *depth = PyLong_FromLong(opened->depth);
        if (frame && above && depth) opened->anchor = PyObject_CallFunctionObjArgs(anchor_class, frame, above, depth, NULL);
        Py_XDECREF(frame);
        Py_XDECREF(above);
        Py_XDECREF(depth);
    }
    Py_XINCREF(opened->anchor);
    return opened->anchor;
}

static PyGetSetDef open_module_computed[] = {
    {"anchor", open_module_anchor, NULL, NULL, NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

#define OBJECT(member) {#member, T_OBJECT, offsetof(OpenModule, member), 0, NULL}
#define FLAG(member) {#member, T_BOOL, offsetof(OpenModule, member), 0, NULL}
static PyMemberDef open_module_members[] = {
    OBJECT(name), OBJECT(key), OBJECT(data), OBJECT(edges), OBJECT(parent), OBJECT(prefix), FLAG(forward), FLAG(entered_mode), FLAG(ordinary),
    {"number", T_LONG, offsetof(OpenModule, number), 0, NULL},
    {"tensors", T_LONG, offsetof(OpenModule, tensors), 0, NULL},
    {"floor", T_LONGLONG, offsetof(OpenModule, floor), 0, NULL},
    {NULL, 0, 0, 0, NULL},
};
#undef OBJECT
#undef FLAG

static PyType_Slot open_module_slots[] = {
    {Py_tp_traverse, (void *)open_module_traverse},
    {Py_tp_clear, (void *)open_module_clear},
    {Py_tp_dealloc, (void *)open_module_dealloc},
    {Py_tp_getset, open_module_computed},
    {Py_tp_members, open_module_members},
    {0, NULL},
};

static PyType_Spec open_module_spec = {
    "msprobe.pytorch.dump._hot.OpenModule", sizeof(OpenModule), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC, open_module_slots,
};

static int open_module_init(void) { return (open_module_type = (PyTypeObject *)PyType_FromSpec(&open_module_spec)) != NULL; }

#endif
