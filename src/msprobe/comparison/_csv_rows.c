/* Lines of the CSV of a statistics dump: the fast twin of `_Lines` in report_csv.py. A row of one side only, or with anything in it that
 * needs quoting, is left to Python. Numbers are spelled by orjson, those of all rows at once. Stable ABI of CPython 3.10. */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <math.h>

#include "_spelling.h"

enum { NAME = 0, DTYPE = 4, SHAPE, GRAD, STATISTICS };        /* of a Row */
enum { PAIR = 0, ROWS = 2 };                                  /* of a MeasuredCall */
enum { KINDS = 6, NUMBER_ROOM = 8 * (SPELLED + 1), INTEGER = 24 };
enum { C_KINDS, C_KIND, C_ENDS, C_END, C_STACKS, C_STACK, C_ODD, C_SPELL, CONTEXT };

typedef struct {
    char *text;
    size_t used, room;
} Out;

typedef struct {
    PyObject *c[CONTEXT];
    PyObject *kind[KINDS], *middle;        /* the last one's: borrowed, and owned by its dictionary */
    PyObject *verdict, *end;               /* the same */
    PyObject *frames, *stack;              /* the same; `stack` is owned */
    PyObject *cells, *joined;              /* the same */
    int same;
    double *numbers;
    size_t count, room;
    const char *at, *stop; /* what of the numbers' text is left */
    Out out;
} Work;

static PyObject *text_not_available, *text_text;

static int grow(Out *out, size_t size)
{
    if (out->used + size <= out->room) return 1;
    size_t room = 2 * (out->used + size) + 4096;
    char *larger = PyMem_Realloc(out->text, room);
    if (!larger) {
        PyErr_NoMemory();
        return 0;
    }
    out->text = larger;
    out->room = room;
    return 1;
}

static int put(Out *out, const char *text, size_t size)
{
    if (!grow(out, size)) return 0;
    memcpy(out->text + out->used, text, size);
    out->used += size;
    return 1;
}

/* Puts a text. 0: an error is set, as for half of a surrogate pair. */
static int put_text(Out *out, PyObject *text)
{
    Py_ssize_t size;
    const char *bytes = PyUnicode_AsUTF8AndSize(text, &size);
    return bytes && put(out, bytes, (size_t)size);
}

/* Whether a name is a field as it is: [A-Za-z_][A-Za-z0-9_.]* */
static int put_name(Out *out, PyObject *name)
{
    Py_ssize_t size;
    const char *text = PyUnicode_AsUTF8AndSize(name, &size);
    if (!text || size == 0) return 0;
    for (Py_ssize_t i = 0; i < size; i++) {
        char sign = text[i];
        int letter = (sign >= 'a' && sign <= 'z') || (sign >= 'A' && sign <= 'Z') || sign == '_';
        if (!letter && (i == 0 || !(sign == '.' || (sign >= '0' && sign <= '9')))) return 0;
    }
    return put(out, text, (size_t)size) && put(out, ",", 1);
}

/* The numbers among four statistics that orjson is to spell. 0: an error is set. */
static int collect(Work *work, PyObject *statistics)
{
    for (int i = 0; i < 4; i++) {
        PyObject *value = PyTuple_GetItem(statistics, i);
        if (!PyFloat_CheckExact(value) || !isfinite(PyFloat_AsDouble(value))) continue;
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
        work->numbers[work->count++] = PyFloat_AsDouble(value);
    }
    return 1;
}

/* The next number that orjson spelled. NULL: an error is set. */
static char *next_number(Work *work, char *out)
{
    const char *begin = ++work->at; /* behind `[` or `,` */
    while (work->at < work->stop && *work->at != ',' && *work->at != ']') work->at++;
    if (work->at == begin || work->at >= work->stop || work->at - begin > SPELLED / 2) {
        PyErr_SetString(PyExc_ValueError, "fewer numbers were spelled than were given");
        return NULL;
    }
    return spelled(begin, work->at, out);
}

static char *copied(char *out, const char *text)
{
    while (*text) *out++ = *text++;
    return out;
}

