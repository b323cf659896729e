/* Records of values: of tensors, read through their Python attributes, and of plain numbers and texts. Nothing of a framework is known here but the names of those attributes.
   Included by _kernels.c after run_summary. */

#include <math.h>

#include "digest.h"
#include "shared.h"

#include "records.h"

static PyObject *memory_digest(int kind, const Memory *memory, int code); /* checksum.h */

enum { W_BOOL, W_INT, W_FLOAT, W_STR, W_COUNT };
static const char *const class_text[W_COUNT] = {"bool", "int", "float", "str"};
static PyObject *class_word[W_COUNT], *value_key, *special_key[3];

static int describe_init(void)
{
    for (int k = 0; k < W_COUNT; k++)
        if (!(class_word[k] = PyUnicode_InternFromString(class_text[k]))) return 0;
    if (!(value_key = PyUnicode_InternFromString("value"))) return 0;
    if (!(special_key[0] = PyUnicode_InternFromString("dtype"))) return 0;
    if (!(special_key[1] = PyUnicode_InternFromString("output_dtype"))) return 0;
    if (!(special_key[2] = PyUnicode_InternFromString("device"))) return 0;
    return records_init();
}

PyDoc_STRVAR(describe_doc, "describe(tensor, table, /)\n--\n\n"
"The record of a plain strided tensor in host memory, None for every other kind.\n"
"table: dtype object -> (type text, code, dtype text[, what it holds]). It holds 0 or nothing: Max, Min, Mean, Norm; 1: and md5, the CRC-32;\n"
"2: md5 alone, the XOR; 3: four None. With something under \"exchange\", the class of a tensor is asked first for DLPack's exchange\n"
"API, which tells faster where its elements lie than its attributes do.");

static int holds_of(PyObject *row)
{
    if (PyTuple_Size(row) < 4) return HOLDS_STATISTICS;
    long holds = PyLong_AsLong(PyTuple_GetItem(row, 3));
    if (holds >= 0 && holds < HOLDS_COUNT) return (int)holds;
    if (!PyErr_Occurred()) PyErr_Format(PyExc_ValueError, "a record cannot hold %ld", holds);
    return -1;
}

/* What was found out about a tensor on the way to its record. */
typedef struct {
    int leaf;            /* it requires grad */
    const void *address; /* where its elements lie side by side; NULL where they do not */
    int64_t numel, bytes;
} Found;

/* The record; NULL with an error set, or without one for a tensor of another kind. */
static PyObject *tensor_record(PyObject *tensor, PyObject *table, Found *found)
{
    PyObject *values[K_COUNT] = {NULL}, *record = NULL;
    Memory memory;
    PyObject *dtype = PyObject_GetAttr(tensor, attribute[A_DTYPE]);
    if (!dtype) goto done;
    PyObject *row = PyDict_GetItemWithError(table, dtype);
    Py_DECREF(dtype);
    if (!row) goto done;
    PyObject *code_object = PyTuple_GetItem(row, 1);
    if (!code_object) goto done;
    long code = PyLong_AsLong(code_object);
    int holds = holds_of(row);
    if (holds < 0 || !check_code(code)) goto done;
    int exchange = PyDict_GetItemWithError(table, exchange_key) != NULL;
    if (!(exchange && memory_by_exchange(&memory, tensor)) && !memory_by_attributes(&memory, tensor)) goto done;
    if (says_yes(ask(tensor, A_IS_NEG)) != 0) goto done;
    if (is_complex((int)code) && says_yes(ask(tensor, A_IS_CONJ)) != 0) goto done;
    if (!memory_suffices(tensor, &memory, ITEM_SIZE[code])) goto done;
    if (!(values[K_SHAPE] = shape_list(&memory))) goto done;
    if (holds == HOLDS_STATISTICS_AND_CRC32 || holds == HOLDS_XOR) {
        values[K_MD5] = memory_digest(holds == HOLDS_XOR ? DIGEST_XOR : DIGEST_CRC32, &memory, (int)code);
        if (!values[K_MD5]) goto done;
    }
    if (holds != HOLDS_NULLS && holds != HOLDS_XOR && !memory_summary(&memory, (int)code, values + K_MAX)) goto done;
    values[K_REQUIRES_GRAD] = PyObject_GetAttr(tensor, attribute[A_REQUIRES_GRAD]);
    if (!values[K_REQUIRES_GRAD]) goto done;
    *found = (Found){values[K_REQUIRES_GRAD] == Py_True, memory.packed ? memory.address : NULL, memory.numel, memory.numel * ITEM_SIZE[code]};
    record = begin_record(row, holds);
    for (int k = 0; record && k < K_COUNT; k++)
        if (values[k] && PyDict_SetItem(record, key[k], values[k]) < 0) Py_CLEAR(record);
done:
    for (int k = 0; k < K_COUNT; k++) Py_XDECREF(values[k]);
    if (record) return record;
    /* Whatever kind of tensor refused an answer: the caller has a slower way that finds out. */
    if (PyErr_Occurred() && PyErr_ExceptionMatches(PyExc_Exception)) PyErr_Clear();
    return NULL;
}

