/* Entries on their way to the writer (`StepWriter`), and the records in them. */
#ifndef MSPROBE_ENTRIES_H
#define MSPROBE_ENTRIES_H

#include "keeping.h"

enum { READY = 24 }; /* step_writer._READY */

/* Appends to one of the writer's lists, unless the writer has been closed: then something that keeps nothing stands there.
   Takes the item; 0 with an error set. */
static int put(PyObject *writer, PyObject *list_name, PyObject *item)
{
    PyObject *list = item ? PyObject_GetAttr(writer, list_name) : NULL;
    int ok = list && (!PyList_CheckExact(list) || PyList_Append(list, item) == 0);
    Py_XDECREF(list);
    Py_XDECREF(item);
    return ok;
}

/* The type's instances are the structs of entry.h; set_up refuses any other. */
static int is_entry_class(PyObject *type)
{
    PyObject *version = PyObject_GetAttrString(type, ENTRY_ATTRIBUTE);
    int same = version && PyLong_AsLong(version) == ENTRY_VERSION;
    Py_XDECREF(version);
    PyErr_Clear();
    return same;
}

/* StepWriter.finish: the entry is final. */
static int entry_finish(PyObject *writer, PyObject *entry)
{
    PyObject *ready = PyObject_GetAttr(writer, n__ready);
    ((Entry *)entry)->done = 1;
    int ok = ready && (!PyList_CheckExact(ready) || PyList_Append(ready, entry) == 0);
    if (ok && PyList_Size(ready) >= READY) {
        PyObject *encoded = PyObject_CallMethodObjArgs(writer, n__encode_ready, NULL);
        ok = encoded != NULL;
        Py_XDECREF(encoded);
    }
    Py_XDECREF(ready);
    return ok;
}

/* StepWriter.add: a new entry, with its data; `done` makes it final. NULL with an error set. */
static PyObject *entry_add(PyObject *writer, PyObject *name, PyObject *data, int done, int ordinary)
{
    PyObject *object = PyObject_CallFunctionObjArgs(entry_class, name, data, Py_False, NULL);
    if (!object) return NULL;
    ((Entry *)object)->ordinary = (char)ordinary;
    Py_INCREF(object);
    if ((done && !entry_finish(writer, object)) || !put(writer, n__entries, object)) {
        Py_DECREF(object);
        return NULL;
    }
    return object;
}

/* Appends several items, which are borrowed, to such a list: all or none of them. */
static int put_each(PyObject *writer, PyObject *list_name, PyObject *const *items, int count)
{
    PyObject *list = PyObject_GetAttr(writer, list_name);
    int ok = list != NULL;
    if (list && PyList_CheckExact(list)) {
        Py_ssize_t before = PyList_Size(list);
        for (int k = 0; ok && k < count; k++) ok = items[k] && PyList_Append(list, items[k]) == 0;
        if (!ok) PyList_SetSlice(list, before, PyList_Size(list), NULL);
    }
    Py_XDECREF(list);
    return ok;
}

/* StepWriter.add_call: a line of construct.json. */
static int add_call(PyObject *writer, PyObject *name, PyObject *parent)
{
    PyObject *const line[] = {name, parent};
    return put_each(writer, n__calls, line, 2);
}

/* StepWriter.add_stack: a name in stack.json. */
static int add_stack(PyObject *writer, PyObject *name, PyObject *stack)
{
    PyObject *text = PyObject_GetAttr(stack, n_text);
    PyObject *const line[] = {name, stack, text};
    int ok = text && put_each(writer, n__stacks, line, 3);
    Py_XDECREF(text);
    return ok;
}

/* --- records of one side of a call ---------------------------------------------------------------------------------------------------- */
/* Where the encoder has something that saves, the values of all tensors are kept. Values that are no plain tensor, number or text go to Python's encoder with a `Side`, made when the first of them comes. */
typedef struct {
    Encoding encoding;
    PyObject *encoder, *entry, *role; /* borrowed */
    PyObject *side;
    int keyword;
} Records;

static PyObject *record_by_encoder(Encoding *encoding, PyObject *value, PyObject *name)
{
    Records *records = (Records *)encoding->context;
    if (!records->side) {
        PyObject *side = PyObject_CallFunctionObjArgs(side_class, records->entry, records->role, encoding->keep ? Py_True : Py_False, NULL);
        if (side && records->encoding.leaves && PyObject_SetAttr(side, n_leaves, records->encoding.leaves) < 0) Py_CLEAR(side);
        if (!side) return NULL;
        records->side = side;
    }
    Quiet quiet = {NULL};
    PyObject *context = call0(no_torch_function), *entered = NULL, *record = NULL;
    if (context) entered = PyObject_CallMethodObjArgs(context, n___enter__, NULL);
    if (entered) {
        quiet.context = context;
        if (records->keyword) {
            record = PyObject_CallMethodObjArgs(records->encoder, n__keyword_value, name, value, records->side, NULL);
        } else {
            PyObject *text = PyObject_Str(name), *path = text ? PyTuple_Pack(1, text) : NULL;
            if (path) record = PyObject_CallMethodObjArgs(records->encoder, n_value, value, path, records->side, NULL);
            Py_XDECREF(text);
            Py_XDECREF(path);
        }
        quiet_end(&quiet);
        Py_DECREF(entered);
    } else {
        Py_XDECREF(context);
    }
    return record;
}

static int keep_by_saver(Encoding *encoding, PyObject *tensor, PyObject *record, PyObject *name, const void *address, long long bytes)
{
    const Records *records = (const Records *)encoding->context;
    return keep_values(records->encoder, records->entry, records->role, tensor, record, name, address, bytes);
}

/* Everything is borrowed. `leaves`: a list, or NULL. */
static void records_begin(Records *records, PyObject *encoder, PyObject *table, PyObject *entry, PyObject *role, PyObject *leaves)
{
    *records = (Records){.encoder = encoder, .entry = entry, .role = role};
    records->encoding = (Encoding){.classes = tensor_classes, .table = table, .leaves = leaves, .other = record_by_encoder, .ordinary = 1};
    records->encoding.context = records;
    if (is_attribute(encoder, n__save, Py_None)) return;
    records->encoding.keep = keep_by_saver;
    records->encoding.ordinary = 0; /* as in Python, where the values of each tensor are looked at one by one */
}

/* The values that follow stand in another part of the entry. 0 with an error set. */
static int records_role(Records *records, PyObject *role)
{
    records->role = role;
    return !records->side || PyObject_SetAttr(records->side, n_role, role) == 0;
}

/* After the last value; 0 with an error set. */
static int records_end(Records *records, int ok)
{
    if (records->side && ok) {
        PyObject *count = PyObject_GetAttr(records->side, n_tensors);
        long more = count ? PyLong_AsLong(count) : -1;
        Py_XDECREF(count);
        ok = !(more == -1 && PyErr_Occurred());
        records->encoding.tensors += ok ? more : 0;
    }
    Py_CLEAR(records->side);
    return ok;
}

static PyObject *positional_records(Records *records, PyObject *values)
{
    records->keyword = 0;
    return kernels->each(&records->encoding, values);
}

static PyObject *keyword_records(Records *records, PyObject *values)
{
    records->keyword = 1;
    return kernels->items(&records->encoding, values);
}

/* One gradient, as Encoder.gradient records it. */
static PyObject *gradient_record(Records *records, PyObject *gradient, PyObject *slot)
{
    records->keyword = 0;
    return kernels->value(&records->encoding, gradient, slot);
}

#endif