/* Four statistics with a comma before each. NULL: an error is set. `*odd`: one is for Python to spell; the others are passed. */
static char *put_statistics(Work *work, PyObject *statistics, char *out, int *odd)
{
    for (int i = 0; i < 4 && out; i++) {
        PyObject *value = PyTuple_GetItem(statistics, i);
        *out++ = ',';
        if (PyFloat_CheckExact(value)) {
            double number = PyFloat_AsDouble(value);
            if (isfinite(number)) out = next_number(work, out);
            else out = copied(out, isnan(number) ? "Nan" : number > 0 ? " inf" : " -inf");
        } else if (value == Py_None || value == Py_True || value == Py_False) {
            out = copied(out, value == Py_None ? "None" : value == Py_True ? "True" : "False");
        } else if (PyLong_CheckExact(value)) {
            int overflow;
            char text[INTEGER];
            long long number = PyLong_AsLongLongAndOverflow(value, &overflow);
            *odd |= overflow;
            PyOS_snprintf(text, sizeof text, "%lld", number);
            out = copied(out, text);
        } else {
            *odd = 1;
        }
    }
    return out;
}

/* What a dictionary holds, or what the function makes and the dictionary holds from then on; borrowed. */
static PyObject *known(PyObject *dictionary, PyObject *key, PyObject *function)
{
    PyObject *found = key ? PyDict_GetItemWithError(dictionary, key) : NULL;
    if (found || !key || PyErr_Occurred()) return found;
    PyObject *made = PyObject_CallFunctionObjArgs(function, key, NULL);
    int kept = made && PyDict_SetItem(dictionary, key, made) == 0;
    Py_XDECREF(made);
    return kept ? made : NULL;
}

/* dtype, shape and requires_grad of both sides; borrowed. */
static PyObject *middle_of(Work *work, PyObject *ours, PyObject *theirs)
{
    PyObject *kind[KINDS];
    int last = work->middle != NULL;
    for (int i = 0; i < KINDS; i++) {
        kind[i] = PyTuple_GetItem(i & 1 ? theirs : ours, DTYPE + i / 2);
        last = last && kind[i] == work->kind[i];
    }
    if (last) return work->middle;
    PyObject *key = PyTuple_Pack(KINDS, kind[0], kind[1], kind[2], kind[3], kind[4], kind[5]);
    work->middle = known(work->c[C_KINDS], key, work->c[C_KIND]);
    Py_XDECREF(key);
    memcpy(work->kind, kind, sizeof kind);
    work->same = kind[4] == kind[5] || PyUnicode_Compare(kind[4], kind[5]) == 0;
    return work->middle;
}

/* What stands behind the numbers; borrowed. Comes after `middle_of`. */
static PyObject *end_of(Work *work, PyObject *verdict, int last_same)
{
    if (work->end && work->verdict == verdict && last_same == work->same) return work->end;
    PyObject *key = PyTuple_Pack(2, work->same ? Py_True : Py_False, verdict);
    work->end = known(work->c[C_ENDS], key, work->c[C_END]);
    Py_XDECREF(key);
    work->verdict = verdict;
    return work->end;
}

/* The metric cells, `,`-joined; borrowed. */
static PyObject *cells_of(Work *work, PyObject *cells)
{
    if (work->joined && work->cells == cells) return work->joined;
    Py_CLEAR(work->joined);
    work->cells = cells;
    if (PyTuple_CheckExact(cells)) {
        PyObject *comma = PyUnicode_FromString(",");
        work->joined = comma ? PyUnicode_Join(comma, cells) : NULL;
        Py_XDECREF(comma);
    } else {
        work->joined = PyObject_GetAttr(cells, text_text);
    }
    return work->joined;
}

/* The field of the stack of a call, with its comma; borrowed. NULL without an error: there is no such column. */
static PyObject *stack_of(Work *work, PyObject *call)
{
    PyObject *stacks = work->c[C_STACKS], *frames = NULL;
    if (stacks == Py_None) return NULL;
    PyObject *target = PyTuple_GetItem(PyTuple_GetItem(call, PAIR), 0);
    if (PyDict_CheckExact(stacks) && target != Py_None) {
        frames = PyDict_GetItemWithError(stacks, PyTuple_GetItem(target, 0));
        if (frames && PyObject_Size(frames) < 1) frames = NULL; /* then there may be those of the forward call */
        if (PyErr_Occurred()) return NULL;
        if (frames && frames == work->frames) return work->stack;
    }
    Py_XDECREF(work->stack);
    work->stack = PyObject_CallFunctionObjArgs(work->c[C_STACK], call, NULL);
    work->frames = work->stack ? frames : NULL;
    return work->stack;
}

