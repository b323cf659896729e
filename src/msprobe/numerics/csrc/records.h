/* What records of tensors are made of. */
#ifndef MSPROBE_RECORDS_H
#define MSPROBE_RECORDS_H

enum { K_TYPE, K_DTYPE, K_SHAPE, K_MAX, K_MIN, K_MEAN, K_NORM, K_REQUIRES_GRAD, K_MD5, K_COUNT };
static const char *const key_text[K_COUNT] = {"type", "dtype", "shape", "Max", "Min", "Mean", "Norm", "requires_grad", "md5"};
static PyObject *key[K_COUNT];

/* What a record holds beside its structure: the last element of a table's row. */
enum { HOLDS_STATISTICS, HOLDS_STATISTICS_AND_CRC32, HOLDS_XOR, HOLDS_NULLS, HOLDS_COUNT };
/* The keys of a record in their order, each list ended by -1. */
static const int keys_of[HOLDS_COUNT][K_COUNT + 1] = {
    {K_TYPE, K_DTYPE, K_SHAPE, K_MAX, K_MIN, K_MEAN, K_NORM, K_REQUIRES_GRAD, -1},
    {K_TYPE, K_DTYPE, K_SHAPE, K_MAX, K_MIN, K_MEAN, K_NORM, K_REQUIRES_GRAD, K_MD5, -1},
    {K_TYPE, K_DTYPE, K_SHAPE, K_MD5, K_REQUIRES_GRAD, -1},
    {K_TYPE, K_DTYPE, K_SHAPE, K_MAX, K_MIN, K_MEAN, K_NORM, K_REQUIRES_GRAD, -1},
};

static int records_init(void)
{
    for (int k = 0; k < K_COUNT; k++)
        if (!(key[k] = PyUnicode_InternFromString(key_text[k]))) return 0;
    return 1;
}

/* Lists of the shapes met lately. Records of one shape share a list, which nobody changes. */
enum { SHAPES = 256, SHAPE_DIMS = 6 };
static struct {
    int ndim;
    int64_t shape[SHAPE_DIMS];
    PyObject *list;
} met[SHAPES];

static PyObject *new_shape_list(const Memory *memory)
{
    PyObject *list = PyList_New(memory->ndim);
    for (int k = 0; list && k < memory->ndim; k++) {
        PyObject *size = PyLong_FromLongLong(memory->shape[k]);
        if (!size || PyList_SetItem(list, k, size) < 0) Py_CLEAR(list);
    }
    return list;
}

static PyObject *shape_list(const Memory *memory)
{
    if (memory->ndim > SHAPE_DIMS) return new_shape_list(memory);
    uint64_t hash = (uint64_t)memory->ndim;
    for (int k = 0; k < memory->ndim; k++) hash = (hash ^ (uint64_t)memory->shape[k]) * 0x9E3779B97F4A7C15u;
    unsigned at = (unsigned)(hash >> 32) % SHAPES;
    size_t size = (size_t)memory->ndim * sizeof *memory->shape;
    if (!met[at].list || met[at].ndim != memory->ndim || memcmp(met[at].shape, memory->shape, size) != 0) {
        PyObject *list = new_shape_list(memory), *before = met[at].list;
        if (!list) return NULL;
        met[at].ndim = memory->ndim;
        memcpy(met[at].shape, memory->shape, size);
        met[at].list = list;
        Py_XDECREF(before);
    }
    Py_INCREF(met[at].list);
    return met[at].list;
}

/* Records of the rows of tables used lately, with what the row tells in place and None for the rest: copying one and replacing the Nones
   is cheaper than adding key after key. */
enum { ROWS = 64 };
static struct {
    PyObject *row, *record;
} blank[ROWS];

static PyObject *new_blank(PyObject *row, int holds)
{
    PyObject *record = PyDict_New();
    for (const int *k = keys_of[holds]; record && *k >= 0; k++) {
        PyObject *value = *k == K_TYPE ? PyTuple_GetItem(row, 0) : *k == K_DTYPE ? PyTuple_GetItem(row, 2) : Py_None;
        if (!value || PyDict_SetItem(record, key[*k], value) < 0) Py_CLEAR(record);
    }
    return record;
}

/* A new record of a tensor whose dtype has this row, which says that it holds that. */
static PyObject *begin_record(PyObject *row, int holds)
{
    unsigned at = (unsigned)((uintptr_t)row >> 4) % ROWS;
    if (blank[at].row != row) {
        PyObject *record = new_blank(row, holds), *row_before = blank[at].row, *record_before = blank[at].record;
        if (!record) return NULL;
        Py_INCREF(row);
        blank[at].row = row;
        blank[at].record = record;
        Py_XDECREF(row_before);
        Py_XDECREF(record_before);
    }
    return PyDict_Copy(blank[at].record);
}

#endif
