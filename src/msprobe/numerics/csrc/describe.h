/* The record of a tensor, read through its Python attributes. Nothing of a framework is known here but the names of those attributes.
   Included by _kernels.c after run_summary. */

enum { A_DTYPE, A_IS_CPU, A_IS_NEG, A_IS_CONJ, A_SHAPE, A_DATA_PTR, A_IS_CONTIGUOUS, A_STRIDE, A_REQUIRES_GRAD, A_COUNT };
static const char *const attribute_text[A_COUNT] = {
    "dtype", "is_cpu", "is_neg", "is_conj", "shape", "data_ptr", "is_contiguous", "stride", "requires_grad",
};
static PyObject *attribute[A_COUNT];

enum { K_TYPE, K_DTYPE, K_SHAPE, K_MAX, K_MIN, K_MEAN, K_NORM, K_REQUIRES_GRAD, K_COUNT };
static const char *const key_text[K_COUNT] = {"type", "dtype", "shape", "Max", "Min", "Mean", "Norm", "requires_grad"};
static PyObject *key[K_COUNT];

static int describe_init(void)
{
    for (int k = 0; k < A_COUNT; k++)
        if (!(attribute[k] = PyUnicode_InternFromString(attribute_text[k]))) return 0;
    for (int k = 0; k < K_COUNT; k++)
        if (!(key[k] = PyUnicode_InternFromString(key_text[k]))) return 0;
    return 1;
}

static PyObject *ask(PyObject *tensor, int what) { return PyObject_CallMethodObjArgs(tensor, attribute[what], NULL); }

/* 1: the answer is True; 0: anything else; -1: an error is set. */
static int says_yes(PyObject *answer)
{
    if (!answer) return -1;
    int yes = answer == Py_True;
    Py_DECREF(answer);
    return yes;
}

/* The shape as a list, and the number of elements; NULL with an error set otherwise. */
static PyObject *shape_list(PyObject *shape, int64_t *numel)
{
    Py_ssize_t ndim = PyTuple_Size(shape);
    if (ndim < 0) return NULL;
    PyObject *list = PyList_New(ndim);
    *numel = 1;
    for (Py_ssize_t k = 0; list && k < ndim; k++) {
        PyObject *size = PyTuple_GetItem(shape, k);
        long long n = PyLong_AsLongLong(size);
        if (n < 0) {
            if (!PyErr_Occurred()) PyErr_SetString(PyExc_ValueError, "negative size");
            Py_CLEAR(list);
            break;
        }
        *numel *= n;
        Py_INCREF(size);
        PyList_SetItem(list, k, size);
    }
    return list;
}

/* (Max, Min, Mean, Norm) of the tensor's memory; NULL without an error set where it has none of the plain kind. */
static PyObject *memory_summary(PyObject *tensor, PyObject *shape, long code, int64_t numel)
{
    PyObject *pointer = ask(tensor, A_DATA_PTR);
    if (!pointer) return NULL;
    void *address = PyLong_AsVoidPtr(pointer);
    Py_DECREF(pointer);
    if (PyErr_Occurred() || (!address && numel)) return NULL;
    int contiguous = says_yes(ask(tensor, A_IS_CONTIGUOUS));
    if (contiguous < 0) return NULL;
    if (contiguous) {
        SummaryJob job;
        source_contiguous(&job.source, address, (int)code, numel);
        return run_summary(&job);
    }
    PyObject *strides = ask(tensor, A_STRIDE);
    if (!strides) return NULL;
    PyObject *result = strided_summary(address, code, shape, strides);
    Py_DECREF(strides);
    return result;
}

PyDoc_STRVAR(describe_doc, "describe(tensor, table, /)\n--\n\n"
"The record of a plain strided tensor in host memory, None for every other kind.\n"
"table: dtype object -> (type text, code, dtype text).");

static PyObject *describe(PyObject *self, PyObject *const *args, Py_ssize_t nargs)
{
    (void)self;
    if (!check_nargs("describe", nargs, 2)) return NULL;
    PyObject *tensor = args[0], *values[K_COUNT] = {NULL}, *summary = NULL, *record = NULL, *shape = NULL;
    int64_t numel = 0;
    PyObject *dtype = PyObject_GetAttr(tensor, attribute[A_DTYPE]);
    if (!dtype) goto done;
    PyObject *row = PyDict_GetItemWithError(args[1], dtype);
    Py_DECREF(dtype);
    if (!row) goto done;
    PyObject *type_text = PyTuple_GetItem(row, 0), *code_object = PyTuple_GetItem(row, 1), *dtype_text = PyTuple_GetItem(row, 2);
    if (!type_text || !code_object || !dtype_text) goto done;
    long code = PyLong_AsLong(code_object);
    if (!check_code(code)) goto done;
    if (says_yes(PyObject_GetAttr(tensor, attribute[A_IS_CPU])) != 1) goto done;
    if (says_yes(ask(tensor, A_IS_NEG)) != 0) goto done;
    if ((code == C_C32 || code == C_C64 || code == C_C128) && says_yes(ask(tensor, A_IS_CONJ)) != 0) goto done;
    shape = PyObject_GetAttr(tensor, attribute[A_SHAPE]);
    if (!shape) goto done;
    values[K_SHAPE] = shape_list(shape, &numel);
    if (!values[K_SHAPE]) goto done;
    summary = memory_summary(tensor, shape, code, numel);
    if (!summary) goto done;
    values[K_REQUIRES_GRAD] = PyObject_GetAttr(tensor, attribute[A_REQUIRES_GRAD]);
    if (!values[K_REQUIRES_GRAD]) goto done;
    Py_INCREF(type_text);
    values[K_TYPE] = type_text;
    Py_INCREF(dtype_text);
    values[K_DTYPE] = dtype_text;
    for (int k = 0; k < 4; k++) {
        PyObject *value = PyTuple_GetItem(summary, k);
        Py_XINCREF(value);
        values[K_MAX + k] = value;
    }
    record = PyDict_New();
    for (int k = 0; record && k < K_COUNT; k++)
        if (!values[k] || PyDict_SetItem(record, key[k], values[k]) < 0) Py_CLEAR(record);
done:
    for (int k = 0; k < K_COUNT; k++) Py_XDECREF(values[k]);
    Py_XDECREF(summary);
    Py_XDECREF(shape);
    if (record) return record;
    /* Whatever kind of tensor refused an answer: the caller has a slower way that finds out. */
    if (PyErr_Occurred() && PyErr_ExceptionMatches(PyExc_Exception)) PyErr_Clear();
    return PyErr_Occurred() ? NULL : none();
}
