/* Calls straight from the text of dump.json's entries, for entries as the recorders write them; the fast twin of ujson and
 * `Builder.calls`. This is no JSON parser: what it does not know (an escape, a letter beyond ASCII, a key that comes twice, an unknown
 * key, ...) makes the entry one for ujson and Python. It reads structure only: numbers are turned into floats by orjson, all of a part at
 * once, and what is no tensor is given to Python as text. tests/comparison/test_entries.py holds it against the other way. Stable ABI of
 * CPython 3.10. */
#include "_entries.h"

enum { MAX_DEPTH = 40, MAX_KEYS = 64, MAX_SPANS = 20000 };
enum { C_ROW, C_CALL, C_ROLES, C_SIZES, C_TEXTS, C_SPANS, C_NAME, C_SHAPE, C_OTHER, C_NUMBERS, CONTEXT };

/* (Shape as text, number of elements); a new reference. NULL without an error: out of the ordinary. */
static PyObject *size_of(Scan *s, Text shape)
{
    PyObject *key = PyBytes_FromStringAndSize(shape.at, shape.end - shape.at);
    if (!key) return NULL;
    PyObject *found = PyDict_GetItemWithError(s->walk.sizes, key);
    if (found) {
        Py_INCREF(found);
    } else if (!PyErr_Occurred()) {
        found = PyObject_CallFunctionObjArgs(s->walk.shape, key, NULL);
        if (found == Py_None) Py_CLEAR(found);
        else if (found && PyDict_SetItem(s->walk.sizes, key, found) < 0) Py_CLEAR(found);
    }
    Py_DECREF(key);
    return found;
}

/* A tensor's record behind `{"type": ...`. -1: it is none, and `s->at` is anywhere. 0: it is one for Python, or an error is set. */
static int take_tensor(Scan *s, PyObject *key)
{
    PyObject *value[FIELDS] = {NULL}, *size = NULL;
    Text name, text, shape = {NULL, NULL};
    unsigned seen = 0;
    int done = -1;
    while (take(s, ',')) {
        if (!take_key(s, &name)) goto out;
        int field = 0;
        while (field < FIELDS && !is(name, field_names[field])) field++;
        if (field == DATA_NAME) done = 0; /* its row may have another name */
        if (field >= TYPE || field == DATA_NAME || seen >> field & 1) goto out;
        seen |= 1u << field;
        if (field <= NORM) {
            if (!take_statistic(s, &value[field])) goto out;
        } else if (field == SHAPE) {
            if (!take_shape(s, &shape)) goto out;
        } else {
            skip_space(s);
            PyObject *plain = field == REQUIRES_GRAD ? text_missing : Py_None;
            if (field != DTYPE && take_word(s, "null")) text.at = NULL;
            else if (field == REQUIRES_GRAD && take_word(s, "true")) plain = text_true;
            else if (field == REQUIRES_GRAD && take_word(s, "false")) plain = text_false;
            else if (field == REQUIRES_GRAD || !take_string(s, &text)) goto out;
            else plain = NULL;
            if (s->building && !(value[field] = plain ? Py_NewRef(plain) : unicode(text))) goto out;
        }
    }
    if (!take(s, '}') || !(seen >> DTYPE & 1) || !shape.at) goto out;
    done = 1;
    if (s->building) {
        PyObject *field[FIELDS];
        for (int i = 0; i < FIELDS; i++) field[i] = value[i] ? value[i] : i == REQUIRES_GRAD ? text_missing : Py_None;
        size = size_of(s, shape);
        done = size && add_row(&s->walk, key, field, size);
    }
out:
    for (int i = 0; i < FIELDS; i++) Py_XDECREF(value[i]);
    Py_XDECREF(size);
    return done;
}

