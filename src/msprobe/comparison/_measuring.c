/* Measures calls of a statistics dump: the fast twin of `measure_calls` in measure_many.py and `summarise` in calls.py. Tensors of which
 * all eight statistics are finite floats are measured here, by the operations of measure_statistics.py on the same float64; all others
 * by Python. Their differences are spelled by orjson, those of all calls at once. Stable ABI of CPython 3.10. */
#include "_measuring.h"
#include "_spelling.h"

/* Whether two plain values are equal numbers that are spelled alike. */
static int same_scalar(PyObject *ours, PyObject *theirs)
{
    PyObject *a = PyTuple_GetItem(ours, VALUE), *b = PyTuple_GetItem(theirs, VALUE);
    if (!same_text(PyTuple_GetItem(ours, KIND), text_plain) || !same_text(PyTuple_GetItem(theirs, KIND), text_plain)) return 0;
    if (PyLong_CheckExact(a)) return a == b;
    return PyFloat_CheckExact(a) && PyFloat_CheckExact(b) && PyFloat_AsDouble(a) == PyFloat_AsDouble(b) && PyFloat_AsDouble(a) != 0.0;
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
    } else if (same_scalar(ours, theirs)) {
        slot->measure = Py_NewRef(work->c[C_SAME]);
        return 1;
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
                 {&text_empty, ""},        {&text_plain, "scalar"}};
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
