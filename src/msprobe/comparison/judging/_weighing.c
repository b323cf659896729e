/* Weighs a call in which every difference is small enough to be rounding whatever the inputs brought: the fast twin of `_Weighing._weighed`
 * in weighing.py, which says what the rules mean. For any other call the answer is None, and nothing was changed. Stable ABI of
 * CPython 3.10. */
#define PY_SSIZE_T_CLEAN
#include <Python.h>

enum { ROLE = 2, KIND, DTYPE, SHAPE, STATISTICS = 7, VALUE };               /* of a Row */
enum { AGREEMENT = 1, SIZE, EXPECTED = 9, MEASURE_FIELDS = 11 };                 /* of a Measure */
enum { ROUNDING = 2 }; /* of Agreement */
enum { INPUT, PARAMETER, OUTPUT, ROLES, CLOSED = ROLES };
enum { ON_STACK = 64 };
static const double FILL = -6e4; /* from here down a Min may be the fill value of a mask */

static PyObject *text_tensor, *text_input, *text_parameters;

typedef struct {
    PyObject *ours, *theirs, *measure; /* borrowed */
    int role;                          /* CLOSED: stays as it is */
    double size, rounding, unit;
} Open;

static int same_text(PyObject *a, PyObject *b) { return a == b || PyUnicode_Compare(a, b) == 0; }

/* Looks at one row. 1: ordinary; 0: not, or an error is set. */
static int look(PyObject *row, PyObject *bounds, double least_size, Open *open)
{
    PyObject *pair = PyTuple_GetItem(row, 0);
    open->measure = PyTuple_GetItem(row, 1);
    open->ours = PyTuple_GetItem(pair, 0);
    open->theirs = PyTuple_GetItem(pair, 1);
    open->role = CLOSED;
    if (open->ours == Py_None || open->theirs == Py_None || open->measure == Py_None) {
        open->measure = NULL;
        return 1;
    }
    PyObject *kind = PyTuple_GetItem(open->ours, KIND), *dtype = PyTuple_GetItem(open->ours, DTYPE);
    if (!same_text(kind, PyTuple_GetItem(open->theirs, KIND))) return 0;
    if (PyLong_AsLong(PyTuple_GetItem(open->measure, AGREEMENT)) < ROUNDING) return !PyErr_Occurred();
    PyObject *lowest = PyTuple_GetItem(PyTuple_GetItem(open->ours, STATISTICS), 1), *size = PyTuple_GetItem(open->measure, SIZE);
    if (!same_text(kind, text_tensor) || !same_text(dtype, PyTuple_GetItem(open->theirs, DTYPE)) ||
        !same_text(PyTuple_GetItem(open->ours, SHAPE), PyTuple_GetItem(open->theirs, SHAPE)) || !PyFloat_CheckExact(lowest) ||
        !(PyFloat_AsDouble(lowest) > FILL) || !PyFloat_CheckExact(size))
        return 0;
    PyObject *found = PyObject_CallFunctionObjArgs(bounds, dtype, dtype, NULL);
    if (!found) return 0;
    int floating = PyObject_IsTrue(PyTuple_GetItem(found, 0));
    open->unit = PyFloat_AsDouble(PyTuple_GetItem(found, 1));
    open->rounding = PyFloat_AsDouble(PyTuple_GetItem(found, 2));
    Py_DECREF(found);
    open->size = PyFloat_AsDouble(size);
    if (PyErr_Occurred() || floating <= 0 || !(open->size >= least_size && open->size <= open->rounding)) return 0;
    PyObject *role = PyTuple_GetItem(open->ours, ROLE);
    open->role = same_text(role, text_input) ? INPUT : same_text(role, text_parameters) ? PARAMETER : OUTPUT;
    return 1;
}

