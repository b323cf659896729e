/* One entry of dump.json, and its text: the fast twin of the class in entry.py, with the same attributes. Stable ABI of CPython 3.10.
   Python's garbage collector does not know the type: an entry refers to records, and no record refers to an entry; a step has hundreds of
   them, which the collector would look at again and again. */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stddef.h>
#include <string.h>
#include <structmember.h>

#include "../numerics/csrc/base.h"
#include "csrc/entry.h"

static PyObject *no_text, *no_key;
static PyTypeObject *entry_type;

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
    {"text", T_OBJECT_EX, offsetof(Entry, text), 0, "Its members as they will stand in the file, in bytes, once `finish` has made them."},
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

/* --- entries to text ------------------------------------------------------------------------------------------------------------------ */
static int has_null(const char *text, Py_ssize_t size)
{
    const char *end = text + size;
    while ((text = memchr(text, 'n', (size_t)(end - text))) != NULL) {
        if (end - text >= 4 && memcmp(text, "null", 4) == 0) return 1;
        text++;
    }
    return 0;
}

static int is_ascii(const char *text, Py_ssize_t size)
{
    unsigned char seen = 0;
    for (Py_ssize_t k = 0; k < size; k++) seen |= (unsigned char)text[k];
    return seen < 0x80;
}

/* Makes the text of one entry; where that is not straightforward it stays as it was. 0: an error is to be let through. */
static int encode_entry(Entry *entry, PyObject *dumps, PyObject *options, Py_ssize_t head, Py_ssize_t tail)
{
    PyObject *members = PyDict_New(), *nested = PyDict_New(), *bytes = NULL, *text = NULL;
    if (members && nested && PyDict_SetItem(members, entry->name, entry->data) == 0 && PyDict_SetItem(nested, no_key, members) == 0)
        bytes = PyObject_CallFunctionObjArgs(dumps, nested, Py_None, options, NULL);
    Py_XDECREF(members);
    Py_XDECREF(nested);
    char *start;
    Py_ssize_t size;
    if (bytes && PyBytes_AsStringAndSize(bytes, &start, &size) == 0 && size > head + tail && (entry->ordinary || !has_null(start, size))
        && is_ascii(start, size))
        text = PyBytes_FromStringAndSize(start + head, size - head - tail);
    Py_XDECREF(bytes);
    if (!text) {
        if (PyErr_Occurred() && !PyErr_ExceptionMatches(PyExc_Exception)) return 0;
        PyErr_Clear();
        return 1;
    }
    PyObject *before = entry->text, *data = entry->data, *empty = PyDict_New();
    if (!empty) {
        Py_DECREF(text);
        return 0;
    }
    entry->text = text;
    entry->data = empty;
    Py_XDECREF(before);
    Py_XDECREF(data);
    return 1;
}

PyDoc_STRVAR(encode_doc, "encode_entries(entries, dumps, options, head, tail, /)\n--\n\n"
"Make the text of each entry that has data and no text, as json_text.members does in its fast case; all others are left as they are.\n"
"dumps: orjson's. head, tail: how many characters around the members are cut off.");

static PyObject *encode(PyObject *self, PyObject *args)
{
    (void)self;
    PyObject *entries, *dumps, *options;
    Py_ssize_t head, tail;
    if (!PyArg_ParseTuple(args, "O!OOnn", &PyList_Type, &entries, &dumps, &options, &head, &tail)) return NULL;
    for (Py_ssize_t k = 0; k < PyList_Size(entries); k++) {
        PyObject *object = PyList_GetItem(entries, k);
        Entry *entry = (Entry *)object;
        if (Py_TYPE(object) != entry_type || !entry->data || !PyDict_CheckExact(entry->data) || PyDict_Size(entry->data) == 0) continue;
        if (!entry->text || !PyBytes_Check(entry->text) || PyBytes_Size(entry->text) > 0) continue;
        Py_INCREF(object);
        int ok = encode_entry(entry, dumps, options, head, tail);
        Py_DECREF(object);
        if (!ok) return NULL;
    }
    Py_RETURN_NONE;
}

PyDoc_STRVAR(unflushed_doc, "unflushed(function, args, kwargs, /)\n--\n\n"
"What the function gives, with subnormal numbers as they are: whoever makes digits of one where the user has them flushed gets 0.0.");

static PyObject *unflushed(PyObject *self, PyObject *args)
{
    (void)self;
    PyObject *function, *positional, *named;
    if (!PyArg_ParseTuple(args, "OO!O!", &function, &PyTuple_Type, &positional, &PyDict_Type, &named)) return NULL;
    FpEnv env;
    fp_enter(&env);
    PyObject *result = PyObject_Call(function, positional, named);
    fp_leave(&env);
    return result;
}

static PyMethodDef methods[] = {
    {"unflushed", unflushed, METH_VARARGS, unflushed_doc},
    {"encode_entries", encode, METH_VARARGS, encode_doc},
    {NULL, NULL, 0, NULL},
};

static int exec_module(PyObject *module)
{
    PyObject *type = PyType_FromSpec(&spec), *version = PyLong_FromLong(ENTRY_VERSION);
    entry_type = (PyTypeObject *)type;
    no_text = PyBytes_FromString("");
    no_key = PyUnicode_FromString("");
    int ok = type && version && no_text && no_key && PyObject_SetAttrString(type, ENTRY_ATTRIBUTE, version) == 0
        && PyObject_SetAttrString(module, "Entry", type) == 0;
    Py_XDECREF(version);
    return ok ? 0 : -1;
}

static PyModuleDef_Slot slots[] = {
    {Py_mod_exec, (void *)exec_module},
    {0, NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "_entry", "Entries of dump.json.", 0, methods, slots, NULL, NULL, NULL,
};

PyMODINIT_FUNC PyInit__entry(void) { return PyModuleDef_Init(&definition); }
