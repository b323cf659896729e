/* Walks the Python stack: the fast twin of `walk` in stacks.py. Stable ABI of CPython 3.10. */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>
#include <string.h>

static PyObject *f_back, *f_code, *f_lasti;

enum { MAX_COUNTED = 8, ON_STACK = 128 };

typedef struct {
    int64_t *words; /* pairs (address of the code object, offset of the running instruction), then the number of what is above */
    Py_ssize_t used, room;
    int64_t fixed[2 * ON_STACK + 1];
} Key;

static int push(Key *key, int64_t word)
{
    if (key->used == key->room) {
        Py_ssize_t room = 2 * key->room;
        int64_t *words = PyMem_Malloc((size_t)room * sizeof *words);
        if (!words) {
            PyErr_NoMemory();
            return 0;
        }
        memcpy(words, key->words, (size_t)key->used * sizeof *words);
        if (key->words != key->fixed) PyMem_Free(key->words);
        key->words = words;
        key->room = room;
    }
    key->words[key->used++] = word;
    return 1;
}

/* Adds one frame; *code_address is its code object's. 0: an error is set. */
static int push_frame(Key *key, PyObject *frame, int64_t *code_address)
{
    PyObject *code = PyObject_GetAttr(frame, f_code);
    if (!code) return 0;
    *code_address = (int64_t)(intptr_t)code;
    Py_DECREF(code); /* the frame holds it */
    PyObject *offset = PyObject_GetAttr(frame, f_lasti);
    if (!offset) return 0;
    long at = PyLong_AsLong(offset);
    Py_DECREF(offset);
    if (at == -1 && PyErr_Occurred()) return 0;
    return push(key, *code_address) && push(key, at);
}

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
    int64_t counted[MAX_COUNTED];
    Py_ssize_t n_counted = PyTuple_Size(args[4]);
    if (n_counted < 0) return NULL;
    if (n_counted > MAX_COUNTED) return PyErr_Format(PyExc_ValueError, "more than %d counted code objects", MAX_COUNTED);
    for (Py_ssize_t k = 0; k < n_counted; k++) counted[k] = (int64_t)(intptr_t)PyLong_AsVoidPtr(PyTuple_GetItem(args[4], k));
    if (PyErr_Occurred()) return NULL;

    Key key = {.used = 0, .room = 2 * ON_STACK + 1};
    key.words = key.fixed;
    PyObject *frame = args[0], *result = NULL;
    Py_INCREF(frame);
    long count = 0;
    int reached = 0;
    while (frame != Py_None) {
        int64_t code;
        if (!push_frame(&key, frame, &code)) goto done;
        if ((void *)frame == stop) {
            reached = 1;
            break;
        }
        for (Py_ssize_t k = 0; k < n_counted; k++) count += counted[k] == code;
        PyObject *outer = PyObject_GetAttr(frame, f_back);
        Py_DECREF(frame);
        frame = outer;
        if (!frame) goto done;
    }
    if (!push(&key, reached ? above : 0)) goto done;
    PyObject *bytes = PyBytes_FromStringAndSize((const char *)key.words, key.used * (Py_ssize_t)sizeof *key.words);
    PyObject *total = bytes ? PyLong_FromLong(count + (reached ? depth : 0)) : NULL;
    if (total) result = PyTuple_Pack(2, bytes, total);
    Py_XDECREF(bytes);
    Py_XDECREF(total);
done:
    Py_XDECREF(frame);
    if (key.words != key.fixed) PyMem_Free(key.words);
    return result;
}

static PyMethodDef methods[] = {
    {"walk", (PyCFunction)(void (*)(void))walk, METH_FASTCALL, walk_doc},
    {NULL, NULL, 0, NULL},
};

static int exec_module(PyObject *module)
{
    (void)module;
    f_back = PyUnicode_InternFromString("f_back");
    f_code = PyUnicode_InternFromString("f_code");
    f_lasti = PyUnicode_InternFromString("f_lasti");
    return f_back && f_code && f_lasti ? 0 : -1;
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
