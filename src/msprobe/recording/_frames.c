/* Walks the Python stack: the fast twin of `walk` in stacks.py. Stable ABI of CPython 3.10. */
#include "csrc/walk.h"

PyDoc_STRVAR(walk_doc, "walk(frame, stop, above, depth, counted, /)\n--\n\n"
"(key, number of counted frames) of the frames from `frame` outwards up to the one whose id is `stop`; see stacks.walk.");

static PyObject *walk(PyObject *self, PyObject *const *args, Py_ssize_t nargs)
{
    (void)self;
    if (nargs != 5) return PyErr_Format(PyExc_TypeError, "walk() takes 5 positional arguments, not %zd", nargs);
    void *stop = PyLong_AsVoidPtr(args[1]);
    long long above = PyLong_AsLongLong(args[2]);
    long depth = PyLong_AsLong(args[3]);
    if (PyErr_Occurred()) return NULL;
    if (Py_TYPE(args[0]) != Py_TYPE((PyObject *)PyEval_GetFrame())) return PyErr_Format(PyExc_TypeError, "walk() walks frames, not %R", args[0]);
    Counted counted;
    if (!counted_codes(&counted, args[4])) return NULL;
    long count;
    PyObject *key = walk_frames(args[0], stop, above, depth, &counted, &count);
    PyObject *total = key ? PyLong_FromLong(count) : NULL;
    PyObject *result = total ? PyTuple_Pack(2, key, total) : NULL;
    Py_XDECREF(key);
    Py_XDECREF(total);
    return result;
}

static PyMethodDef methods[] = {
    {"walk", (PyCFunction)(void (*)(void))walk, METH_FASTCALL, walk_doc},
    {NULL, NULL, 0, NULL},
};

static int exec_module(PyObject *module)
{
    (void)module;
    return walk_init() ? 0 : -1;
}

static PyModuleDef_Slot slots[] = {
    {Py_mod_exec, (void *)exec_module},
#ifdef Py_GIL_DISABLED
    {Py_mod_gil, Py_MOD_GIL_NOT_USED},
#endif
    {0, NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "_frames", "Walks the Python stack.", 0, methods, slots, NULL, NULL, NULL,
};

PyMODINIT_FUNC PyInit__frames(void) { return PyModuleDef_Init(&definition); }
