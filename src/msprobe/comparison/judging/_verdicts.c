/* Calls of which every row passes, and no rule has anything more to say: the fast twin of the two shortcuts in judge.py's `_judge_call`.
 * Stable ABI of CPython 3.10. */
#define PY_SSIZE_T_CLEAN
#include <Python.h>

enum { KIND = 3, DTYPE, SHAPE, GRAD, STATISTICS, VALUE };              /* of a Row */
enum { AGREEMENT = 1, REASON = 3, LOST = 8, FILLED = 10 };             /* of a Measure */
enum { ROWS = 2 };                                                     /* of a MeasuredCall */
enum { SAME = 1, ROUNDING };                                           /* of Agreement */

static PyObject *text_tensor;

static int same_text(PyObject *a, PyObject *b) { return a == b || PyUnicode_Compare(a, b) == 0; }

static int is_finite_float(PyObject *value)
{
    if (!PyFloat_CheckExact(value)) return 0;
    double number = PyFloat_AsDouble(value);
    return number - number == 0.0;
}

/* Whether two plain values are equal; 0 also for what is left to Python. */
static int same_value(PyObject *a, PyObject *b)
{
    if (PyFloat_CheckExact(a) && PyFloat_CheckExact(b)) return PyFloat_AsDouble(a) == PyFloat_AsDouble(b);
    if (PyUnicode_CheckExact(a) && PyUnicode_CheckExact(b)) return same_text(a, b);
    return a == b && (PyLong_Check(a) || a == Py_None);
}

static int passes(PyObject *row, int values)
{
    PyObject *pair = PyTuple_GetItem(row, 0), *measure = PyTuple_GetItem(row, 1);
    PyObject *ours = PyTuple_GetItem(pair, 0), *theirs = PyTuple_GetItem(pair, 1);
    if (measure == Py_None || ours == Py_None || theirs == Py_None || PyTuple_GetItem(measure, LOST) != Py_False) return 0;
    int tensor = same_text(PyTuple_GetItem(ours, KIND), text_tensor);
    if (ours != theirs) {
        for (int i = DTYPE; i <= GRAD; i++) {
            if (!same_text(PyTuple_GetItem(ours, i), PyTuple_GetItem(theirs, i))) return 0;
        }
    }
    long agreement = PyLong_AsLong(PyTuple_GetItem(measure, AGREEMENT));
    if (agreement == SAME) return tensor || same_value(PyTuple_GetItem(ours, VALUE), PyTuple_GetItem(theirs, VALUE));
    if (agreement != ROUNDING || !values || !tensor || !same_text(PyTuple_GetItem(theirs, KIND), text_tensor)) return 0;
    if (PyUnicode_GetLength(PyTuple_GetItem(measure, REASON)) != 0 || PyTuple_GetItem(measure, FILLED) != Py_False) return 0;
    PyObject *statistics = PyTuple_GetItem(ours, STATISTICS);
    return is_finite_float(PyTuple_GetItem(statistics, 0)) && is_finite_float(PyTuple_GetItem(statistics, 1));
}

static const char passing_doc[] =
    "passing(calls, values) -> list: for each call the number of its rows where all of them pass, else -1.\n\n"
    "values: a difference within rounding passes.";

static PyObject *passing(PyObject *module, PyObject *const *args, Py_ssize_t count)
{
    (void)module;
    if (count != 2 || !PyList_CheckExact(args[0]) || !PyBool_Check(args[1])) {
        PyErr_SetString(PyExc_TypeError, "passing takes a list of calls and whether values are compared");
        return NULL;
    }
    Py_ssize_t size = PyList_Size(args[0]);
    PyObject *result = PyList_New(size);
    for (Py_ssize_t i = 0; result && i < size; i++) {
        PyObject *rows = PyTuple_GetItem(PyList_GetItem(args[0], i), ROWS), *number;
        Py_ssize_t many = PyTuple_Size(rows), row = 0;
        while (row < many && passes(PyTuple_GetItem(rows, row), args[1] == Py_True)) row++;
        number = PyErr_Occurred() ? NULL : PyLong_FromSsize_t(row == many ? many : -1);
        if (!number || PyList_SetItem(result, i, number) < 0) Py_CLEAR(result);
    }
    return result;
}

static PyMethodDef methods[] = {
    {"passing", (PyCFunction)(void (*)(void))passing, METH_FASTCALL, passing_doc},
    {NULL, NULL, 0, NULL},
};

static int exec_module(PyObject *module)
{
    (void)module;
    text_tensor = PyUnicode_InternFromString("tensor");
    return text_tensor ? 0 : -1;
}

static PyModuleDef_Slot slots[] = {
    {Py_mod_exec, (void *)exec_module},
#ifdef Py_GIL_DISABLED
    {Py_mod_gil, Py_MOD_GIL_NOT_USED},
#endif
    {0, NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "_verdicts", "Calls of which every row passes.", 0, methods, slots, NULL, NULL, NULL,
};

PyMODINIT_FUNC PyInit__verdicts(void) { return PyModuleDef_Init(&definition); }