/* A row like `like` with another name. */
static PyObject *renamed(Scan *s, PyObject *like, PyObject *key)
{
    PyObject *name = joined(s->walk.entry, key), *row = name ? s->walk.allocate((PyTypeObject *)s->walk.row_type, R_FIELDS) : NULL;
    for (int i = 0; row && i < R_FIELDS; i++) PyTuple_SetItem(row, i, Py_NewRef(i == R_NAME ? name : PyTuple_GetItem(like, i)));
    Py_XDECREF(name);
    return row;
}

static int is_of_word(char sign)
{
    return (sign >= '0' && sign <= '9') || (sign >= 'a' && sign <= 'z') || (sign >= 'A' && sign <= 'Z') || sign == '.' || sign == '+' ||
           sign == '-';
}

/* What is no tensor, no list and no dict: passed up to its end, and read by Python if it is new. */
static int take_other(Scan *s, PyObject *key)
{
    Text text = {s->at, s->at};
    int depth = 0;
    do {
        skip_space(s);
        if (s->at == s->end) return 0;
        char sign = *s->at;
        if (sign == '"') {
            Text string;
            if (!take_string(s, &string)) return 0;
        } else if (sign == ',' && depth == 0) {
            return 0;
        } else if (sign == '}' || sign == ']') {
            if (--depth < 0) return 0;
            s->at++;
        } else if (sign == '{' || sign == '[' || sign == ',' || sign == ':') {
            depth += sign == '{' || sign == '[';
            s->at++;
        } else { /* a number or a word */
            const char *begin = s->at;
            while (s->at < s->end && is_of_word(*s->at)) s->at++;
            if (s->at == begin) return 0;
        }
    } while (depth);
    if (!s->building) return 1;
    text.end = s->at;
    PyObject *span = PyBytes_FromStringAndSize(text.at, text.end - text.at), *known = span ? PyTuple_Pack(2, key, span) : NULL;
    int done = 0;
    if (known) {
        PyObject *like = PyDict_GetItemWithError(s->spans, known), *made = NULL, *row;
        if (!like && !PyErr_Occurred())
            like = made = PyObject_CallFunctionObjArgs(s->walk.other, key, s->walk.role, span, NULL);
        if (made && PyDict_Size(s->spans) >= MAX_SPANS) PyDict_Clear(s->spans);
        if (like && like != Py_NotImplemented && (!made || PyDict_SetItem(s->spans, known, made) == 0)) {
            row = like == Py_None ? Py_NewRef(Py_None) : renamed(s, like, key);
            done = row && (row == Py_None || PyList_Append(s->walk.rows, row) == 0);
            Py_XDECREF(row);
        }
        Py_XDECREF(made);
    }
    Py_XDECREF(span);
    Py_XDECREF(known);
    return done;
}

static int take_value(Scan *s, PyObject *key, int depth);

static int take_child(Scan *s, PyObject *key, Text name, int index, int depth)
{
    if (!s->building) return take_value(s, NULL, depth);
    PyObject *own = name.at ? unicode(name) : index < NUMBERS ? Py_NewRef(numbers[index]) : PyUnicode_FromFormat("%d", index);
    PyObject *longer = own ? joined(key, own) : NULL;
    int done = longer && take_value(s, longer, depth);
    Py_XDECREF(own);
    Py_XDECREF(longer);
    return done;
}

static int take_value(Scan *s, PyObject *key, int depth)
{
    Text name = {NULL, NULL}, names[MAX_KEYS];
    skip_space(s);
    if (s->at == s->end || depth > MAX_DEPTH) return 0;
    if (*s->at == '[') {
        s->at++;
        if (take(s, ']')) return 1;
        for (int index = 0;; index++) {
            if (!take_child(s, key, name, index, depth + 1)) return 0;
            if (!take(s, ',')) return take(s, ']');
        }
    }
    if (*s->at != '{') return take_other(s, key);
    const char *begin = s->at++;
    if (take(s, '}')) return 1;
    for (int count = 0; count < MAX_KEYS; count++) {
        if (!take_key(s, &name) || name.at == name.end) return 0;
        if (is(name, "type")) {
            Text type;
            skip_space(s);
            if (count || !take_string(s, &type)) return 0;
            Py_ssize_t rows = s->building ? PyList_Size(s->walk.rows) : 0, numbers_before = s->count;
            size_t used = s->used;
            int done = take_tensor(s, key);
            if (done >= 0) return done;
            if (PyErr_Occurred() || (s->building && PyList_Size(s->walk.rows) != rows)) return 0;
            s->count = numbers_before;
            s->used = used;
            s->at = begin;
            return take_other(s, key);
        }
        for (int i = 0; i < count; i++) {
            if (same(names[i], name)) return 0;
        }
        names[count] = name;
        if (!take_child(s, key, name, 0, depth + 1)) return 0;
        if (!take(s, ',')) return take(s, '}');
    }
    return 0;
}

