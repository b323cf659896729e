/* One-pass statistics over raw memory: the Python face of csrc/.
   Stable ABI of CPython 3.10, so that one wheel serves every later version. */
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "csrc/pair.h"
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

/* Fills a new tuple; a NULL among the values means that an error is set. */
static PyObject *pack_many(PyObject **values, Py_ssize_t n)
{
    PyObject *tuple = PyTuple_New(n);
    for (Py_ssize_t k = 0; k < n; k++) {
        if (tuple && values[k]) PyTuple_SetItem(tuple, k, values[k]);
        else {
            Py_XDECREF(values[k]);
            Py_CLEAR(tuple);
        }
    }
    return tuple;
}

static PyObject *none(void)
{
    Py_INCREF(Py_None);
    return Py_None;
}

#include "csrc/memory.h"

static int four_numbers(PyObject **four, PyObject *high, PyObject *low, PyObject *mean, PyObject *norm)
{
    PyObject *const values[] = {high, low, mean, norm};
    int all = high && low && mean && norm;
    for (int k = 0; k < 4; k++) {
        four[k] = all ? values[k] : NULL;
        if (!all) Py_XDECREF(values[k]);
    }
    return all;
}

static int run_summary(SummaryJob *job, PyObject **four)
{
    int code = job->source.code;
    Summary r;
    if (job->source.numel == 0) return four_numbers(four, none(), none(), none(), none());
    if (!check_address(job->source.base, job->source.numel)) return 0;
    if (job->source.numel >= RELEASE_GIL_FROM) {
        Py_BEGIN_ALLOW_THREADS
        summarize_source(job, &r);
        Py_END_ALLOW_THREADS
    } else {
        summarize_source(job, &r);
    }
    if (code == C_BOOL) return four_numbers(four, PyBool_FromLong(r.imax != 0), PyBool_FromLong(r.imin != 0), none(), none());
    PyObject *mean = PyFloat_FromDouble(r.mean), *norm = PyFloat_FromDouble(r.norm), *high, *low;
    if (code == C_U64) {
        high = PyLong_FromUnsignedLongLong((uint64_t)r.imax);
        low = PyLong_FromUnsignedLongLong((uint64_t)r.imin);
    } else if (is_int(code)) {
        high = PyLong_FromLongLong(r.imax);
        low = PyLong_FromLongLong(r.imin);
    } else {
        high = PyFloat_FromDouble(r.max);
        low = PyFloat_FromDouble(r.min);
    }
    return four_numbers(four, high, low, mean, norm);
}

static PyObject *tuple_of(int ok, PyObject **four) { return ok ? pack_many(four, 4) : NULL; }

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
    PyObject *four[4];
    source_contiguous(&job.source, address, (int)code, numel);
    return tuple_of(run_summary(&job, four), four);
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
    Memory memory;
    if (!memory_of_tuples(&memory, address, args[2], args[3])) return NULL;
    PyObject *four[4];
    return tuple_of(memory_summary(&memory, (int)code, four), four);
}

#include "csrc/describe.h"
#include "csrc/checksum.h"

PyDoc_STRVAR(compare_pair_doc, "compare_pair(address_a, code_a, address_b, code_b, numel, /)\n--\n\n"
"(equal, nan_differ, inf_differ, nonfinite_equal, within_1e3, within_5e3,\n"
" dot, sumsq_a, sumsq_b, sumsq_diff, max_abs, max_rel, max_a, max_b, exp_a, exp_b, exp_diff);\n"
"dot counts 2**(exp_a + exp_b), sumsq_x counts 4**exp_x.");

static PyObject *compare_pair(PyObject *self, PyObject *const *args, Py_ssize_t nargs)
{
    (void)self;
    if (!check_nargs("compare_pair", nargs, 5)) return NULL;
    void *a = PyLong_AsVoidPtr(args[0]);
    if (!a && PyErr_Occurred()) return NULL;
    long code_a = PyLong_AsLong(args[1]);
    if (!check_code(code_a)) return NULL;
    void *b = PyLong_AsVoidPtr(args[2]);
    if (!b && PyErr_Occurred()) return NULL;
    long code_b = PyLong_AsLong(args[3]);
    if (!check_code(code_b)) return NULL;
    long long numel = PyLong_AsLongLong(args[4]);
    if (numel < 0) {
        if (!PyErr_Occurred()) PyErr_Format(PyExc_ValueError, "numel is %lld, which no tensor has", numel);
        return NULL;
    }
    if (!check_address(a, numel) || !check_address(b, numel)) return NULL;
    PairJob job;
    PairResult r;
    memset(&job, 0, sizeof job);
    job.a = (const char *)a;
    job.b = (const char *)b;
    job.code_a = (int)code_a;
    job.code_b = (int)code_b;
    job.numel = numel;
    job.eps = narrow_float(job.code_a) && narrow_float(job.code_b) ? FLT_EPSILON : DBL_EPSILON;
    if (numel >= RELEASE_GIL_FROM) {
        Py_BEGIN_ALLOW_THREADS
        compare_pair_memory(&job, &r);
        Py_END_ALLOW_THREADS
    } else {
        compare_pair_memory(&job, &r);
    }
    PyObject *values[] = {
        PyLong_FromLongLong(r.p.equal + r.p.nonfinite_equal), PyLong_FromLongLong(r.p.nan_differ),
        PyLong_FromLongLong(r.p.inf_differ), PyLong_FromLongLong(r.p.nonfinite_equal), PyLong_FromLongLong(r.p.within_1e3),
        PyLong_FromLongLong(r.p.within_5e3), PyFloat_FromDouble(r.p.dot), PyFloat_FromDouble(r.p.sumsq_a),
        PyFloat_FromDouble(r.p.sumsq_b), PyFloat_FromDouble(r.p.sumsq_diff), PyFloat_FromDouble(r.p.max_abs),
        PyFloat_FromDouble(r.p.max_rel), PyFloat_FromDouble(r.p.max_a), PyFloat_FromDouble(r.p.max_b),
        PyLong_FromLong(r.exp_a), PyLong_FromLong(r.exp_b), PyLong_FromLong(r.exp_d),
    };
    return pack_many(values, (Py_ssize_t)(sizeof values / sizeof *values));
}