static PyObject *describe(PyObject *self, PyObject *const *args, Py_ssize_t nargs)
{
    (void)self;
    Found found;
    if (!check_nargs("describe", nargs, 2)) return NULL;
    PyObject *record = tensor_record(args[0], args[1], &found);
    return record || PyErr_Occurred() ? record : none();
}

/* --- whole sides of a call -------------------------------------------------------------------------------------------------------- */
/* {"type": the class's name, "value": value} of an exact bool, int (of 64 bits), float or str; NULL without an error for others. */
static PyObject *plain_record(PyObject *value)
{
    PyTypeObject *class = Py_TYPE(value);
    int word = class == &PyFloat_Type ? W_FLOAT : class == &PyBool_Type ? W_BOOL : class == &PyUnicode_Type ? W_STR : -1;
    if (class == &PyLong_Type) {
        int overflow;
        PyLong_AsLongLongAndOverflow(value, &overflow);
        if (!overflow) word = W_INT;
    }
    if (word < 0) return NULL;
    PyObject *record = PyDict_New();
    if (record && (PyDict_SetItem(record, key[K_TYPE], class_word[word]) < 0 || PyDict_SetItem(record, value_key, value) < 0))
        Py_CLEAR(record);
    return record;
}

/* 0: NaN or an infinite number. */
static int is_ordinary(PyObject *value)
{
    return Py_TYPE(value) != &PyFloat_Type || isfinite(PyFloat_AsDouble(value));
}

static int is_ordinary_tensor(PyObject *record)
{
    for (int k = K_MAX; k <= K_NORM; k++) {
        PyObject *value = PyDict_GetItem(record, key[k]);
        if (value && !is_ordinary(value)) return 0;
    }
    return 1;
}

static PyObject *value_record(Encoding *encoding, PyObject *value, PyObject *name)
{
    if (!is_ordinary(value)) encoding->ordinary = 0;
    if (value == Py_None) return none();
    PyObject *class = (PyObject *)Py_TYPE(value), *record = NULL;
    if (class == PyTuple_GetItem(encoding->classes, 0) || class == PyTuple_GetItem(encoding->classes, 1)) {
        Found found = {0};
        record = tensor_record(value, encoding->table, &found);
        if (record) {
            encoding->tensors++;
            if (!is_ordinary_tensor(record)) encoding->ordinary = 0;
        }
        if (record && found.leaf && encoding->leaves && PyList_Append(encoding->leaves, value) < 0) Py_CLEAR(record);
        if (record && encoding->keep && found.numel && !encoding->keep(encoding, value, record, name, found.address, found.bytes))
            Py_CLEAR(record);
    } else {
        record = plain_record(value);
    }
    if (record || PyErr_Occurred()) return record;
    encoding->ordinary = 0;
    return encoding->other(encoding, value, name);
}

/* `other` is something that Python calls. */
static PyObject *other_by_python(Encoding *encoding, PyObject *value, PyObject *name)
{
    return PyObject_CallFunctionObjArgs((PyObject *)encoding->context, value, name, NULL);
}

static int read_encoding(const char *name, Encoding *encoding, PyObject *const *args, Py_ssize_t nargs)
{
    if (!check_nargs(name, nargs, 5)) return 0;
    *encoding = (Encoding){.classes = args[1], .table = args[2], .leaves = args[3], .other = other_by_python, .context = args[4], .ordinary = 1};
    if (PyTuple_Check(args[1]) && PyTuple_Size(args[1]) == 2 && PyList_Check(args[3])) return 1;
    PyErr_Format(PyExc_TypeError, "%s() takes two classes and a list", name);
    return 0;
}