/* What is the same for one value under another name: see `_identity`. */
static PyObject *identity(const Open *open)
{
    PyObject *a = PyTuple_GetItem(open->ours, STATISTICS), *b = PyTuple_GetItem(open->theirs, STATISTICS);
    return PyTuple_Pack(5, PyTuple_GetItem(a, 0), PyTuple_GetItem(a, 1), PyTuple_GetItem(b, 0), PyTuple_GetItem(b, 1),
                        PyTuple_GetItem(open->ours, VALUE));
}

/* A NamedTuple as `like`, with none of its fields yet. */
static PyObject *blank(PyObject *like, Py_ssize_t size)
{
    PyTypeObject *type = Py_TYPE(like);
    allocfunc allocate = (allocfunc)PyType_GetSlot(type, Py_tp_alloc);
    return allocate ? allocate(type, size) : NULL;
}

static PyObject *replaced(PyObject *measure, PyObject *agreement, PyObject *expected)
{
    PyObject *made = blank(measure, MEASURE_FIELDS);
    for (Py_ssize_t i = 0; made && i < MEASURE_FIELDS; i++) {
        PyObject *field = i == AGREEMENT ? agreement : i == EXPECTED ? expected : PyTuple_GetItem(measure, i);
        Py_INCREF(field);
        PyTuple_SetItem(made, i, field);
    }
    return made;
}

/* The weighed measure. `known_first`: it may have been weighed under another name. `*decided`: it was not. */
static PyObject *weighed(const Open *open, PyObject *seen, int known_first, PyObject *rounding, double allowance, int *decided)
{
    PyObject *made = NULL, *expected = NULL, *key = identity(open);
    *decided = 0;
    if (!key) return NULL;
    if (known_first) {
        PyObject *known = PyDict_GetItemWithError(seen, key);
        if (known && PyFloat_AsDouble(PyTuple_GetItem(known, SIZE)) >= open->size)
            made = replaced(open->measure, PyTuple_GetItem(known, AGREEMENT), PyTuple_GetItem(known, EXPECTED));
        if (made || PyErr_Occurred()) goto done;
    }
    expected = PyFloat_FromDouble(allowance);
    made = expected ? replaced(open->measure, rounding, expected) : NULL;
    if (made && PyDict_SetItem(seen, key, made) < 0) Py_CLEAR(made);
    *decided = made != NULL;
done:
    Py_XDECREF(expected);
    Py_DECREF(key);
    return made;
}

static const char weigh_doc[] =
    "weigh(rows, seen, bounds, (UNKNOWN, ROUNDING), (growth, ambient, decay, limit, least_size), is_module, is_listed, parted)\n"
    "-> (rows, inputs, parameters, outputs, ambient), or None for a call that Python is to weigh.";