/* Puts a row whose values are numbers. 1: done; 0: Python is to make it, nothing was put; -1: an error is set. */
static int put_row(Work *work, PyObject *row, PyObject *verdict, PyObject *stack)
{
    PyObject *pair = PyTuple_GetItem(row, 0), *measure = PyTuple_GetItem(row, 1);
    PyObject *ours = PyTuple_GetItem(pair, 0), *theirs = PyTuple_GetItem(pair, 1);
    char numbers[NUMBER_ROOM], *end;
    int odd = 0, last_same = work->same;
    PyObject *first = PyTuple_GetItem(ours, STATISTICS), *second = PyTuple_GetItem(theirs, STATISTICS);
    if (!(end = put_statistics(work, first, numbers, &odd))) return -1;
    if (first == second) {
        size_t size = (size_t)(end - numbers);
        memcpy(end, numbers, size);
        end += size;
    } else if (!(end = put_statistics(work, second, end, &odd))) {
        return -1;
    }
    if (odd) return 0;
    Out *out = &work->out;
    size_t used = out->used;
    PyObject *middle = middle_of(work, ours, theirs), *last = middle ? end_of(work, verdict, last_same) : NULL;
    PyObject *cells = last ? cells_of(work, PyTuple_GetItem(measure, 0)) : NULL;
    if (!cells) return -1;
    if (put_name(out, PyTuple_GetItem(ours, NAME)) && put_name(out, PyTuple_GetItem(theirs, NAME)) && put_text(out, middle) &&
        put(out, ",", 1) && put_text(out, cells) && put(out, numbers, (size_t)(end - numbers)) && put_text(out, last) &&
        (!stack || put_text(out, stack)) && put(out, "\n", 1))
        return 1;
    out->used = used;
    if (PyErr_Occurred()) {
        if (!PyErr_ExceptionMatches(PyExc_UnicodeEncodeError)) return -1;
        PyErr_Clear();
    }
    return 0;
}

/* Adds what was put so far to the parts. 0: an error is set. */
static int flush(Work *work, PyObject *parts)
{
    if (!work->out.used) return 1;
    PyObject *text = PyUnicode_DecodeUTF8(work->out.text, (Py_ssize_t)work->out.used, NULL);
    int added = text && PyList_Append(parts, text) == 0;
    Py_XDECREF(text);
    work->out.used = 0;
    return added;
}

static int is_of_both(PyObject *row)
{
    PyObject *pair = PyTuple_GetItem(row, 0);
    return PyTuple_GetItem(row, 1) != Py_None && PyTuple_GetItem(pair, 0) != Py_None && PyTuple_GetItem(pair, 1) != Py_None;
}

/* Adds the lines of a call. 0: an error is set. */
static int add_call(Work *work, PyObject *call, PyObject *verdicts, PyObject *parts)
{
    PyObject *rows = PyTuple_GetItem(call, ROWS), *stack = NULL;
    Py_ssize_t size = PyTuple_Size(rows);
    if (PyTuple_Size(verdicts) != size) {
        if (!PyErr_Occurred()) PyErr_SetString(PyExc_ValueError, "a call has more or fewer rows than verdicts");
        return 0;
    }
    for (Py_ssize_t i = 0; i < size; i++) {
        PyObject *row = PyTuple_GetItem(rows, i), *verdict = PyTuple_GetItem(verdicts, i);
        int done = 0;
        if (i < 2) stack = i == 0 ? stack_of(work, call) : stack ? text_not_available : NULL;
        if (PyErr_Occurred()) return 0;
        if (is_of_both(row)) done = put_row(work, row, verdict, stack);
        if (done < 0) return 0;
        if (done) continue;
        if (!flush(work, parts)) return 0;
        PyObject *line = PyObject_CallFunctionObjArgs(work->c[C_ODD], call, row, verdict, i ? Py_False : Py_True, NULL);
        int added = line && PyList_Append(parts, line) == 0;
        Py_XDECREF(line);
        if (!added) return 0;
    }
    return 1;
}

