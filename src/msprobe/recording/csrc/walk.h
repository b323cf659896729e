/* Walks the Python stack: the core of `walk` in stacks.py. Stable ABI of CPython 3.10; `walk_init` before anything else. */
#ifndef MSPROBE_WALK_H
#define MSPROBE_WALK_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>
#include <string.h>

static PyObject *f_back, *f_lasti;

/* 0 with an error set. */
static int walk_init(void)
{
    f_back = PyUnicode_InternFromString("f_back");
    f_lasti = PyUnicode_InternFromString("f_lasti");
    return f_back && f_lasti;
}

enum { MAX_COUNTED = 8, ON_STACK = 128 };

/* Addresses of the code objects whose frames are counted. */
typedef struct {
    Py_ssize_t used;
    void *codes[MAX_COUNTED];
} Counted;

/* From a tuple of ids; 0 with an error set. */
static int counted_codes(Counted *counted, PyObject *ids)
{
    Py_ssize_t size = PyTuple_Size(ids);
    if (size < 0) return 0;
    if (size > MAX_COUNTED) {
        PyErr_Format(PyExc_ValueError, "more than %d counted code objects", MAX_COUNTED);
        return 0;
    }
    counted->used = size;
    for (Py_ssize_t k = 0; k < size; k++) {
        counted->codes[k] = PyLong_AsVoidPtr(PyTuple_GetItem(ids, k));
        if (!counted->codes[k] && PyErr_Occurred()) return 0;
    }
    return 1;
}

static long count_code(const Counted *counted, const void *code)
{
    long count = 0;
    for (Py_ssize_t k = 0; k < counted->used; k++) count += counted->codes[k] == code;
    return count;
}

/* --- keys of frames --------------------------------------------------------------------------------------------------------------- */
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

/* A frame's code object, as an address: the frame holds it. */
static void *code_of(PyObject *frame)
{
    PyCodeObject *code = PyFrame_GetCode((PyFrameObject *)frame);
    Py_DECREF((PyObject *)code);
    return code;
}

/* The offset of the instruction a frame is at; -1 may be one, or an error. */
static long offset_of(PyObject *frame)
{
    PyObject *offset = PyObject_GetAttr(frame, f_lasti);
    if (!offset) return -1;
    long at = PyLong_AsLong(offset);
    Py_DECREF(offset);
    return at;
}

/* Adds one frame; *code is its code object's address. 0 with an error set. */
static int push_frame(Key *key, PyObject *frame, void **code)
{
    *code = code_of(frame);
    long at = offset_of(frame);
    if (at == -1 && PyErr_Occurred()) return 0;
    return push(key, (int64_t)(intptr_t)*code) && push(key, at);
}

/* The frame that is `skip` frames outwards from the running Python function; new reference, NULL with an error set (or with none, where
   the stack is not that deep). */
static inline PyObject *frame_outwards(long skip)
{
    PyObject *frame = (PyObject *)PyEval_GetFrame();
    Py_XINCREF(frame);
    while (frame && skip-- > 0) {
        PyObject *outer = PyObject_GetAttr(frame, f_back);
        Py_DECREF(frame);
        if (outer == Py_None) Py_CLEAR(outer);
        frame = outer;
    }
    return frame;
}

/* The key (bytes) of the frames from `start` outwards up to `stop`, what is above which has the number `above`; *count gets how many of
   them run a counted code object, `depth` more where the walk got to `stop`. See stacks.walk_in_python. NULL with an error set. */
static PyObject *walk_frames(PyObject *start, const void *stop, int64_t above, long depth, const Counted *counted, long *count)
{
    Key key;
    key.used = 0;
    key.room = sizeof key.fixed / sizeof *key.fixed;
    key.words = key.fixed;
    PyObject *frame = start, *bytes = NULL;
    Py_INCREF(frame);
    *count = 0;
    int reached = 0;
    while (frame != Py_None) {
        void *code;
        if (!push_frame(&key, frame, &code)) goto done;
        if (frame == stop) {
            reached = 1;
            *count += depth;
            break;
        }
        *count += count_code(counted, code);
        PyObject *outer = PyObject_GetAttr(frame, f_back);
        Py_DECREF(frame);
        frame = outer;
        if (!frame) goto done;
    }
    if (push(&key, reached ? above : 0)) bytes = PyBytes_FromStringAndSize((const char *)key.words, key.used * (Py_ssize_t)sizeof *key.words);
done:
    Py_XDECREF(frame);
    if (key.words != key.fixed) PyMem_Free(key.words);
    return bytes;
}

#endif
