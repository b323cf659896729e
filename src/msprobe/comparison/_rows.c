/* The rows of an ordinary entry of dump.json: the fast twin of `Builder._add` in rows.py, which says what they mean. What is out of the
 * ordinary is left to Python: a single value to a function that is called back, a whole entry by the answer None. Stable ABI of
 * CPython 3.10. */
#include "_rows.h"

enum { MAX_DEPTH = 50 };
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
    for (int i = MAX; i <= NORM; i++) walk->unusual |= PyUnicode_Check(field[i]) || PyList_Check(field[i]) || PyDict_Check(field[i]);
    walk->unusual |= PyList_Check(field[MD5]) || PyDict_Check(field[MD5]);
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
    field[REQUIRES_GRAD] = grad;
    return add_row(walk, key, field, size);
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
    return load_texts();
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
