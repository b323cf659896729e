/* Measures calls of a statistics dump: the fast twin of `measure_calls` in measure_many.py and `summarise` in calls.py. Tensors of which
 * all eight statistics are finite floats are measured here, by the operations of measure_statistics.py on the same float64; all others
 * by Python. Their differences are spelled by orjson, those of all calls at once. Stable ABI of CPython 3.10. */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <math.h>

#include "_spelling.h"

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
    *text_empty, *number_zero, *float_zero;

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

/* Looks at one pair of rows. 0: an error is set. */
static int look(Work *work, PyObject *pair, int elsewhere, Slot *slot)
{
    PyObject *ours = PyTuple_GetItem(pair, 0), *theirs = PyTuple_GetItem(pair, 1);
    slot->measure = NULL;
    if (ours == Py_None || theirs == Py_None) {
        slot->measure = Py_NewRef(Py_None);
        return 1;
    }
    if (elsewhere && same_text(PyTuple_GetItem(ours, ROLE), text_output)) {
        slot->measure = Py_NewRef(work->c[C_INSTEAD]);
        return 1;
    }
    if (same_text(PyTuple_GetItem(ours, KIND), text_tensor)) {
        if (ours == theirs) {
            int plain = is_plain(ours);
            if (plain < 0) return 0;
            if (plain) {
                slot->measure = Py_NewRef(work->c[C_SAME]);
                return 1;
            }
        }
        if (same_text(PyTuple_GetItem(theirs, KIND), text_tensor) &&
            same_text(PyTuple_GetItem(ours, SHAPE), PyTuple_GetItem(theirs, SHAPE))) {
            int measured = measure(work, ours, theirs, slot);
            if (measured) return measured > 0;
        }
    }
    slot->measure = PyObject_CallFunctionObjArgs(work->c[C_MEASURER], ours, theirs, NULL);
    return slot->measure != NULL;
}

/* The next number of a JSON list, as Python spells it, with the comma before it. NULL: there is none. */
static char *next_number(const char **at, const char *end, char *out, const char *unit)
{
    const char *begin = ++*at; /* behind `[` or `,` */
    while (*at < end && **at != ',' && **at != ']') ++*at;
    if (*at == begin || *at >= end || *at - begin > SPELLED / 2) return NULL;
    *out++ = ',';
    out = spelled(begin, *at, out);
    while (*unit) *out++ = *unit++;
    return out;
}

static PyObject *cells_of(Work *work, const Slot *slot, const char **at, const char *end)
{
    char line[8 * (SPELLED + 2)], *out = line;
    for (int i = 0; i < 8 && out; i++) {
        int bit = 1 << (i & 3);
        const char *fixed = slot->equal & bit ? ",0" : i > 3 && slot->zero & bit ? ",inf" : NULL;
        if (!fixed) {
            out = next_number(at, end, out, i > 3 ? "%" : "");
            continue;
        }
        while (*fixed) *out++ = *fixed++;
    }
    if (!out) {
        PyErr_SetString(PyExc_ValueError, "fewer numbers were spelled than were given");
        return NULL;
    }
    PyObject *text = PyUnicode_FromStringAndSize(line + 1, out - line - 1), *cells = text ? blank(work, T_CELLS, 0) : NULL;
    if (cells && PyObject_SetAttr(cells, text_text, text) < 0) Py_CLEAR(cells);
    Py_XDECREF(text);
    return cells;
}

/* The Measure of a slot that waits. */
static PyObject *measure_of(Work *work, const Slot *slot, const char **at, const char *end)
{
    PyObject *cells = cells_of(work, slot, at, end), *made = cells ? blank(work, T_MEASURE, MEASURE_FIELDS) : NULL;
    PyObject *size = PyFloat_FromDouble(slot->size), *relative = PyFloat_FromDouble(slot->relative), *most = PyFloat_FromDouble(slot->most);
    if (made && size && relative && most) {
        PyObject *agreement = PyTuple_GetItem(work->c[C_AGREEMENTS], slot->agreement);
        PyObject *fields[MEASURE_FIELDS] = {cells,   agreement, size, text_empty, relative,   Py_None,
                                            Py_None, most,      Py_False, float_zero, Py_False};
        for (int i = 0; i < MEASURE_FIELDS; i++) PyTuple_SetItem(made, i, Py_NewRef(fields[i]));
    } else {
        Py_CLEAR(made);
    }
    Py_XDECREF(cells);
    Py_XDECREF(size);
    Py_XDECREF(relative);
    Py_XDECREF(most);
    return made;
}

/* The call of a pair (or of its golden side); borrowed. */
static PyObject *call_in(PyObject *pair)
{
    PyObject *target = PyTuple_GetItem(pair, 0);
    return target != Py_None ? target : PyTuple_GetItem(pair, 1);
}