PyDoc_STRVAR(set_threads_doc, "set_threads(n, /)\n--\n\n"
"Lets large tensors use up to n threads of the kernels' own; 1: no others either. Returns the number before. Results do not depend on it.");

static PyObject *set_threads(PyObject *self, PyObject *arg)
{
    (void)self;
    long n = PyLong_AsLong(arg);
    if (n < 1 || n > MAX_THREADS) {
        if (!PyErr_Occurred()) PyErr_Format(PyExc_ValueError, "the number of threads is %ld; it must be 1..%d", n, MAX_THREADS);
        return NULL;
    }
    long before = pool_threads;
    pool_threads = (int)n;
    return PyLong_FromLong(before);
}

PyDoc_STRVAR(share_threads_doc, "share_threads(library, /)\n--\n\n"
"Lets large tensors use the threads of the OpenMP runtime that this shared library, loaded already, computes with; None: no longer.\n"
"Returns whether there is one. Results do not depend on it.");

static PyObject *share_threads(PyObject *self, PyObject *arg)
{
    (void)self;
    PyObject *encoded;
    team_forget();
    if (arg == Py_None) return PyBool_FromLong(0);
    if (!PyUnicode_FSConverter(arg, &encoded)) return NULL;
    int joined = team_join(PyBytes_AsString(encoded));
    Py_DECREF(encoded);
    return PyBool_FromLong(joined);
}

PyDoc_STRVAR(paths_doc, "_paths()\n--\n\nThe instruction sets that can be forced here, best first.");

static PyObject *paths(PyObject *self, PyObject *unused)
{
    (void)self;
    (void)unused;
    const Path *found[MAX_PATHS];
    PyObject *names[MAX_PATHS];
    int n = available_paths(found);
    for (int k = 0; k < n; k++) names[k] = PyUnicode_FromString(found[k]->name);
    return pack_many(names, n);
}

PyDoc_STRVAR(force_path_doc, "_force_path(name, /)\n--\n\nFor tests: work with this instruction set; returns the one before.");

static PyObject *force_path(PyObject *self, PyObject *arg)
{
    (void)self;
    const Path *found[MAX_PATHS], *before = path;
    int n = available_paths(found);
    for (int k = 0; k < n; k++) {
        PyObject *name = PyUnicode_FromString(found[k]->name);
        int same = name ? PyObject_RichCompareBool(name, arg, Py_EQ) : -1;
        Py_XDECREF(name);
        if (same < 0) return NULL;
        if (same) {
            path = found[k];
            return PyUnicode_FromString(before->name);
        }
    }
    PyErr_Format(PyExc_ValueError, "%R is no instruction set of this machine", arg);
    return NULL;
}

static PyMethodDef methods[] = {
    {"summarize", (PyCFunction)(void (*)(void))summarize, METH_FASTCALL, summarize_doc},
    {"summarize_strided", (PyCFunction)(void (*)(void))summarize_strided, METH_FASTCALL, summarize_strided_doc},
    {"describe_each", (PyCFunction)(void (*)(void))describe_each, METH_FASTCALL, describe_each_doc},
    {"describe_items", (PyCFunction)(void (*)(void))describe_items, METH_FASTCALL, describe_items_doc},
    {"describe", (PyCFunction)(void (*)(void))describe, METH_FASTCALL, describe_doc},
    {"compare_pair", (PyCFunction)(void (*)(void))compare_pair, METH_FASTCALL, compare_pair_doc},
    {"set_threads", set_threads, METH_O, set_threads_doc},
    {"share_threads", share_threads, METH_O, share_threads_doc},
    {"_paths", paths, METH_NOARGS, paths_doc},
    {"_force_path", force_path, METH_O, force_path_doc},
    CHECKSUM_METHODS,
    {NULL, NULL, 0, NULL},
};

static int exec_module(PyObject *module)
{
    const Path *found[MAX_PATHS];
    available_paths(found);
    path = found[0];
    fill_fp8_tables();
    pool_init();
    if (!memory_init() || !describe_init() || !checksum_init()) return -1;
    PyObject *shared = PyCapsule_New(&shared_kernels, SHARED_KERNELS, NULL);
    int added = shared ? PyModule_AddObject(module, "_shared", shared) : -1;
    if (added < 0) Py_XDECREF(shared);
    return added;
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
