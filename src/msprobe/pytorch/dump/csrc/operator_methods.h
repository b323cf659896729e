/* The methods on torch.Tensor that note how an operator was spelled; `OperatorMethod` of api_dump/operators.py in C. */
#ifndef MSPROBE_OPERATOR_METHODS_H
#define MSPROBE_OPERATOR_METHODS_H

#include "pieces.h"

typedef struct {
    PyObject_HEAD
    PyObject *original, *spelling, *state;
} OperatorMethod;

static PyTypeObject *operator_method_type;
static PyObject *bound_method; /* types.MethodType */

static PyObject *operator_method_call(PyObject *self, PyObject *args, PyObject *kwargs)
{
    const OperatorMethod *method = (OperatorMethod *)self;
    PyObject *local = PyObject_GetAttr(method->state, n___dict__); /* this thread's */
    if (!local) return NULL;
    PyObject *before = PyDict_GetItem(local, n_spelling);
    if (!before) before = Py_None;
    Py_INCREF(before);
    PyObject *result = PyDict_SetItem(local, n_spelling, method->spelling) < 0 ? NULL : PyObject_Call(method->original, args, kwargs);
    PyObject *type, *value, *traceback;
    PyErr_Fetch(&type, &value, &traceback);
    if (PyDict_SetItem(local, n_spelling, before) < 0) PyErr_Clear();
    PyErr_Restore(type, value, traceback);
    Py_DECREF(before);
    Py_DECREF(local);
    return result;
}

/* Read from the class it is what stands there without us; read from a tensor it notes the spelling. */
static PyObject *operator_method_get(PyObject *self, PyObject *object, PyObject *class)
{
    if (object && object != Py_None) return PyObject_CallFunctionObjArgs(bound_method, self, object, NULL);
    PyObject *original = ((OperatorMethod *)self)->original;
    descrgetfunc get = (descrgetfunc)PyType_GetSlot(Py_TYPE(original), Py_tp_descr_get);
    if (get) return get(original, NULL, class);
    Py_INCREF(original);
    return original;
}

/* Name, signature and documentation are the original's. */
static PyObject *operator_method_attribute(PyObject *self, PyObject *name)
{
    return PyObject_GetAttr(((OperatorMethod *)self)->original, name);
}

static int operator_method_traverse(PyObject *self, visitproc visit, void *arg)
{
    OperatorMethod *method = (OperatorMethod *)self;
    Py_VISIT(method->original);
    Py_VISIT(method->state);
    Py_VISIT(Py_TYPE(self));
    return 0;
}

static int operator_method_clear(PyObject *self)
{
    OperatorMethod *method = (OperatorMethod *)self;
    Py_CLEAR(method->original);
    Py_CLEAR(method->spelling);
    Py_CLEAR(method->state);
    return 0;
}

static void operator_method_dealloc(PyObject *self)
{
    PyTypeObject *type = Py_TYPE(self);
    PyObject_GC_UnTrack(self);
    operator_method_clear(self);
    PyObject_GC_Del(self);
    Py_DECREF(type);
}

static PyType_Slot operator_method_slots[] = {
    {Py_tp_call, (void *)operator_method_call},
    {Py_tp_descr_get, (void *)operator_method_get},
    {Py_tp_getattro, (void *)operator_method_attribute},
    {Py_tp_traverse, (void *)operator_method_traverse},
    {Py_tp_clear, (void *)operator_method_clear},
    {Py_tp_dealloc, (void *)operator_method_dealloc},
    {0, NULL},
};

/* METHOD_DESCRIPTOR: Python calls it with the tensor as first argument, without making a bound method. */
static PyType_Spec operator_method_spec = {
    "msprobe.pytorch.dump._hot.OperatorMethod", sizeof(OperatorMethod), 0,
    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_METHOD_DESCRIPTOR, operator_method_slots,
};

PyDoc_STRVAR(operator_method_doc, "operator_method(original, spelling, state, /)\n--\n\nWhat stands in the place of `original` on torch.Tensor.");

static PyObject *make_operator_method(PyObject *self, PyObject *const *args, Py_ssize_t nargs)
{
    (void)self;
    if (nargs != 3) return PyErr_Format(PyExc_TypeError, "operator_method() takes 3 arguments");
    OperatorMethod *method = PyObject_GC_New(OperatorMethod, operator_method_type);
    if (!method) return NULL;
    method->original = args[0];
    method->spelling = args[1];
    method->state = args[2];
    Py_INCREF(method->original);
    Py_INCREF(method->spelling);
    Py_INCREF(method->state);
    PyObject_GC_Track((PyObject *)method);
    return (PyObject *)method;
}

#define OPERATOR_METHODS_METHODS \
    {"operator_method", (PyCFunction)(void (*)(void))make_operator_method, METH_FASTCALL, operator_method_doc},

static int operator_methods_init(void)
{
    PyObject *types = PyImport_ImportModule("types");
    bound_method = types ? PyObject_GetAttrString(types, "MethodType") : NULL;
    Py_XDECREF(types);
    operator_method_type = (PyTypeObject *)PyType_FromSpec(&operator_method_spec);
    return bound_method && operator_method_type;
}

#endif