/* Whether requires_grad (1) and dtype (2) of a pair differ. */
static int differing(PyObject *ours, PyObject *theirs)
{
    PyObject *a = PyTuple_GetItem(ours, GRAD), *b = PyTuple_GetItem(theirs, GRAD);
    int found = !same_text(a, b) && !same_text(a, text_missing) && !same_text(b, text_missing);
    if (!same_text(PyTuple_GetItem(ours, DTYPE), PyTuple_GetItem(theirs, DTYPE)) && same_text(PyTuple_GetItem(ours, KIND), text_tensor) &&
        same_text(PyTuple_GetItem(theirs, KIND), text_tensor))
        found |= 2;
    return found;
}

/* The MeasuredCall of a pair. Takes the measures of `slots`. */
static PyObject *call_of(Work *work, PyObject *pair, Slot *slots, const char **at, const char *end)
{
    PyObject *call = call_in(pair), *row_pairs = PyTuple_GetItem(pair, 2);
    Py_ssize_t size = PyTuple_Size(row_pairs);
    int special = call == Py_None ? 1 : PySequence_Contains(work->c[C_SPECIAL], PyTuple_GetItem(PyTuple_GetItem(call, 1), API));
    PyObject *rows = special < 0 ? NULL : PyTuple_New(size), *made = NULL;
    int worst[3] = {UNKNOWN, UNKNOWN, UNKNOWN}, differ = 0;
    if (!rows) return NULL;
    for (Py_ssize_t i = 0; i < size; i++) {
        PyObject *both = PyTuple_GetItem(row_pairs, i), *ours = PyTuple_GetItem(both, 0), *theirs = PyTuple_GetItem(both, 1), *row;
        PyObject *found = slots[i].measure ? slots[i].measure : measure_of(work, &slots[i], at, end);
        slots[i].measure = NULL;
        if (!found) goto done;
        if (special) { /* Python is to make the rows */
            PyTuple_SetItem(rows, i, found);
            continue;
        }
        if (!(row = blank(work, T_MEASURED, 2))) {
            Py_DECREF(found);
            goto done;
        }
        PyTuple_SetItem(row, 0, Py_NewRef(both));
        PyTuple_SetItem(row, 1, found);
        PyTuple_SetItem(rows, i, row);
        if (found == Py_None) continue;
        PyObject *role = PyTuple_GetItem(ours, ROLE);
        int *most = &worst[same_text(role, text_input) ? 0 : same_text(role, text_parameters) ? 1 : 2];
        int agreement = (int)PyLong_AsLong(PyTuple_GetItem(found, AGREEMENT));
        if (agreement > *most) *most = agreement;
        if (ours != theirs) differ |= differing(ours, theirs);
    }
    if (PyErr_Occurred()) goto done;
    if (special) {
        made = PyObject_CallFunctionObjArgs(work->c[C_SUMMARISE], pair, rows, NULL);
    } else if ((made = blank(work, T_CALL, CALL_FIELDS))) {
        PyObject *parts = PyTuple_GetItem(call, 1), *agreement[3];
        int grad = differ & 1 && same_text(PyTuple_GetItem(parts, DIRECTION), text_forward);
        for (int i = 0; i < 3; i++) agreement[i] = PyTuple_GetItem(work->c[C_AGREEMENTS], worst[i]);
        PyObject *fields[CALL_FIELDS] = {pair, parts, rows, agreement[0], agreement[1], agreement[2], grad ? Py_True : Py_False,
                                         differ & 2 ? Py_True : Py_False};
        for (int i = 0; i < CALL_FIELDS; i++) PyTuple_SetItem(made, i, Py_NewRef(fields[i]));
    }
done:
    Py_DECREF(rows);
    return made;
}

/* Whether the outputs of a call stand elsewhere. -1: an error is set. */
static int stands_elsewhere(Work *work, PyObject *pair)
{
    PyObject *call = call_in(pair);
    if (call == Py_None || PyObject_Size(work->c[C_ELSEWHERE]) == 0) return 0;
    return PySequence_Contains(work->c[C_ELSEWHERE], PyTuple_GetItem(call, 0));
}

static const char measured_doc[] =
    "measured(pairs, context) -> list of MeasuredCall.\n\n"
    "context: (measurer, names of calls whose outputs stand elsewhere, measure of these, measure of what is equal, rounding_of,\n"
    "bytes of float64 -> JSON list of them, summarise, APIs that summarise alone knows, the four agreements, the types Measure,\n"
    "Measured, MeasuredCall and Cells).";

