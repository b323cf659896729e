/* One-pass statistics over raw memory: the Python face of csrc/.
   Stable ABI of CPython 3.10, so that one wheel serves every later version. */
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "csrc/summary.h"

static int check_code(long code)
{
    if (code >= 0 && code < C_COUNT) return 1;
    if (!PyErr_Occurred()) PyErr_Format(PyExc_ValueError, "dtype code %ld is not one of 0..%d", code, C_COUNT - 1);
    return 0;
}

static int check_nargs(const char *name, Py_ssize_t got, int wanted)
{
    if (got == wanted) return 1;
    PyErr_Format(PyExc_TypeError, "%s() takes %d positional arguments, not %zd", name, wanted, got);
    return 0;
}

/* Tensors without memory of their own (meta, wrapper subclasses) answer 0 when asked for their address. */
static int check_address(const void *address, int64_t numel)
{
    if (address || numel == 0) return 1;
    if (!PyErr_Occurred()) PyErr_Format(PyExc_ValueError, "address 0 cannot hold %lld elements", (long long)numel);
    return 0;
}

static PyObject *pack(PyObject *a, PyObject *b, PyObject *c, PyObject *d)
{
    PyObject *tuple = a && b && c && d ? PyTuple_New(4) : NULL;
    if (!tuple) {
        Py_XDECREF(a);
        Py_XDECREF(b);
        Py_XDECREF(c);
        Py_XDECREF(d);
        return NULL;
    }
    PyTuple_SetItem(tuple, 0, a);
    PyTuple_SetItem(tuple, 1, b);
    PyTuple_SetItem(tuple, 2, c);
    PyTuple_SetItem(tuple, 3, d);
    return tuple;
}

static PyObject *none(void)
{
    Py_INCREF(Py_None);
    return Py_None;
}

static PyObject *run_summary(SummaryJob *job)
{
    int code = job->source.code;
    Summary r;
    if (job->source.numel == 0) return pack(none(), none(), none(), none());
    if (!check_address(job->source.base, job->source.numel)) return NULL;
    if (job->source.numel >= RELEASE_GIL_FROM) {
        Py_BEGIN_ALLOW_THREADS
        summarize_source(job, &r);
        Py_END_ALLOW_THREADS
    } else {
        summarize_source(job, &r);
    }
    if (code == C_BOOL) return pack(PyBool_FromLong(r.imax != 0), PyBool_FromLong(r.imin != 0), none(), none());
    PyObject *mean = PyFloat_FromDouble(r.mean), *norm = PyFloat_FromDouble(r.norm);
    if (code == C_U64)
        return pack(PyLong_FromUnsignedLongLong((uint64_t)r.imax), PyLong_FromUnsignedLongLong((uint64_t)r.imin), mean, norm);
    if (is_int(code)) return pack(PyLong_FromLongLong(r.imax), PyLong_FromLongLong(r.imin), mean, norm);
    return pack(PyFloat_FromDouble(r.max), PyFloat_FromDouble(r.min), mean, norm);
}

PyDoc_STRVAR(summarize_doc, "summarize(address, code, numel, /)\n--\n\n"
"(Max, Min, Mean, Norm) of numel elements that lie side by side at address.");

static PyObject *summarize(PyObject *self, PyObject *const *args, Py_ssize_t nargs)
{
    (void)self;
    if (!check_nargs("summarize", nargs, 3)) return NULL;
    void *address = PyLong_AsVoidPtr(args[0]);
    if (!address && PyErr_Occurred()) return NULL;
    long code = PyLong_AsLong(args[1]);
    if (!check_code(code)) return NULL;
    long long numel = PyLong_AsLongLong(args[2]);
    if (numel < 0) {
        if (!PyErr_Occurred()) PyErr_Format(PyExc_ValueError, "numel is %lld, which no tensor has", numel);
        return NULL;
    }
    SummaryJob job;
    source_contiguous(&job.source, address, (int)code, numel);
    return run_summary(&job);
}

PyDoc_STRVAR(summarize_strided_doc, "summarize_strided(address, code, shape, strides, /)\n--\n\n"
"(Max, Min, Mean, Norm) of a view; strides count elements and are not negative.");

static PyObject *summarize_strided(PyObject *self, PyObject *const *args, Py_ssize_t nargs)
{
    (void)self;
    if (!check_nargs("summarize_strided", nargs, 4)) return NULL;
    void *address = PyLong_AsVoidPtr(args[0]);
    if (!address && PyErr_Occurred()) return NULL;
    long code = PyLong_AsLong(args[1]);
    if (!check_code(code)) return NULL;
    Py_ssize_t ndim = PyTuple_Size(args[2]);
    if (ndim < 0) return NULL;
    Py_ssize_t nstrides = PyTuple_Size(args[3]);
    if (nstrides < 0) return NULL;
    if (ndim != nstrides) {
        PyErr_Format(PyExc_ValueError, "shape has %zd dimensions and strides has %zd", ndim, nstrides);
        return NULL;
    }
    SummaryJob job;
    source_contiguous(&job.source, address, (int)code, 1);
    job.source.ndim = 0;
    for (Py_ssize_t k = 0; k < ndim; k++) {
        long long size = PyLong_AsLongLong(PyTuple_GetItem(args[2], k));
        long long stride = PyLong_AsLongLong(PyTuple_GetItem(args[3], k));
        if (size < 0 || stride < 0) {
            if (!PyErr_Occurred()) PyErr_Format(PyExc_ValueError, "dimension %zd has size %lld and stride %lld; neither may be negative", k, size, stride);
            return NULL;
        }
        if (!source_add_dim(&job.source, size, stride)) {
            PyErr_SetString(PyExc_ValueError, "more than 64 dimensions");
            return NULL;
        }
    }
    if (job.source.repeat == 0) job.source.numel = 0; /* an empty dimension with stride 0 */
    source_merge(&job.source);
    return run_summary(&job);
}

static PyMethodDef methods[] = {
    {"summarize", (PyCFunction)(void (*)(void))summarize, METH_FASTCALL, summarize_doc},
    {"summarize_strided", (PyCFunction)(void (*)(void))summarize_strided, METH_FASTCALL, summarize_strided_doc},
    {NULL, NULL, 0, NULL},
};

static int exec_module(PyObject *module)
{
    const Path *found[3];
    (void)module;
    available_paths(found);
    path = found[0];
    fill_fp8_tables();
    return 0;
}

static PyModuleDef_Slot slots[] = {
    {Py_mod_exec, (void *)exec_module},
#ifdef Py_GIL_DISABLED
    {Py_mod_gil, Py_MOD_GIL_NOT_USED},
#endif
    {0, NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "_kernels", "One-pass statistics over raw memory.", 0, methods, slots, NULL, NULL, NULL,
};

PyMODINIT_FUNC PyInit__kernels(void) { return PyModuleDef_Init(&definition); }
