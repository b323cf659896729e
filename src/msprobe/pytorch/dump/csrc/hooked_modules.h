/* What is done with every module of a model at each start() and stop(). */
#ifndef MSPROBE_HOOKED_MODULES_H
#define MSPROBE_HOOKED_MODULES_H

#include "pieces.h"

static PyObject *n_class_name;

/* Appends an object, which it takes. */
static int append_new(PyObject *list, PyObject *item)
{
    int ok = item && PyList_Append(list, item) == 0;
    Py_XDECREF(item);
    return ok;
}

/* Appends the names of the children to `found`, and the children to `waiting`. */
static int append_children(PyObject *module, PyObject *found, PyObject *waiting)
{
    PyObject *children = PyObject_GetAttr(module, n__modules);
    PyObject *items = children ? PyMapping_Items(children) : NULL;
    int ok = items != NULL;
    for (Py_ssize_t k = 0; ok && k < PyList_Size(items); k++) {
        PyObject *item = PyList_GetItem(items, k);
        PyObject *name = PyTuple_Check(item) && PyTuple_Size(item) == 2 ? PyTuple_GetItem(item, 0) : NULL;
        if (!name) PyErr_SetString(PyExc_TypeError, "the children of a module are no mapping");
        ok = name && (PyTuple_GetItem(item, 1) == Py_None || (PyList_Append(found, name) == 0 && PyList_Append(waiting, PyTuple_GetItem(item, 1)) == 0));
    }
    Py_XDECREF(items);
    Py_XDECREF(children);
    return ok;
}

PyDoc_STRVAR(walk_modules_doc, "walk_modules(waiting, found, modules, /)\n--\n\nThe twin of naming._walk: empties the first list of modules, and fills the others.");

static PyObject *walk_modules(PyObject *self, PyObject *const *given, Py_ssize_t count)
{
    (void)self;
    if (count != 3 || !PyList_Check(given[0]) || !PyList_Check(given[1]) || !PyList_Check(given[2]))
        return PyErr_Format(PyExc_TypeError, "walk_modules() takes 3 lists");
    PyObject *waiting = given[0], *found = given[1], *modules = given[2], *seen = PySet_New(NULL);
    int ok = seen != NULL;
    for (Py_ssize_t left; ok && (left = PyList_Size(waiting)) > 0;) {
        PyObject *module = PyList_GetItem(waiting, left - 1), *identity = PyLong_FromVoidPtr(module);
        Py_INCREF(module);
        ok = identity && PyList_SetSlice(waiting, left - 1, left, NULL) == 0 && PyList_Append(found, identity) == 0
             && append_new(found, PyObject_GetAttr((PyObject *)Py_TYPE(module), n_class_name));
        int known = ok ? PySet_Contains(seen, identity) : -1;
        ok = known >= 0;
        if (known == 0) ok = PySet_Add(seen, identity) == 0 && PyList_Append(modules, module) == 0 && append_children(module, found, waiting);
        Py_XDECREF(identity);
        Py_DECREF(module);
    }
    Py_XDECREF(seen);
    if (!ok) return NULL;
    Py_RETURN_NONE;
}

/* getattr(object, name), a new reference. What modules have of their own is looked for there first: their class has a __getattr__, which makes
   the ordinary way a long one. */
static PyObject *own_attribute(PyObject *object, PyObject *name)
{
    PyObject *own = PyObject_GenericGetDict(object, NULL), *value = own ? PyDict_GetItemWithError(own, name) : NULL;
    Py_XINCREF(value);
    Py_XDECREF(own);
    if (value) return value;
    PyErr_Clear();
    return PyObject_GetAttr(object, name);
}

PyDoc_STRVAR(put_in_each_doc, "put_in_each(owners, names, key, values, /)\n--\n\n"
"getattr(owner, name)[key] = value, for every owner in a list and its values, a tuple of one for each of the names.");

static PyObject *put_in_each(PyObject *self, PyObject *const *given, Py_ssize_t count)
{
    (void)self;
    if (count != 4 || !PyList_Check(given[0]) || !PyTuple_Check(given[1]) || !PyList_Check(given[3]) || PyList_Size(given[0]) != PyList_Size(given[3]))
        return PyErr_Format(PyExc_TypeError, "put_in_each() takes a list, a tuple, a key, and a list as long as the first");
    for (Py_ssize_t k = 0; k < PyList_Size(given[0]); k++)
        for (Py_ssize_t n = 0; n < PyTuple_Size(given[1]); n++) {
            PyObject *value = PyTuple_GetItem(PyList_GetItem(given[3], k), n);
            PyObject *items = value ? own_attribute(PyList_GetItem(given[0], k), PyTuple_GetItem(given[1], n)) : NULL;
            int ok = items && PyObject_SetItem(items, given[2], value) == 0;
            Py_XDECREF(items);
            if (!ok) return NULL;
        }
    Py_RETURN_NONE;
}

PyDoc_STRVAR(take_from_each_doc, "take_from_each(owners, names, key, /)\n--\n\n"
"getattr(owner, name).pop(key, None), for every owner in a list and each of the names; whether there was one everywhere.");

static PyObject *take_from_each(PyObject *self, PyObject *const *given, Py_ssize_t count)
{
    (void)self;
    if (count != 3 || !PyList_Check(given[0]) || !PyTuple_Check(given[1]))
        return PyErr_Format(PyExc_TypeError, "take_from_each() takes a list, a tuple and a key");
    int everywhere = 1;
    for (Py_ssize_t k = 0; k < PyList_Size(given[0]); k++)
        for (Py_ssize_t n = 0; n < PyTuple_Size(given[1]); n++) {
            PyObject *items = own_attribute(PyList_GetItem(given[0], k), PyTuple_GetItem(given[1], n));
            int there = items ? PySequence_Contains(items, given[2]) : -1;
            int ok = there == 0 || (there == 1 && PyObject_DelItem(items, given[2]) == 0);
            Py_XDECREF(items);
            if (!ok) return NULL;
            everywhere &= there;
        }
    return PyBool_FromLong(everywhere);
}

#define HOOKED_MODULES_METHODS \
    {"walk_modules", (PyCFunction)(void (*)(void))walk_modules, METH_FASTCALL, walk_modules_doc}, \
    {"put_in_each", (PyCFunction)(void (*)(void))put_in_each, METH_FASTCALL, put_in_each_doc}, \
    {"take_from_each", (PyCFunction)(void (*)(void))take_from_each, METH_FASTCALL, take_from_each_doc},

static int hooked_modules_init(void) { return (n_class_name = PyUnicode_InternFromString("__name__")) != NULL; }

#endif
