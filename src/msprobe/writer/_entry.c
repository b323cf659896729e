/* One entry of dump.json: the fast twin of the class in entry.py, with the same attributes. Stable ABI of CPython 3.10.
   Python's garbage collector does not know the type: an entry refers to records, and no record refers to an entry; a step has hundreds of
   them, which the collector would look at again and again. */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stddef.h>
#include <structmember.h>

#include "csrc/entry.h"

static PyObject *no_text;

static PyObject *entry_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"name", "data", "done", NULL};
    PyObject *name, *data;
    int done;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "OOp", names, &name, &data, &done)) return NULL;
    Entry *entry = (Entry *)PyType_GenericAlloc(type, 0);
    if (!entry) return NULL;
    Py_INCREF(name);
    Py_INCREF(data);
    Py_INCREF(no_text);
    entry->name = name;
    entry->data = data;
    entry->text = no_text;
    entry->done = (char)done;
    entry->ordinary = 0;
    return (PyObject *)entry;
}

static void entry_dealloc(PyObject *self)
{
    Entry *entry = (Entry *)self;
    PyTypeObject *type = Py_TYPE(self);
    Py_CLEAR(entry->name);
    Py_CLEAR(entry->data);
    Py_CLEAR(entry->text);
    ((freefunc)PyType_GetSlot(type, Py_tp_free))(self);
    Py_DECREF(type);
}

static PyMemberDef members[] = {
    {"name", T_OBJECT_EX, offsetof(Entry, name), 0, "As it stands in the file."},
    {"data", T_OBJECT_EX, offsetof(Entry, data), 0, "The records, until they have become text."},
    {"text", T_OBJECT_EX, offsetof(Entry, text), 0, "Its members as they will stand in the file, once `finish` has made them."},
    {"done", T_BOOL, offsetof(Entry, done), 0, "It is final."},
    {"ordinary", T_BOOL, offsetof(Entry, ordinary), 0, "Whether it is known that `data` holds no NaN and no infinite number."},
    {NULL, 0, 0, 0, NULL},
};

static PyType_Slot slots_of_type[] = {
    {Py_tp_new, (void *)entry_new},
    {Py_tp_dealloc, (void *)entry_dealloc},
    {Py_tp_members, members},
    {0, NULL},
};

static PyType_Spec spec = {"msprobe.writer._entry.Entry", sizeof(Entry), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE, slots_of_type};

static int exec_module(PyObject *module)
{
    PyObject *type = PyType_FromSpec(&spec), *version = PyLong_FromLong(ENTRY_VERSION);
    no_text = PyUnicode_FromString("");
    int ok = type && version && no_text && PyObject_SetAttrString(type, ENTRY_ATTRIBUTE, version) == 0
        && PyObject_SetAttrString(module, "Entry", type) == 0;
    Py_XDECREF(type);
    Py_XDECREF(version);
    return ok ? 0 : -1;
}

static PyModuleDef_Slot slots[] = {
    {Py_mod_exec, (void *)exec_module},
    {0, NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "_entry", "Entries of dump.json.", 0, NULL, slots, NULL, NULL, NULL,
};

PyMODINIT_FUNC PyInit__entry(void) { return PyModuleDef_Init(&definition); }
