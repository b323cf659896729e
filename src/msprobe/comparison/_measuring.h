/* Two tensors of a statistics dump measured, for _measuring.c: the operations of measure_statistics.py on the same float64. */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <math.h>

enum { ROLE = 2, KIND, DTYPE, SHAPE, GRAD, STATISTICS, VALUE };                               /* of a Row */
enum { AGREEMENT = 1, MEASURE_FIELDS = 11, CALL_FIELDS = 8 };                                 /* of a Measure, of a MeasuredCall */
enum { UNKNOWN, SAME, ROUNDING, DIFFERENT };                                                  /* of Agreement */
enum { DIRECTION = 1, API = 3 };                                                              /* of an EntryName */
enum { C_MEASURER, C_ELSEWHERE, C_INSTEAD, C_SAME, C_ROUNDING_OF, C_SPELL, C_SUMMARISE, C_SPECIAL, C_AGREEMENTS, C_TYPES, CONTEXT };
enum { T_MEASURE, T_MEASURED, T_CALL, T_CELLS, TYPES };

typedef struct {
    PyObject *measure; /* owned; NULL: it waits for its differences to be spelled */
    double size, relative, most;
    int equal, zero, agreement; /* bits: which statistics are equal; which differ from a golden 0 */
} Slot;

typedef struct {
    PyObject *c[CONTEXT], *type[TYPES];
    allocfunc allocate[TYPES];
    PyObject *dtypes[2]; /* of which `rounding` is; borrowed */
    double rounding;
    double *numbers; /* that are to be spelled */
    size_t count, room;
} Work;

static PyObject *text_tensor, *text_output, *text_input, *text_parameters, *text_scalar, *text_missing, *text_forward, *text_text,
    *text_empty, *text_plain, *number_zero, *float_zero;

static int same_text(PyObject *a, PyObject *b) { return a == b || PyUnicode_Compare(a, b) == 0; }

static PyObject *blank(Work *work, int type, Py_ssize_t size) { return work->allocate[type]((PyTypeObject *)work->type[type], size); }

static int push(Work *work, double number)
{
    if (work->count == work->room) {
        size_t room = 2 * work->room + 1024;
        double *larger = PyMem_Realloc(work->numbers, room * sizeof(double));
        if (!larger) {
            PyErr_NoMemory();
            return 0;
        }
        work->numbers = larger;
        work->room = room;
    }
    work->numbers[work->count++] = number;
    return 1;
}

static int all_floats(PyObject *statistics, double *values)
{
    for (int i = 0; i < 4; i++) {
        PyObject *value = PyTuple_GetItem(statistics, i);
        if (!PyFloat_CheckExact(value)) return 0;
        values[i] = PyFloat_AsDouble(value);
    }
    return 1;
}

/* Whether a row that both sides share is SAME: an ordinary tensor. -1: an error is set. */
static int is_plain(PyObject *row)
{
    PyObject *statistics = PyTuple_GetItem(row, STATISTICS);
    for (int i = 0; i < 4; i++) {
        PyObject *value = PyTuple_GetItem(statistics, i);
        if (!PyFloat_CheckExact(value) && !PyLong_CheckExact(value)) return 0;
    }
    return PyObject_RichCompareBool(PyTuple_GetItem(row, VALUE), number_zero, Py_NE);
}

/* rounding_of of two dtypes; -1: an error is set. */
static double rounding_of(Work *work, PyObject *ours, PyObject *theirs)
{
    if (work->dtypes[0] != ours || work->dtypes[1] != theirs) {
        PyObject *found = PyObject_CallFunctionObjArgs(work->c[C_ROUNDING_OF], ours, theirs, NULL);
        work->rounding = found ? PyFloat_AsDouble(found) : -1.0;
        Py_XDECREF(found);
        work->dtypes[0] = ours;
        work->dtypes[1] = theirs;
    }
    return work->rounding;
}

/* Two tensors of one shape. 1: measured; 0: Python is to measure them; -1: an error is set. */
static int measure(Work *work, PyObject *ours, PyObject *theirs, Slot *slot)
{
    double a[4], b[4], difference[4], percent[4], sum = 0.0, golden_sum = 0.0, scale = 0.0;
    if (!all_floats(PyTuple_GetItem(ours, STATISTICS), a) || !all_floats(PyTuple_GetItem(theirs, STATISTICS), b)) return 0;
    for (int i = 0; i < 4; i++) {
        sum += a[i];
        golden_sum += b[i];
        if (!isfinite(a[i]) || !isfinite(b[i])) return 0;
        if (i < 2) scale = fmax(scale, fmax(fabs(a[i]), fabs(b[i])));
    }
    if (!isfinite(sum + golden_sum)) return 0; /* as measure_statistics.py decides it */
    slot->size = slot->relative = slot->most = 0.0;
    slot->equal = slot->zero = 0;
    for (int i = 0; i < 4; i++) {
        if (a[i] == b[i]) {
            if (a[i] == 0.0 && signbit(a[i]) != signbit(b[i])) return 0; /* equal, and not spelled alike */
            slot->equal |= 1 << i;
            slot->relative = 0.0;
            continue;
        }
        difference[i] = a[i] - b[i];
        slot->relative = fabs(difference[i] / b[i]);
        percent[i] = slot->relative * 100;
        if (b[i] == 0.0) slot->zero |= 1 << i;
        else if (!isfinite(percent[i])) return 0;
        if (!isfinite(difference[i])) return 0;
        slot->most = fmax(slot->most, fabs(difference[i]));
        double x = a[i], y = b[i];
        if (i == 3) {
            scale = 0.0;
            if (same_text(PyTuple_GetItem(ours, SHAPE), text_scalar)) {
                x = fabs(x);
                y = fabs(y);
            }
        }
        if (x == y) continue;
        double largest = fmax(fmax(fabs(x), fabs(y)), scale);
        slot->size = fmax(slot->size, largest > 1e-300 ? fabs(x / 2 - y / 2) / (largest / 2) : fabs(x - y) / largest);
    }
    PyObject *dtype = PyTuple_GetItem(ours, DTYPE), *golden = PyTuple_GetItem(theirs, DTYPE);
    int one_dtype = same_text(dtype, golden);
    if (slot->equal == 15 && one_dtype) {
        slot->measure = Py_NewRef(work->c[C_SAME]);
        return 1;
    }
    double rounding = rounding_of(work, dtype, golden);
    if (PyErr_Occurred()) return -1;
    slot->agreement = slot->size > rounding ? DIFFERENT : slot->size == 0.0 && one_dtype ? SAME : ROUNDING;
    for (int i = 0; i < 4; i++) {
        if (!(slot->equal >> i & 1) && !push(work, difference[i])) return -1;
    }
    for (int i = 0; i < 4; i++) {
        if (!((slot->equal | slot->zero) >> i & 1) && !push(work, percent[i])) return -1;
    }
    return 1;
}