static PyObject *with_counts(PyObject *records, const Encoding *encoding) /* takes the records */
{
    PyObject *count = records ? PyLong_FromLong(encoding->tensors) : NULL;
    PyObject *result = count ? PyTuple_Pack(3, records, count, encoding->ordinary ? Py_True : Py_False) : NULL;
    Py_XDECREF(records);
    Py_XDECREF(count);
    return result;
}

static PyObject *records_of_each(Encoding *encoding, PyObject *values)
{
    Py_ssize_t count = PyTuple_Size(values);
    PyObject *records = count < 0 ? NULL : PyList_New(count);
    for (Py_ssize_t k = 0; records && k < count; k++) {
        PyObject *position = PyLong_FromSsize_t(k);
        PyObject *record = position ? value_record(encoding, PyTuple_GetItem(values, k), position) : NULL;
        Py_XDECREF(position);
        if (!record || PyList_SetItem(records, k, record) < 0) Py_CLEAR(records);
    }
    return records;
}

static PyObject *records_of_items(Encoding *encoding, PyObject *values)
{
    PyObject *records = PyDict_Check(values) ? PyDict_New() : NULL, *name, *value;
    if (!records && !PyErr_Occurred()) PyErr_SetString(PyExc_TypeError, "describe_items() takes a dict");
    PyObject *items = records ? PyDict_Items(values) : NULL; /* a copy: what is looked at may change the dict */
    if (!items) Py_CLEAR(records);
    for (Py_ssize_t k = 0; records && k < PyList_Size(items); k++) {
        PyObject *pair = PyList_GetItem(items, k);
        name = PyTuple_GetItem(pair, 0);
        value = PyTuple_GetItem(pair, 1);
        int special = PyUnicode_Check(name) && (PyUnicode_Compare(name, special_key[0]) == 0 || PyUnicode_Compare(name, special_key[1]) == 0
                                                || PyUnicode_Compare(name, special_key[2]) == 0);
        PyObject *class = (PyObject *)Py_TYPE(value);
        int tensor = class == PyTuple_GetItem(encoding->classes, 0) || class == PyTuple_GetItem(encoding->classes, 1);
        if (special && !tensor) encoding->ordinary = 0;
        PyObject *record = special && !tensor && value != Py_None ? encoding->other(encoding, value, name)
                                                                  : value_record(encoding, value, name);
        if (!record || PyDict_SetItem(records, name, record) < 0) Py_CLEAR(records);
        Py_XDECREF(record);
    }
    Py_XDECREF(items);
    return records;
}

static SharedKernels shared_kernels = {SHARED_VERSION, records_of_each, records_of_items, value_record};

PyDoc_STRVAR(describe_each_doc, "describe_each(values, classes, table, leaves, other, /)\n--\n\n"
"(records, number of tensors, ordinary) of the values of a tuple; ordinary: no record can hold NaN or an infinite number.\n"
"classes: the two classes of tensors that `describe` takes. leaves: a list that gets the tensors that require grad.\n"
"other(value, position): makes the record of every value that is neither such a tensor, nor None, nor a plain number or text.");

static PyObject *describe_each(PyObject *self, PyObject *const *args, Py_ssize_t nargs)
{
    (void)self;
    Encoding encoding;
    if (!read_encoding("describe_each", &encoding, args, nargs)) return NULL;
    return with_counts(records_of_each(&encoding, args[0]), &encoding);
}

PyDoc_STRVAR(describe_items_doc, "describe_items(values, classes, table, leaves, other, /)\n--\n\n"
"Like describe_each, of a dict's values, by their keys. Values under the keys dtype, output_dtype and device are others, unless they are\n"
"tensors or None.");

static PyObject *describe_items(PyObject *self, PyObject *const *args, Py_ssize_t nargs)
{
    (void)self;
    Encoding encoding;
    if (!read_encoding("describe_items", &encoding, args, nargs)) return NULL;
    return with_counts(records_of_items(&encoding, args[0]), &encoding);
}