/* The parts of an entry, behind its name. 0: it is one for Python, or an error is set. */
static int take_parts(Scan *s)
{
    static const char *const known[] = {"input_args", "input_kwargs", "input", "output", "parameters"};
    unsigned seen = 0;
    if (!take(s, '{')) return 0;
    if (!take(s, '}')) {
        do {
            Text name;
            if (!take_key(s, &name)) return 0;
            int part = 0;
            while (part < 5 && !is(name, known[part])) part++;
            if (part == 5 || seen >> part & 1) return 0;
            seen |= 1u << part;
            skip_space(s);
            if (take_word(s, "null")) continue;
            if (s->building) s->walk.role = PyTuple_GetItem(s->roles, part);
            if (!take_value(s, s->walk.role, 0)) return 0;
        } while (take(s, ','));
        if (!take(s, '}')) return 0;
    }
    skip_space(s);
    return s->at == s->end;
}

/* The name of the entry that the text of `entry` begins with. */
static int take_name(Scan *s, PyObject *entry, Text *name)
{
    char *text;
    Py_ssize_t size;
    if (PyBytes_AsStringAndSize(entry, &text, &size) < 0) return 0;
    s->at = text;
    s->end = text + size;
    return size > 0 && *text == '"' && take_string(s, name) && s->at < s->end && *s->at++ == ':';
}

/* The Call of one entry; None: one for Python. */
static PyObject *made(Scan *s, PyObject *entry, PyObject *like, PyObject *call_type, allocfunc allocate, PyObject *parts_of)
{
    Text text;
    if (!take_name(s, entry, &text)) return NULL;
    PyObject *name = unicode(text), *parts = NULL, *call = NULL;
    if (!name) return NULL;
    PyObject *twin = PyDict_GetItemWithError(like, name), *nothing = PyTuple_New(0);
    s->walk.entry = name;
    s->walk.twins = twin ? PyTuple_GetItem(twin, 2) : nothing;
    s->walk.rows = PyList_New(0);
    if (twin) parts = Py_NewRef(PyTuple_GetItem(twin, 1));
    else if (!PyErr_Occurred()) parts = PyObject_CallFunctionObjArgs(parts_of, name, NULL);
    if (parts && nothing && s->walk.rows) {
        PyObject *direction = PyTuple_GetItem(parts, 1), *rows = NULL;
        int usual = PyUnicode_CompareWithASCIIString(direction, "debug") && PyUnicode_CompareWithASCIIString(direction, "parameters_grad");
        if (usual && take_parts(s)) rows = PyList_AsTuple(s->walk.rows);
        if (rows && (call = allocate((PyTypeObject *)call_type, 3))) {
            PyTuple_SetItem(call, 0, Py_NewRef(name));
            PyTuple_SetItem(call, 1, Py_NewRef(parts));
            PyTuple_SetItem(call, 2, Py_NewRef(rows));
        }
        Py_XDECREF(rows);
        if (!call && !PyErr_Occurred()) call = Py_NewRef(Py_None);
    }
    Py_XDECREF(s->walk.rows);
    Py_XDECREF(nothing);
    Py_XDECREF(parts);
    Py_DECREF(name);
    return call;
}

