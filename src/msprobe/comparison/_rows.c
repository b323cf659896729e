/* The rows of an ordinary entry of dump.json: the fast twin of `Builder._add` in rows.py, which says what they mean. What is out of the
 * ordinary is left to Python: a single value to a function that is called back, a whole entry by the answer None. Stable ABI of
 * CPython 3.10. */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <string.h>

enum { MAX_DEPTH = 50, NUMBERS = 32 };
enum { MAX, MIN, MEAN, NORM, REQUIRES_GRAD, DTYPE, SHAPE, DATA_NAME, MD5, TYPE, FIELDS };
enum { R_NAME, R_KEY, R_ROLE, R_KIND, R_DTYPE, R_SHAPE, R_GRAD, R_STATISTICS, R_VALUE, R_MD5, R_DATA_NAME, R_FIELDS };

static const char *const field_names[FIELDS] = {"Max", "Min", "Mean", "Norm", "requires_grad", "dtype", "shape", "data_name", "md5", "type"};
static PyObject *fields[FIELDS], *text_tensor, *text_missing, *text_true, *text_false, *text_dot, *numbers[NUMBERS];

typedef struct {
    PyObject *entry, *twins, *row_type, *sizes, *texts, *shape, *other;
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

/* Borrowed: (shape as text, number of elements). NULL without an error: out of the ordinary. */
static PyObject *size_of(Walk *walk, PyObject *shape)
{
    if (!PyList_CheckExact(shape)) return NULL;
    PyObject *sizes = PyList_AsTuple(shape);
    if (!sizes) return NULL;
    for (Py_ssize_t i = PyTuple_Size(sizes); i--;) {
        if (!PyLong_CheckExact(PyTuple_GetItem(sizes, i))) { /* true equals 1, and is spelled otherwise */
            Py_DECREF(sizes);
            return NULL;
        }
    }
    PyObject *found = PyDict_GetItemWithError(walk->sizes, sizes);
    if (!found && !PyErr_Occurred()) {
        PyObject *made = PyObject_CallFunctionObjArgs(walk->shape, shape, NULL);
        if (made && PyTuple_CheckExact(made) && PyTuple_Size(made) == 2 && PyDict_SetItem(walk->sizes, sizes, made) == 0) found = made;
        Py_XDECREF(made); /* the dictionary keeps it */
    }
    Py_DECREF(sizes);
    return found;
}

/* Whether both are floats, equal, and neither 0 nor NaN. */
static int same_number(PyObject *a, PyObject *b)
{
    if (!PyFloat_CheckExact(a) || !PyFloat_CheckExact(b)) return 0;
    double x = PyFloat_AsDouble(a);
    return x == PyFloat_AsDouble(b) && x != 0.0;
}

/* Adds a tensor. 0: an error is set, or `unusual`. */
static int add_tensor(Walk *walk, PyObject *key, PyObject *item)
{
    PyObject *field[FIELDS];
    for (int i = 0; i < TYPE; i++) {
        field[i] = PyDict_GetItemWithError(item, fields[i]);
        if (!field[i]) {
            if (PyErr_Occurred()) return 0;
            field[i] = Py_None;
        }
    }
    walk->unusual = !PyUnicode_CheckExact(field[DTYPE]) || field[DATA_NAME] != Py_None;
    for (int i = MAX; i <= NORM; i++) walk->unusual |= PyUnicode_Check(field[i]);
    PyObject *grad = field[REQUIRES_GRAD];
    grad = grad == Py_None ? text_missing : grad == Py_True ? text_true : grad == Py_False ? text_false : NULL;
    if (walk->unusual || !grad) {
        walk->unusual = 1;
        return 0;
    }
    PyObject *size = size_of(walk, field[SHAPE]);
    if (!size) {
        walk->unusual = !PyErr_Occurred();
        return 0;
    }
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

static int add(Walk *walk, PyObject *key, PyObject *item, int depth);

/* Adds what `item` holds under `name`, which is not stolen. */
static int add_child(Walk *walk, PyObject *key, PyObject *name, PyObject *item, int depth)
{
    PyObject *longer = joined(key, name);
    int added = longer && add(walk, longer, item, depth);
    Py_XDECREF(longer);
    return added;
}

static int add(Walk *walk, PyObject *key, PyObject *item, int depth)
{
    if (depth > MAX_DEPTH) {
        walk->unusual = 1;
        return 0;
    }
    if (PyDict_CheckExact(item)) {
        PyObject *type = PyDict_GetItemWithError(item, fields[TYPE]);
        if (!type || !PyUnicode_Check(type)) {
            if (!type && PyErr_Occurred()) return 0;
            PyObject *name, *child;
            Py_ssize_t at = 0;
            while (PyDict_Next(item, &at, &name, &child)) {
                if (!PyUnicode_CheckExact(name) || PyUnicode_GetLength(name) == 0) {
                    walk->unusual = 1;
                    return 0;
                }
                if (!add_child(walk, key, name, child, depth + 1)) return 0;
            }
            return 1;
        }
        if (PyDict_GetItemWithError(item, fields[DTYPE]) && PyDict_GetItemWithError(item, fields[SHAPE])) return add_tensor(walk, key, item);
        if (PyErr_Occurred()) return 0;
    } else if (PyList_CheckExact(item)) {
        for (Py_ssize_t i = 0; i < PyList_Size(item); i++) {
            PyObject *name = i < NUMBERS ? Py_NewRef(numbers[i]) : PyUnicode_FromFormat("%zd", i);
            int added = name && add_child(walk, key, name, PyList_GetItem(item, i), depth + 1);
            Py_XDECREF(name);
            if (!added) return 0;
        }
        return 1;
    }
    PyObject *row = PyObject_CallFunctionObjArgs(walk->other, walk->entry, key, walk->role, item, NULL);
    int added = row && (row == Py_None || PyList_Append(walk->rows, row) == 0);
    Py_XDECREF(row);
    return added;
}

static const char rows_of_doc[] =
    "rows_of(entry, parts, twins, context) -> tuple of Row, or None for an entry that Python is to make.\n\n"
    "context: (Row, role of each part of an entry, sizes -> shape, texts, function of a shape, function of what is no tensor).";

static PyObject *rows_of(PyObject *module, PyObject *const *args, Py_ssize_t count)
{
    (void)module;
    if (count != 4 || !PyUnicode_CheckExact(args[0]) || !PyDict_CheckExact(args[1]) || !PyTuple_CheckExact(args[2]) ||
        !PyTuple_CheckExact(args[3]) || PyTuple_Size(args[3]) != 6) {
        PyErr_SetString(PyExc_TypeError, "rows_of takes the name of an entry, its parts, a tuple of rows and a context");
        return NULL;
    }
    PyObject *context = args[3], *roles = PyTuple_GetItem(context, 1), *result = NULL;
    Walk walk = {args[0], args[2], PyTuple_GetItem(context, 0), PyTuple_GetItem(context, 2), PyTuple_GetItem(context, 3),
                 PyTuple_GetItem(context, 4), PyTuple_GetItem(context, 5), NULL, NULL, NULL, 0};
    walk.allocate = (allocfunc)PyType_GetSlot((PyTypeObject *)walk.row_type, Py_tp_alloc);
    if (!walk.allocate || !(walk.rows = PyList_New(0))) return NULL;
    PyObject *part, *value;
    Py_ssize_t at = 0;
    int going = 1;
    while (going && PyDict_Next(args[1], &at, &part, &value)) {
        walk.role = PyDict_GetItemWithError(roles, part);
        if (walk.role && value != Py_None) going = add(&walk, walk.role, value, 0);
        else going = !PyErr_Occurred();
    }
    if (going) result = PyList_AsTuple(walk.rows);
    else if (walk.unusual && !PyErr_Occurred()) result = Py_NewRef(Py_None);
    Py_DECREF(walk.rows);
    return result;
}

static PyMethodDef methods[] = {
    {"rows_of", (PyCFunction)(void (*)(void))rows_of, METH_FASTCALL, rows_of_doc},
    {NULL, NULL, 0, NULL},
};

static int exec_module(PyObject *module)
{
    (void)module;
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

static PyModuleDef_Slot slots[] = {
    {Py_mod_exec, (void *)exec_module},
#ifdef Py_GIL_DISABLED
    {Py_mod_gil, Py_MOD_GIL_NOT_USED},
#endif
    {0, NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "_rows", "The rows of an ordinary entry of dump.json.", 0, methods, slots, NULL, NULL, NULL,
};

PyMODINIT_FUNC PyInit__rows(void) { return PyModuleDef_Init(&definition); }
