/* Where the elements of a tensor lie. Included by _kernels.c after its helpers, before what reads the elements. */
#include "exchange.h"

/* In elements, outermost first. */
typedef struct {
    void *address;
    int ndim, packed; /* packed: the elements lie side by side, and the strides need not be looked at */
    int64_t numel;    /* 0 if a dimension is empty */
    int64_t shape[MAX_DIMS], strides[MAX_DIMS];
} Memory;

/* Answers that a tensor gives of itself. */
enum { A_DTYPE, A_IS_CPU, A_IS_NEG, A_IS_CONJ, A_SHAPE, A_DATA_PTR, A_IS_CONTIGUOUS, A_STRIDE, A_REQUIRES_GRAD, A_UNTYPED_STORAGE, A_NBYTES,
       A_STORAGE_OFFSET, A_COUNT };
static const char *const attribute_text[A_COUNT] = {
    "dtype", "is_cpu", "is_neg", "is_conj", "shape", "data_ptr", "is_contiguous", "stride", "requires_grad", "untyped_storage", "nbytes",
    "storage_offset",
};
static PyObject *attribute[A_COUNT], *exchange_key, *exchange_attribute;

static int memory_init(void)
{
    for (int k = 0; k < A_COUNT; k++)
        if (!(attribute[k] = PyUnicode_InternFromString(attribute_text[k]))) return 0;
    return (exchange_key = PyUnicode_InternFromString("exchange"))
        && (exchange_attribute = PyUnicode_InternFromString("__dlpack_c_exchange_api__"));
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

static int64_t ask_number(PyObject *object, int what) /* -1: an error is set */
{
    PyObject *answer = ask(object, what);
    long long number = answer ? PyLong_AsLongLong(answer) : -1;
    Py_XDECREF(answer);
    return number;
}

/* One int64 of a tuple that is not negative. */
static int size_at(PyObject *tuple, Py_ssize_t k, const char *what, int64_t *out)
{
    PyObject *item = PyTuple_GetItem(tuple, k);
    if (!item) return 0;
    long long n = PyLong_AsLongLong(item);
    if (n < 0 && !PyErr_Occurred()) PyErr_Format(PyExc_ValueError, "dimension %zd has %s %lld; it may not be negative", k, what, n);
    *out = n;
    return n >= 0;
}

/* The number of elements, once ndim and shape are known; 0 with an error set where it cannot be counted. */
static int count_elements(Memory *m)
{
    double total = 1;
    int empty = 0;
    m->numel = 1;
    for (int k = 0; k < m->ndim; k++) {
        if (m->shape[k] == 0) empty = 1;
        else total *= (double)m->shape[k];
        if (total > 0x1p62) {
            PyErr_SetString(PyExc_ValueError, "more elements than 62 bits can count");
            return 0;
        }
        m->numel *= m->shape[k];
    }
    if (empty) m->numel = 0;
    return 1;
}

/* Fills *m; strides NULL: the elements lie side by side. 0 with an error set otherwise. */
static int memory_of_tuples(Memory *m, void *address, PyObject *shape, PyObject *strides)
{
    Py_ssize_t ndim = PyTuple_Size(shape), nstrides = strides ? PyTuple_Size(strides) : ndim;
    if (ndim < 0 || nstrides < 0) return 0;
    if (ndim != nstrides) {
        PyErr_Format(PyExc_ValueError, "shape has %zd dimensions and strides has %zd", ndim, nstrides);
        return 0;
    }
    if (ndim > MAX_DIMS) {
        PyErr_SetString(PyExc_ValueError, "more than 64 dimensions");
        return 0;
    }
    m->address = address;
    m->ndim = (int)ndim;
    m->packed = strides == NULL;
    for (Py_ssize_t k = 0; k < ndim; k++)
        if (!size_at(shape, k, "size", &m->shape[k]) || (strides && !size_at(strides, k, "stride", &m->strides[k]))) return 0;
    return count_elements(m);
}

/* From what the tensor's class offers to programs in C, without a call of Python; 0 without an error where that does not tell. */
static int memory_by_exchange(Memory *m, PyObject *tensor)
{
    Exchanged given;
    PyObject *capsule = PyObject_GetAttr((PyObject *)Py_TYPE(tensor), exchange_attribute);
    int told = capsule && exchange_read(capsule, tensor, &given);
    Py_XDECREF(capsule);
    if (!told) PyErr_Clear();
    if (!told || given.ndim > MAX_DIMS) return 0;
    int64_t next = 1;
    m->address = given.address;
    m->ndim = given.ndim;
    m->packed = 1;
    for (int k = given.ndim - 1; k >= 0; k--) {
        int64_t size = given.shape[k], stride = given.strides ? given.strides[k] : next;
        if (size < 0 || stride < 0) return 0;
        m->shape[k] = size;
        m->strides[k] = stride;
        if (size != 1 && stride != next) m->packed = 0;
        next *= size ? size : 1;
    }
    if (!count_elements(m)) {
        PyErr_Clear();
        return 0;
    }
    if (!m->numel) m->packed = 1;
    return m->address || !m->numel;
}

/* From the tensor's own attributes; 0, with an error set or without: it has no memory of the plain kind. */
static int memory_by_attributes(Memory *m, PyObject *tensor)
{
    PyObject *shape = NULL, *strides = NULL;
    int found = 0;
    if (says_yes(PyObject_GetAttr(tensor, attribute[A_IS_CPU])) != 1) return 0;
    PyObject *pointer = ask(tensor, A_DATA_PTR);
    if (!pointer) return 0;
    void *address = PyLong_AsVoidPtr(pointer);
    Py_DECREF(pointer);
    if (!address && PyErr_Occurred()) return 0;
    int packed = says_yes(ask(tensor, A_IS_CONTIGUOUS));
    if (packed == 0) strides = ask(tensor, A_STRIDE);
    if (packed == 1 || strides) shape = PyObject_GetAttr(tensor, attribute[A_SHAPE]);
    if (shape) found = memory_of_tuples(m, address, shape, strides) && (address || !m->numel);
    Py_XDECREF(shape);
    Py_XDECREF(strides);
    return found;
}

/* How many elements lie between the first and the last one, both included. */
static int64_t memory_extent(const Memory *m)
{
    if (m->packed || !m->numel) return m->numel;
    int64_t last = 0;
    for (int k = 0; k < m->ndim; k++) last += (m->shape[k] - 1) * m->strides[k];
    return last + 1;
}

/* Whether the storage is as large as shape and strides say: somebody may have shrunk it. Small ones are not asked, it takes time. */
enum { ASKED_FROM = 1 << 16 };

static int memory_suffices(PyObject *tensor, const Memory *m, int item)
{
    int64_t elements = memory_extent(m);
    if (elements < ASKED_FROM / item) return 1;
    PyObject *storage = ask(tensor, A_UNTYPED_STORAGE);
    int64_t bytes = storage ? ask_number(storage, A_NBYTES) : -1, offset = bytes < 0 ? -1 : ask_number(tensor, A_STORAGE_OFFSET);
    Py_XDECREF(storage);
    return offset >= 0 && offset + elements <= bytes / item;
}

/* The elements as something to walk over, in the order of the indices. count: see source_add_dim. 0 with an error set otherwise. */
static int memory_source(const Memory *m, Source *s, int code, int count)
{
    source_contiguous(s, m->address, code, m->packed ? m->numel : 1);
    if (!m->packed) {
        s->ndim = 0;
        for (int k = 0; k < m->ndim; k++) source_add_dim(s, m->shape[k], m->strides[k], count);
        if (!m->numel) s->numel = 0;
        source_merge(s);
    }
    return check_address(m->address, s->numel);
}

static int run_summary(SummaryJob *job, PyObject **four);

/* Max, Min, Mean and Norm of the elements, new references; 0 with an error set, and none of them there. */
static int memory_summary(const Memory *m, int code, PyObject **four)
{
    SummaryJob job;
    return memory_source(m, &job.source, code, m->numel > WALK_UP_TO) && run_summary(&job, four);
}