static PyObject *measured(PyObject *module, PyObject *const *args, Py_ssize_t count)
{
    (void)module;
    if (count != 2 || !PyList_CheckExact(args[0]) || !PyTuple_CheckExact(args[1]) || PyTuple_Size(args[1]) != CONTEXT) {
        PyErr_SetString(PyExc_TypeError, "measured takes a list of pairs and a context");
        return NULL;
    }
    Work work = {.numbers = NULL};
    PyObject *text = NULL, *result = NULL;
    Py_ssize_t calls = PyList_Size(args[0]), rows = 0, used = 0;
    for (int i = 0; i < CONTEXT; i++) work.c[i] = PyTuple_GetItem(args[1], i);
    for (int i = 0; i < TYPES; i++) {
        work.type[i] = PyTuple_GetItem(work.c[C_TYPES], i);
        if (!work.type[i] || !(work.allocate[i] = (allocfunc)PyType_GetSlot((PyTypeObject *)work.type[i], Py_tp_alloc))) return NULL;
    }
    for (Py_ssize_t i = 0; i < calls; i++) rows += PyTuple_Size(PyTuple_GetItem(PyList_GetItem(args[0], i), 2));
    Slot *slots = PyErr_Occurred() ? NULL : PyMem_Calloc((size_t)rows + 1, sizeof(Slot));
    if (!slots) return PyErr_Occurred() ? NULL : PyErr_NoMemory();
    for (Py_ssize_t i = 0; i < calls; i++) {
        PyObject *pair = PyList_GetItem(args[0], i), *row_pairs = PyTuple_GetItem(pair, 2);
        int elsewhere = stands_elsewhere(&work, pair);
        if (elsewhere < 0) goto done;
        for (Py_ssize_t row = 0; row < PyTuple_Size(row_pairs); row++) {
            if (!look(&work, PyTuple_GetItem(row_pairs, row), elsewhere, &slots[used++])) goto done;
        }
    }
    const char *at = NULL, *end = NULL;
    if (work.count) {
        char *begin;
        Py_ssize_t size;
        text = PyObject_CallFunction(work.c[C_SPELL], "y#", (char *)work.numbers, (Py_ssize_t)(work.count * sizeof(double)));
        if (!text || PyBytes_AsStringAndSize(text, &begin, &size) < 0) goto done;
        at = begin;
        end = begin + size;
    }
    if (!(result = PyList_New(calls))) goto done;
    Slot *next = slots;
    for (Py_ssize_t i = 0; i < calls; i++) {
        PyObject *pair = PyList_GetItem(args[0], i), *call = call_of(&work, pair, next, &at, end);
        if (!call) {
            Py_CLEAR(result);
            goto done;
        }
        PyList_SetItem(result, i, call);
        next += PyTuple_Size(PyTuple_GetItem(pair, 2));
    }
done:
    for (Py_ssize_t i = 0; i < rows; i++) Py_XDECREF(slots[i].measure);
    PyMem_Free(slots);
    PyMem_Free(work.numbers);
    Py_XDECREF(text);
    return result;
}

static const char respelled_doc[] = "respelled(number) -> a number of a JSON text as Python's repr spells it. For tests.";

static PyObject *respelled(PyObject *module, PyObject *number)
{
    (void)module;
    char *text, out[SPELLED];
    Py_ssize_t size;
    if (PyBytes_AsStringAndSize(number, &text, &size) < 0) return NULL;
    if (size > SPELLED / 2) {
        PyErr_SetString(PyExc_ValueError, "the number is too long");
        return NULL;
    }
    return PyUnicode_FromStringAndSize(out, spelled(text, text + size, out) - out);
}

static PyMethodDef methods[] = {
    {"measured", (PyCFunction)(void (*)(void))measured, METH_FASTCALL, measured_doc},
    {"respelled", respelled, METH_O, respelled_doc},
    {NULL, NULL, 0, NULL},
};

static int exec_module(PyObject *module)
{
    (void)module;
    struct {
        PyObject **text;
        const char *spelled;
    } texts[] = {{&text_tensor, "tensor"}, {&text_output, "output"},     {&text_input, "input"},  {&text_parameters, "parameters"},
                 {&text_scalar, "[]"},     {&text_missing, "N/A"},       {&text_forward, "forward"}, {&text_text, "text"},
                 {&text_empty, ""}};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        if (!(*texts[i].text = PyUnicode_InternFromString(texts[i].spelled))) return -1;
    }
    number_zero = PyLong_FromLong(0);
    float_zero = PyFloat_FromDouble(0.0);
    return number_zero && float_zero ? 0 : -1;
}

static PyModuleDef_Slot module_slots[] = {
    {Py_mod_exec, (void *)exec_module},
#ifdef Py_GIL_DISABLED
    {Py_mod_gil, Py_MOD_GIL_NOT_USED},
#endif
    {0, NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "_measuring", "Measures calls of a statistics dump.", 0, methods, module_slots, NULL, NULL, NULL,
};

PyMODINIT_FUNC PyInit__measuring(void) { return PyModuleDef_Init(&definition); }