static const char calls_of_doc[] =
    "calls_of(texts, like, context) -> a list: for each text its Call, None for an entry that ujson and Python are to read.\n\n"
    "texts: list of bytes, `\"name\": {...}` each. like: name -> Call of the other dump. context: (Row, Call, roles of input_args,\n"
    "input_kwargs, input, output and parameters, sizes by text, texts, rows by text, name -> its parts, text -> shape or None,\n"
    "(key, role, text) -> row, None for none or NotImplemented, bytes -> list of numbers or None).";

static PyObject *calls_of(PyObject *module, PyObject *const *args, Py_ssize_t count)
{
    (void)module;
    if (count != 3 || !PyList_CheckExact(args[0]) || !PyDict_CheckExact(args[1]) || !PyTuple_CheckExact(args[2]) ||
        PyTuple_Size(args[2]) != CONTEXT) {
        PyErr_SetString(PyExc_TypeError, "calls_of takes a list of bytes, a dict of calls and a context");
        return NULL;
    }
    PyObject *texts = args[0], *c[CONTEXT], *numbers_read = NULL, *result = NULL;
    for (int i = 0; i < CONTEXT; i++) c[i] = PyTuple_GetItem(args[2], i);
    Py_ssize_t size = PyList_Size(texts);
    Scan s = {.walk = {.row_type = c[C_ROW], .sizes = c[C_SIZES], .texts = c[C_TEXTS], .shape = c[C_SHAPE], .other = c[C_OTHER]},
              .spans = c[C_SPANS], .roles = c[C_ROLES]};
    s.walk.allocate = (allocfunc)PyType_GetSlot((PyTypeObject *)c[C_ROW], Py_tp_alloc);
    allocfunc allocate = (allocfunc)PyType_GetSlot((PyTypeObject *)c[C_CALL], Py_tp_alloc);
    Py_ssize_t *from = PyMem_Malloc(sizeof(Py_ssize_t) * (size_t)(size + 1)); /* where the numbers of each begin; -1: one for Python */
    if (!from || !s.walk.allocate || !allocate) {
        PyErr_NoMemory();
        goto done;
    }
    for (Py_ssize_t i = 0; i < size; i++) {
        Text name;
        Py_ssize_t before = s.count;
        size_t used = s.used;
        from[i] = before;
        if (take_name(&s, PyList_GetItem(texts, i), &name) && take_parts(&s)) continue;
        if (PyErr_Occurred()) goto done;
        s.count = before;
        s.used = used;
        from[i] = -1;
    }
    if (s.count) {
        s.collected[s.used++] = ']'; /* collect leaves room for it */
        numbers_read = PyObject_CallFunction(c[C_NUMBERS], "y#", s.collected, (Py_ssize_t)s.used);
        if (!numbers_read) goto done;
    }
    int usable = !s.count || (PyList_CheckExact(numbers_read) && PyList_Size(numbers_read) == s.count);
    s.numbers = numbers_read;
    s.total = s.count;
    s.building = 1;
    if (!(result = PyList_New(size))) goto done;
    for (Py_ssize_t i = 0; i < size; i++) {
        PyObject *call;
        s.count = from[i];
        if (!usable || from[i] < 0) call = Py_NewRef(Py_None);
        else call = made(&s, PyList_GetItem(texts, i), args[1], c[C_CALL], allocate, c[C_NAME]);
        if (!call) {
            Py_CLEAR(result);
            goto done;
        }
        PyList_SetItem(result, i, call);
    }
done:
    Py_XDECREF(numbers_read);
    PyMem_Free(s.collected);
    PyMem_Free(from);
    return result;
}

static PyMethodDef methods[] = {
    {"calls_of", (PyCFunction)(void (*)(void))calls_of, METH_FASTCALL, calls_of_doc},
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
    PyModuleDef_HEAD_INIT, "_entries", "Calls straight from the text of dump.json's entries.", 0, methods, slots, NULL, NULL, NULL,
};

PyMODINIT_FUNC PyInit__entries(void) { return PyModuleDef_Init(&definition); }
