/* What _rows.c and _entries.c share: from the fields of a tensor to its Row, as `Builder._tensor` in rows.py makes it. Stable ABI of
 * CPython 3.10. */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <string.h>

enum { NUMBERS = 32 };
enum { MAX, MIN, MEAN, NORM, REQUIRES_GRAD, DTYPE, SHAPE, DATA_NAME, MD5, TYPE, FIELDS };
enum { R_NAME, R_KEY, R_ROLE, R_KIND, R_DTYPE, R_SHAPE, R_GRAD, R_STATISTICS, R_VALUE, R_MD5, R_DATA_NAME, R_FIELDS };

static const char *const field_names[FIELDS] = {"Max", "Min", "Mean", "Norm", "requires_grad", "dtype", "shape", "data_name", "md5", "type"};
static PyObject *fields[FIELDS], *text_tensor, *text_missing, *text_true, *text_false, *text_dot, *numbers[NUMBERS];

typedef struct {
    PyObject *entry, *twins; /* name of the entry; the rows of the other dump's entry */
    PyObject *row_type, *sizes, *texts, *shape, *other;
    allocfunc allocate;
    PyObject *role; /* of the part that is walked */
    PyObject *rows;
    int unusual; /* Python is to make this entry */
} Walk;

/* The same text, kept once; steals `text`. */
static PyObject *kept(Walk *walk, PyObject *text)
{
    if (!text) return NULL;
    PyObject *found = PyDict_GetItemWithError(walk->texts, text);
    if (found) {
        Py_INCREF(found);
        Py_DECREF(text);
        return found;
    }
    if (PyErr_Occurred() || PyDict_SetItem(walk->texts, text, text) < 0) {
        Py_DECREF(text);
        return NULL;
    }
    return text;
}

static PyObject *joined(PyObject *left, PyObject *right)
{
    PyObject *text = PyUnicode_Concat(left, text_dot);
    if (text) PyUnicode_Append(&text, right);
    return text;
}

static int same_text(PyObject *a, PyObject *b) { return a == b || PyUnicode_Compare(a, b) == 0; }

/* Whether both are floats, equal, and neither 0 nor NaN. */
static int same_number(PyObject *a, PyObject *b)
{
    if (!PyFloat_CheckExact(a) || !PyFloat_CheckExact(b)) return 0;
    double x = PyFloat_AsDouble(a);
    return x == PyFloat_AsDouble(b) && x != 0.0;
}

/* Adds the tensor `key`; `field` without TYPE: borrowed, None for what is missing; REQUIRES_GRAD as text; `size`: (shape as text, number of
 * elements). 0: an error is set. */
static int add_row(Walk *walk, PyObject *key, PyObject *const *field, PyObject *size)
{
    PyObject *grad = field[REQUIRES_GRAD];
    PyObject *shape = PyTuple_GetItem(size, 0), *numel = PyTuple_GetItem(size, 1);
    PyObject *name = NULL, *dtype = NULL, *statistics = NULL, *row = NULL;
    Py_INCREF(key);
    Py_ssize_t position = PyList_Size(walk->rows);
    if (position < PyTuple_Size(walk->twins)) {
        PyObject *twin = PyTuple_GetItem(walk->twins, position);
        PyObject *theirs = PyTuple_GetItem(twin, R_KEY);
        if (same_text(theirs, key) && same_text(PyTuple_GetItem(twin, R_ROLE), walk->role) &&
            same_text(PyTuple_GetItem(twin, R_KIND), text_tensor)) {
            Py_INCREF(theirs);
            Py_DECREF(key);
            key = theirs;
            PyObject *statistic = PyTuple_GetItem(twin, R_STATISTICS), *md5 = PyTuple_GetItem(twin, R_MD5);
            int same = PyTuple_GetItem(twin, R_DATA_NAME) == Py_None && Py_TYPE(md5) == Py_TYPE(field[MD5]);
            if (same) name = Py_NewRef(PyTuple_GetItem(twin, R_NAME));
            for (int i = MAX; same && i <= NORM; i++) same = same_number(field[i], PyTuple_GetItem(statistic, i));
            same = same && same_text(field[DTYPE], PyTuple_GetItem(twin, R_DTYPE)) && same_text(shape, PyTuple_GetItem(twin, R_SHAPE)) &&
                   same_text(grad, PyTuple_GetItem(twin, R_GRAD));
            if (same && md5 != Py_None) same = PyObject_RichCompareBool(md5, field[MD5], Py_EQ);
            if (same < 0) goto done;
            if (same) {
                row = Py_NewRef(twin);
                goto done;
            }
        }
    }
    if (!name) name = joined(walk->entry, key);
    dtype = kept(walk, Py_NewRef(field[DTYPE]));
    key = kept(walk, key);
    statistics = PyTuple_Pack(4, field[MAX], field[MIN], field[MEAN], field[NORM]);
    if (!name || !dtype || !key || !statistics) goto done;
    row = walk->allocate((PyTypeObject *)walk->row_type, R_FIELDS);
    if (!row) goto done;
    PyObject *values[R_FIELDS] = {name, key, walk->role, text_tensor, dtype, shape, grad, statistics, numel, field[MD5], Py_None};
    for (int i = 0; i < R_FIELDS; i++) PyTuple_SetItem(row, i, Py_NewRef(values[i]));
done:
    Py_XDECREF(name);
    Py_XDECREF(key);
    Py_XDECREF(dtype);
    Py_XDECREF(statistics);
    int added = row && PyList_Append(walk->rows, row) == 0;
    Py_XDECREF(row);
    return added;
}

static int load_texts(void)
{
    for (int i = 0; i < FIELDS; i++) {
        if (!(fields[i] = PyUnicode_InternFromString(field_names[i]))) return -1;
    }
    text_tensor = PyUnicode_InternFromString("tensor");
    text_missing = PyUnicode_InternFromString("N/A");
    text_true = PyUnicode_InternFromString("True");
    text_false = PyUnicode_InternFromString("False");
    text_dot = PyUnicode_InternFromString(".");
    for (int i = 0; i < NUMBERS; i++) {
        if (!(numbers[i] = PyUnicode_FromFormat("%d", i))) return -1;
    }
    return text_dot && text_tensor && text_missing && text_true && text_false ? 0 : -1;
}
