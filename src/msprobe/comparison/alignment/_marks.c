/* What two sequences of calls take in and the other does not at the same place: the fast twin of `_differing` in reordered.py. Stable ABI
 * of CPython 3.10. */
#define PY_SSIZE_T_CLEAN
#include <Python.h>

enum { ROLE = 2, KIND, STATISTICS = 7, VALUE, MD5 }; /* of a Row */
enum { ROWS = 2 };                                   /* of a Call */

static PyObject *text_tensor, *text_output, *number_zero, *number_one, *number_none;

static int same_text(PyObject *a, PyObject *b) { return a == b || PyUnicode_Compare(a, b) == 0; }

/* Whether a value equals a small number; -1: an error is set. */
static int equals(PyObject *value, PyObject *number)
{
    if (value == number) return 1;
    if (value == Py_None) return 0;
    if (PyFloat_CheckExact(value)) return PyFloat_AsDouble(value) == PyLong_AsDouble(number);
    return PyObject_RichCompareBool(value, number, Py_EQ);
}

/* What tells a value that a call takes in from others, borrowed; NULL for what tells nothing, or with an error set. */
static PyObject *mark_of(PyObject *row)
{
    PyObject *value = PyTuple_GetItem(row, VALUE), *md5 = PyTuple_GetItem(row, MD5), *statistics = PyTuple_GetItem(row, STATISTICS);
    if (!same_text(PyTuple_GetItem(row, KIND), text_tensor) || same_text(PyTuple_GetItem(row, ROLE), text_output)) return NULL;
    if (equals(value, number_zero) || equals(value, number_one)) return NULL;
    if (md5 != Py_None) return md5;
    for (int i = 0; i < 4; i++) {
        if (PyTuple_GetItem(statistics, i) == Py_None) return NULL;
    }
    return equals(PyTuple_GetItem(statistics, 3), number_zero) ? NULL : statistics;
}

/* Notes where the mark of a row stands. 0: an error is set. */
static int note(PyObject *marks, PyObject *row, PyObject *place)
{
    PyObject *mark = mark_of(row);
    if (!mark) return !PyErr_Occurred();
    PyObject *known = PyDict_GetItemWithError(marks, mark);
    if (!known) return !PyErr_Occurred() && PyDict_SetItem(marks, mark, place) == 0;
    return known == place || PyDict_SetItem(marks, mark, number_none) == 0;
}

/* Notes what differs between two calls. 0: an error is set. */
static int note_calls(PyObject *call, PyObject *other, PyObject *const *marks, PyObject *place)
{
    PyObject *rows[2] = {PyTuple_GetItem(call, ROWS), PyTuple_GetItem(other, ROWS)};
    Py_ssize_t size = PyTuple_Size(rows[0]);
    if (PyTuple_Size(rows[1]) < size) size = PyTuple_Size(rows[1]); /* what one has more of is in no pair */
    for (Py_ssize_t i = 0; i < size; i++) {
        PyObject *a = PyTuple_GetItem(rows[0], i), *b = PyTuple_GetItem(rows[1], i);
        if (a == b) continue;
        int same = PyObject_RichCompareBool(PyTuple_GetItem(a, STATISTICS), PyTuple_GetItem(b, STATISTICS), Py_EQ);
        if (same > 0) same = PyObject_RichCompareBool(PyTuple_GetItem(a, MD5), PyTuple_GetItem(b, MD5), Py_EQ);
        if (same < 0) return 0;
        if (!same && !(note(marks[0], a, place) && note(marks[1], b, place))) return 0;
    }
    return 1;
}

static const char differing_doc[] =
    "differing(calls, others) -> (marks of the calls, marks of the others): mark -> place, -1 where it is not alone.\n\n"
    "Two lists of one length; None for what is no call.";

static PyObject *differing(PyObject *module, PyObject *const *args, Py_ssize_t count)
{
    (void)module;
    if (count != 2 || !PyList_CheckExact(args[0]) || !PyList_CheckExact(args[1]) || PyList_Size(args[0]) != PyList_Size(args[1])) {
        PyErr_SetString(PyExc_TypeError, "differing takes two lists of one length");
        return NULL;
    }
    PyObject *marks[2] = {PyDict_New(), PyDict_New()}, *result = NULL;
    int going = marks[0] && marks[1];
    for (Py_ssize_t i = 0; going && i < PyList_Size(args[0]); i++) {
        PyObject *call = PyList_GetItem(args[0], i), *other = PyList_GetItem(args[1], i);
        if (call == other || call == Py_None || other == Py_None) continue;
        PyObject *place = PyLong_FromSsize_t(i);
        going = place && note_calls(call, other, marks, place);
        Py_XDECREF(place);
    }
    if (going) result = PyTuple_Pack(2, marks[0], marks[1]);
    Py_XDECREF(marks[0]);
    Py_XDECREF(marks[1]);
    return result;
}

static PyMethodDef methods[] = {
    {"differing", (PyCFunction)(void (*)(void))differing, METH_FASTCALL, differing_doc},
    {NULL, NULL, 0, NULL},
};

static int exec_module(PyObject *module)
{
    (void)module;
    text_tensor = PyUnicode_InternFromString("tensor");
    text_output = PyUnicode_InternFromString("output");
    number_zero = PyLong_FromLong(0);
    number_one = PyLong_FromLong(1);
    number_none = PyLong_FromLong(-1);
    return text_tensor && text_output && number_zero && number_one && number_none ? 0 : -1;
}

static PyModuleDef_Slot slots[] = {
    {Py_mod_exec, (void *)exec_module},
#ifdef Py_GIL_DISABLED
    {Py_mod_gil, Py_MOD_GIL_NOT_USED},
#endif
    {0, NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "_marks", "What one of two runs takes in and the other does not.", 0, methods, slots, NULL, NULL, NULL,
};

PyMODINIT_FUNC PyInit__marks(void) { return PyModuleDef_Init(&definition); }