static const char lines_doc[] =
    "lines(calls, verdicts, context) -> list of str: the lines of the calls, joined as it comes.\n\n"
    "context: (dict of kinds, kind -> text, dict of ends, end -> text, stack.json or None, call -> field of its stack,\n"
    "(call, row, verdict, whether it is the first) -> line, bytes of float64 -> JSON list of them).";

static PyObject *lines(PyObject *module, PyObject *const *args, Py_ssize_t count)
{
    (void)module;
    if (count != 3 || !PyList_CheckExact(args[0]) || !PyList_CheckExact(args[1]) || !PyTuple_CheckExact(args[2]) ||
        PyTuple_Size(args[2]) != CONTEXT || PyList_Size(args[0]) != PyList_Size(args[1])) {
        PyErr_SetString(PyExc_TypeError, "lines takes a list of calls, a list of their verdicts and a context");
        return NULL;
    }
    Work work = {.numbers = NULL};
    PyObject *text = NULL, *parts = PyList_New(0);
    Py_ssize_t calls = PyList_Size(args[0]);
    int done = 0;
    if (!parts) return NULL;
    for (int i = 0; i < CONTEXT; i++) work.c[i] = PyTuple_GetItem(args[2], i);
    for (Py_ssize_t i = 0; i < calls; i++) {
        PyObject *rows = PyTuple_GetItem(PyList_GetItem(args[0], i), ROWS);
        for (Py_ssize_t j = 0; j < PyTuple_Size(rows); j++) {
            PyObject *row = PyTuple_GetItem(rows, j), *pair = PyTuple_GetItem(row, 0);
            if (!is_of_both(row)) continue;
            PyObject *first = PyTuple_GetItem(PyTuple_GetItem(pair, 0), STATISTICS);
            PyObject *second = PyTuple_GetItem(PyTuple_GetItem(pair, 1), STATISTICS);
            if (!collect(&work, first) || (first != second && !collect(&work, second))) goto end;
        }
    }
    if (work.count) {
        char *begin;
        Py_ssize_t size;
        text = PyObject_CallFunction(work.c[C_SPELL], "y#", (char *)work.numbers, (Py_ssize_t)(work.count * sizeof(double)));
        if (!text || PyBytes_AsStringAndSize(text, &begin, &size) < 0) goto end;
        work.at = begin;
        work.stop = begin + size;
    }
    for (Py_ssize_t i = 0; i < calls; i++) {
        if (!add_call(&work, PyList_GetItem(args[0], i), PyList_GetItem(args[1], i), parts)) goto end;
    }
    done = flush(&work, parts);
end:
    if (!done) Py_CLEAR(parts);
    Py_XDECREF(text);
    Py_XDECREF(work.stack);
    Py_XDECREF(work.joined);
    PyMem_Free(work.numbers);
    PyMem_Free(work.out.text);
    return parts;
}

static PyMethodDef methods[] = {
    {"lines", (PyCFunction)(void (*)(void))lines, METH_FASTCALL, lines_doc},
    {NULL, NULL, 0, NULL},
};

static int exec_module(PyObject *module)
{
    (void)module;
    text_not_available = PyUnicode_InternFromString(",N/A");
    text_text = PyUnicode_InternFromString("text");
    return text_not_available && text_text ? 0 : -1;
}

static PyModuleDef_Slot slots[] = {
    {Py_mod_exec, (void *)exec_module},
#ifdef Py_GIL_DISABLED
    {Py_mod_gil, Py_MOD_GIL_NOT_USED},
#endif
    {0, NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "_csv_rows", "Lines of the CSV of a statistics dump.", 0, methods, slots, NULL, NULL, NULL,
};

PyMODINIT_FUNC PyInit__csv_rows(void) { return PyModuleDef_Init(&definition); }