static PyObject *weigh(PyObject *module, PyObject *const *args, Py_ssize_t count)
{
    (void)module;
    double numbers[5];
    if (count != 8 || !PyTuple_CheckExact(args[0]) || !PyDict_CheckExact(args[1])) {
        PyErr_SetString(PyExc_TypeError, "weigh takes rows, a dict, a function, two tuples and three flags");
        return NULL;
    }
    Py_ssize_t size = PyTuple_Size(args[0]);
    for (int i = 0; i < 5; i++) numbers[i] = PyFloat_AsDouble(PyTuple_GetItem(args[4], i));
    if (PyErr_Occurred()) return NULL;
    double growth = numbers[0], ambient = numbers[1], decay = numbers[2], limit = numbers[3];
    int is_module = args[5] == Py_True, is_listed = args[6] == Py_True, parted = args[7] == Py_True;
    PyObject *rounding = PyTuple_GetItem(args[3], 1);
    Open open[ON_STACK];
    if (size > ON_STACK) Py_RETURN_NONE;
    for (Py_ssize_t i = 0; i < size; i++) {
        Open *one = &open[i];
        int ordinary = look(PyTuple_GetItem(args[0], i), args[2], numbers[4], one);
        if (ordinary && one->role == OUTPUT && is_listed) { /* at least one rounding */
            double least = growth * one->unit;
            if (least < one->rounding) ordinary = one->size <= least;
        }
        if (!ordinary) {
            if (PyErr_Occurred()) return NULL;
            Py_RETURN_NONE;
        }
    }
    PyObject *rows = PyTuple_New(size), *worst[ROLES], *result = NULL;
    if (!rows) return NULL;
    for (int role = 0; role < ROLES; role++) worst[role] = PyTuple_GetItem(args[3], 0);
    for (int pass = 0; pass < 2; pass++) { /* what came in first */
        for (Py_ssize_t i = 0; i < size; i++) {
            const Open *one = &open[i];
            PyObject *row = PyTuple_GetItem(args[0], i), *made;
            if (one->role == CLOSED ? pass : (one->role == OUTPUT) != pass) continue;
            if (one->role == CLOSED) {
                Py_INCREF(row);
                PyTuple_SetItem(rows, i, row);
                continue;
            }
            int decided;
            double allowance = one->rounding;
            if (one->role == INPUT && growth * ambient > allowance) allowance = growth * ambient;
            if (one->role == OUTPUT && is_listed && growth * one->unit < allowance) allowance = growth * one->unit;
            PyObject *measure = weighed(one, args[1], one->role != OUTPUT || is_module, rounding, allowance, &decided);
            if (!measure) goto done;
            if (decided && one->role == OUTPUT && !parted) {
                double usual = one->size < limit * one->rounding ? one->size : limit * one->rounding;
                ambient = ambient * decay > usual ? ambient * decay : usual;
            }
            if (!(made = blank(row, 2))) {
                Py_DECREF(measure);
                goto done;
            }
            PyObject *pair = PyTuple_GetItem(row, 0);
            Py_INCREF(pair);
            PyTuple_SetItem(made, 0, pair);
            PyTuple_SetItem(made, 1, measure);
            PyTuple_SetItem(rows, i, made);
        }
    }
    for (Py_ssize_t i = 0; i < size; i++) {
        if (!open[i].measure) continue;
        PyObject *role = PyTuple_GetItem(open[i].ours, ROLE);
        PyObject *agreement = PyTuple_GetItem(PyTuple_GetItem(PyTuple_GetItem(rows, i), 1), AGREEMENT);
        PyObject **most = &worst[same_text(role, text_input) ? INPUT : same_text(role, text_parameters) ? PARAMETER : OUTPUT];
        if (agreement != *most && PyLong_AsLong(agreement) > PyLong_AsLong(*most)) *most = agreement;
    }
    PyObject *now = PyFloat_FromDouble(ambient);
    if (now && !PyErr_Occurred()) result = PyTuple_Pack(5, rows, worst[INPUT], worst[PARAMETER], worst[OUTPUT], now);
    Py_XDECREF(now);
done:
    Py_DECREF(rows);
    return result;
}

static PyMethodDef methods[] = {
    {"weigh", (PyCFunction)(void (*)(void))weigh, METH_FASTCALL, weigh_doc},
    {NULL, NULL, 0, NULL},
};

static int exec_module(PyObject *module)
{
    (void)module;
    text_tensor = PyUnicode_InternFromString("tensor");
    text_input = PyUnicode_InternFromString("input");
    text_parameters = PyUnicode_InternFromString("parameters");
    return text_tensor && text_input && text_parameters ? 0 : -1;
}

static PyModuleDef_Slot slots[] = {
    {Py_mod_exec, (void *)exec_module},
#ifdef Py_GIL_DISABLED
    {Py_mod_gil, Py_MOD_GIL_NOT_USED},
#endif
    {0, NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "_weighing", "Weighs calls that differ by rounding alone.", 0, methods, slots, NULL, NULL, NULL,
};

PyMODINIT_FUNC PyInit__weighing(void) { return PyModuleDef_Init(&definition); }
