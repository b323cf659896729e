/* Calls of modules: ModuleRecorder.module_before and module_after, for the common case. */
#ifndef MSPROBE_MODULE_CALLS_H
#define MSPROBE_MODULE_CALLS_H

#include "entered_stack.h"
#include "entries.h"
#include "in_common.h"
#include "module_names.h"
#include "open_module.h"

/* What one window's calls need, held for its duration; most are attributes of others, read once. */
enum { M_RECORDER, M_STEP, M_STATE, M_STACKS, M_WRITER, M_OBSERVERS, M_PARAMETER_GRADIENTS, M_COUNTS, M_MODULES, M_ENCODER, M_TABLE, M_EDGES_OF,
       M_COUNT };

typedef struct {
    PyObject_HEAD
    PyObject *held[M_COUNT];
    EnteredStacks stacks;
    int extra_info, keeps_construct;
    long calls, tensors;
    double spent;
} ModuleCalls;

static PyTypeObject *module_calls_type;

enum { FAILED, DONE, DECLINED }; /* FAILED: an error is set; DECLINED: nothing has been done, Python has to */

/* --- the begin ------------------------------------------------------------------------------------------------------------------------ */
/* The dict without the Nones in it, a new reference. */
static PyObject *without_nones(PyObject *parameters)
{
    PyObject *name, *value;
    Py_ssize_t at = 0;
    int some = 0;
    while (PyDict_Next(parameters, &at, &name, &value)) some |= value == Py_None;
    if (!some) {
        Py_INCREF(parameters);
        return parameters;
    }
    PyObject *rest = PyDict_New();
    at = 0;
    while (rest && PyDict_Next(parameters, &at, &name, &value))
        if (value != Py_None && PyDict_SetItem(rest, name, value) < 0) Py_CLEAR(rest);
    return rest;
}

/* Sets data[name] to a record, which it takes. */
static int set_record(PyObject *data, PyObject *name, PyObject *record)
{
    int ok = record && PyDict_SetItem(data, name, record) == 0;
    Py_XDECREF(record);
    return ok;
}

static int record_parameters(ModuleCalls *calls, OpenModule *opened, PyObject *parameters, PyObject *data)
{
    Records records;
    records_begin(&records, calls->held[M_ENCODER], calls->held[M_TABLE], opened->name, n_parameters, NULL);
    PyObject *own = without_nones(parameters);
    int ok = own && set_record(data, n_parameters, keyword_records(&records, own));
    Py_XDECREF(own);
    ok = records_end(&records, ok);
    opened->tensors += records.encoding.tensors;
    opened->ordinary = opened->ordinary && records.encoding.ordinary;
    return ok;
}

static int record_inputs_of_module(ModuleCalls *calls, OpenModule *opened, PyObject *leaves, PyObject *args, PyObject *kwargs, PyObject *parameters)
{
    PyObject *data = PyDict_New();
    if (!data) return 0;
    Records records;
    records_begin(&records, calls->held[M_ENCODER], calls->held[M_TABLE], opened->name, n_input, leaves);
    int ok = set_record(data, n_input_args, positional_records(&records, args)) && records_role(&records, n_kwargs)
             && set_record(data, n_input_kwargs, keyword_records(&records, kwargs));
    ok = records_end(&records, ok);
    opened->tensors = records.encoding.tensors;
    opened->ordinary = (char)records.encoding.ordinary;
    ok = ok && PyDict_SetItem(data, n_output, Py_None) == 0 && record_parameters(calls, opened, parameters, data);
    if (ok) opened->data = data;
    else Py_DECREF(data);
    return ok;
}

static int watch_parameters(ModuleCalls *calls, PyObject *prefix, PyObject *parameters)
{
    PyObject *watched = PyObject_CallMethodObjArgs(calls->held[M_PARAMETER_GRADIENTS], n_watch, prefix, parameters, NULL);
    Py_XDECREF(watched);
    return watched != NULL;
}

/* From where the module is open on; 0 with an error set. */
static int record_begin(ModuleCalls *calls, OpenModule *opened, PyObject *stack, PyObject *args, PyObject *kwargs, PyObject *parameters)
{
    int with_gradients = ask_yes(grad_enabled);
    PyObject *leaves = with_gradients < 0 ? NULL : PyList_New(0);
    int ok = leaves && record_inputs_of_module(calls, opened, leaves, args, kwargs, parameters)
             && (!calls->extra_info || add_stack(calls->held[M_WRITER], opened->name, stack));
    if (ok && with_gradients) {
        ok = edges_of_inputs(calls->held[M_EDGES_OF], calls->held[M_RECORDER], calls->held[M_STEP], opened->name, leaves, &opened->edges,
                             &opened->floor);
        if (ok && PyDict_Size(parameters) > 0) ok = watch_parameters(calls, opened->prefix, parameters);
    }
    Py_XDECREF(leaves);
    return ok;
}

/* The innermost open module, borrowed; NULL for none. */
static PyObject *innermost(PyObject *open)
{
    Py_ssize_t count = PyList_Size(open);
    return count > 0 ? PyList_GetItem(open, count - 1) : NULL;
}

static int module_begins(ModuleCalls *calls, PyObject *open, PyObject *prefix, PyObject *module, PyObject *args, PyObject *kwargs)
{
    OpenModule *around = (OpenModule *)innermost(open), *opened;
    if (around && !is_open_module((PyObject *)around)) return DECLINED;
    PyObject *parameters = PyObject_GetAttr(module, n__parameters), *frame = NULL, *stack = NULL;
    int outcome = parameters ? PyDict_Check(parameters) ? FAILED : DECLINED : FAILED;
    if (outcome == DECLINED || !parameters) goto done;
    if (!(opened = new_open_module())) goto done;
    frame = frame_outwards(1);
    stack = frame ? enter_stack(&calls->stacks, frame, around, opened) : NULL;
    if (!frame && !PyErr_Occurred()) outcome = DECLINED;
    if (stack && around && around->depth >= opened->depth) outcome = DECLINED; /* modules that an exception left are closed first */
    if (!stack || outcome == DECLINED || !take_number(calls->held[M_COUNTS], prefix, &opened->number)
        || !module_names(prefix, opened->number, &opened->name, &opened->backward)) {
        Py_DECREF(opened);
        goto done;
    }
    Py_INCREF(module);
    opened->key = module;
    Py_INCREF(prefix);
    opened->prefix = prefix;
    opened->forward = 1;
    if (around) {
        opened->parent = around->name;
        opened->backward_above = around->backward;
        Py_XINCREF(opened->parent);
        Py_XINCREF(opened->backward_above);
    }
    if ((!calls->keeps_construct || add_call(calls->held[M_WRITER], opened->name, opened->parent ? opened->parent : Py_None))
        && PyList_Append(open, (PyObject *)opened) == 0 && record_begin(calls, opened, stack, args, kwargs, parameters))
        outcome = DONE;
    Py_DECREF(opened);
done:
    Py_XDECREF(parameters);
    Py_XDECREF(frame);
    Py_XDECREF(stack);
    return outcome;
}

/* In a thread that has no function mode, its outermost module puts it on. */
static int guard_thread(ModuleCalls *calls, PyObject *open)
{
    if (PyList_Size(open) != 1) return 1;
    PyObject *recorder = calls->held[M_RECORDER], *mode = PyObject_GetAttr(recorder, n_mode);
    if (!mode) return 0;
    PyObject *guarded = mode == Py_None ? mode : PyObject_CallMethodObjArgs(recorder, n__guard_thread, NULL);
    if (guarded != mode) {
        Py_DECREF(mode);
        Py_XDECREF(guarded);
    } else {
        Py_DECREF(mode);
    }
    return guarded != NULL;
}

/* --- the end -------------------------------------------------------------------------------------------------------------------------- */
static int watch_gradients(ModuleCalls *calls, const OpenModule *opened, PyObject *leaves)
{
    int with_gradients = opened->edges && PyList_Size(leaves) > 0 ? ask_yes(grad_enabled) : 0;
    if (with_gradients <= 0) return with_gradients == 0;
    PyObject *floor = PyLong_FromLongLong(opened->floor), *parent = opened->backward_above ? opened->backward_above : Py_None;
    PyObject *watched =
        floor ? PyObject_CallMethodObjArgs(calls->held[M_OBSERVERS], n_watch, opened->backward, parent, leaves, opened->edges, floor, NULL) : NULL;
    Py_XDECREF(floor);
    Py_XDECREF(watched);
    return watched != NULL;
}

/* The module is no longer among the open ones; 0 with an error set. */
static int module_ends(ModuleCalls *calls, OpenModule *opened, PyObject *output)
{
    PyObject *data = opened->data;
    opened->data = NULL;
    if (!data) return 1;
    PyObject *leaves = PyList_New(0);
    if (!leaves) {
        Py_DECREF(data);
        return 0;
    }
    Records records;
    records_begin(&records, calls->held[M_ENCODER], calls->held[M_TABLE], opened->name, n_output, leaves);
    int ok = set_record(data, n_output, output_records(&records, output));
    ok = records_end(&records, ok);
    PyObject *entry = ok ? entry_add(calls->held[M_WRITER], opened->name, data, 1, opened->ordinary && records.encoding.ordinary) : NULL;
    Py_DECREF(data);
    ok = entry && PySet_Add(calls->held[M_MODULES], opened->prefix) == 0;
    Py_XDECREF(entry);
    if (ok) {
        calls->calls++;
        calls->tensors += opened->tensors + records.encoding.tensors;
        ok = watch_gradients(calls, opened, leaves);
    }
    Py_DECREF(leaves);
    return ok;
}

/* --- what the hooks call ---------------------------------------------------------------------------------------------------------------- */
/* What records the modules of the window that is open, a new reference; NULL: Python has to. */
static ModuleCalls *calls_of(PyObject *recorder)
{
    PyObject *calls = PyObject_GetAttr(recorder, n_modules_in_c);
    if (calls && Py_TYPE(calls) == module_calls_type && is_attribute(recorder, n_step, ((ModuleCalls *)calls)->held[M_STEP])
        && is_attribute(recorder, n_only, Py_None))
        return (ModuleCalls *)calls;
    Py_XDECREF(calls);
    PyErr_Clear();
    return NULL;
}

/* This thread's open modules, a new reference; NULL: Python has to look. */
static PyObject *open_modules(ModuleCalls *calls)
{
    PyObject *open = PyObject_GetAttr(calls->held[M_STATE], n_open);
    if (open && PyList_Check(open)) return open;
    Py_XDECREF(open);
    PyErr_Clear();
    return NULL;
}

PyDoc_STRVAR(module_before_doc, "module_before(prefix, module, args, kwargs, /)\n--\n\nA module's forward begins; one frame of Python's\n"
"stands between this and what runs the hooks.");

static PyObject *module_before(PyObject *recorder, PyObject *const *given, Py_ssize_t count)
{
    if (count != 4) return PyErr_Format(PyExc_TypeError, "module_before() takes 4 positional arguments, not %zd", count);
    PyObject *prefix = given[0], *module = given[1], *args = given[2], *kwargs = given[3];
    ModuleCalls *calls = calls_of(recorder);
    PyObject *open = calls && PyTuple_Check(args) && PyDict_Check(kwargs) ? open_modules(calls) : NULL;
    int outcome = DECLINED;
    if (open) {
        double began = now();
        Quiet quiet = {NULL};
        outcome = quiet_begin(&quiet) ? module_begins(calls, open, prefix, module, args, kwargs) : FAILED;
        quiet_end(&quiet);
        if (outcome == DONE && !guard_thread(calls, open)) outcome = FAILED;
        if (outcome == FAILED && contained(calls->held[M_STEP], prefix, "module could not be recorded")) outcome = DONE;
        if (outcome == DONE) calls->spent += now() - began;
        Py_DECREF(open);
    }
    Py_XDECREF((PyObject *)calls);
    if (outcome == DECLINED) return PyObject_CallMethodObjArgs(recorder, n_module_before, prefix, module, args, kwargs, NULL);
    if (outcome == FAILED) return NULL;
    Py_RETURN_NONE;
}

PyDoc_STRVAR(module_after_doc, "module_after(prefix, module, output, /)\n--\n\nA module's forward ends.");

static PyObject *module_after(PyObject *recorder, PyObject *const *given, Py_ssize_t count)
{
    if (count != 3) return PyErr_Format(PyExc_TypeError, "module_after() takes 3 positional arguments, not %zd", count);
    PyObject *prefix = given[0], *module = given[1], *output = given[2];
    ModuleCalls *calls = output == Py_None ? NULL : calls_of(recorder); /* None: the forward may have raised */
    PyObject *open = calls ? open_modules(calls) : NULL;
    OpenModule *opened = open ? (OpenModule *)innermost(open) : NULL;
    int outcome = DECLINED;
    if (opened && is_open_module((PyObject *)opened) && opened->key == module && opened->forward && !opened->entered_mode) {
        double began = now();
        Quiet quiet = {NULL};
        Py_ssize_t last = PyList_Size(open) - 1;
        Py_INCREF((PyObject *)opened);
        int ok = PyList_SetSlice(open, last, last + 1, NULL) == 0 && quiet_begin(&quiet) && module_ends(calls, opened, output);
        quiet_end(&quiet);
        outcome = ok || contained(calls->held[M_STEP], prefix, "module's result could not be recorded") ? DONE : FAILED;
        Py_DECREF((PyObject *)opened);
        calls->spent += now() - began;
    }
    Py_XDECREF(open);
    Py_XDECREF((PyObject *)calls);
    if (outcome == DECLINED) return PyObject_CallMethodObjArgs(recorder, n_module_after, prefix, module, output, NULL);
    if (outcome == FAILED) return NULL;
    Py_RETURN_NONE;
}

static PyMethodDef module_before_method = {"module_before", (PyCFunction)(void (*)(void))module_before, METH_FASTCALL, module_before_doc};
static PyMethodDef module_after_method = {"module_after", (PyCFunction)(void (*)(void))module_after, METH_FASTCALL, module_after_doc};

PyDoc_STRVAR(module_hooks_doc, "module_hooks(recorder, /)\n--\n\n(module_before, module_after) of a recorder: they record in C where the recorder's\n"
"`modules_in_c` is what module_calls() gave, and go to its own methods of the same names where not.");

static PyObject *module_hooks(PyObject *self, PyObject *recorder)
{
    (void)self;
    PyObject *before = PyCFunction_New(&module_before_method, recorder), *after = PyCFunction_New(&module_after_method, recorder);
    PyObject *pair = before && after ? PyTuple_Pack(2, before, after) : NULL;
    Py_XDECREF(before);
    Py_XDECREF(after);
    return pair;
}

/* --- the type ---------------------------------------------------------------------------------------------------------------------------- */
PyDoc_STRVAR(module_settle_doc, "settle(tally, /)\n--\n\nAdd to a step's tally what has been counted since.");

static PyObject *module_settle(PyObject *self, PyObject *tally)
{
    ModuleCalls *calls = (ModuleCalls *)self;
    if (!add_to(tally, n_calls, calls->calls) || !add_to(tally, n_tensors, calls->tensors)) return NULL;
    add_seconds(tally, n_spent, calls->spent);
    calls->calls = calls->tensors = 0;
    calls->spent = 0;
    Py_RETURN_NONE;
}

static int module_calls_traverse(PyObject *self, visitproc visit, void *arg)
{
    ModuleCalls *calls = (ModuleCalls *)self;
    for (int k = 0; k < M_COUNT; k++) Py_VISIT(calls->held[k]);
    Py_VISIT(calls->stacks.known);
    Py_VISIT(calls->stacks.numbers);
    Py_VISIT(Py_TYPE(self));
    return 0;
}

static int module_calls_clear(PyObject *self)
{
    ModuleCalls *calls = (ModuleCalls *)self;
    for (int k = 0; k < M_COUNT; k++) Py_CLEAR(calls->held[k]);
    entered_stacks_clear(&calls->stacks);
    return 0;
}

static void module_calls_dealloc(PyObject *self)
{
    PyTypeObject *type = Py_TYPE(self);
    PyObject_GC_UnTrack(self);
    module_calls_clear(self);
    PyObject_GC_Del(self);
    Py_DECREF(type);
}

static PyMethodDef module_calls_methods[] = {
    {"settle", module_settle, METH_O, module_settle_doc},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot module_calls_slots[] = {
    {Py_tp_traverse, (void *)module_calls_traverse},
    {Py_tp_clear, (void *)module_calls_clear},
    {Py_tp_dealloc, (void *)module_calls_dealloc},
    {Py_tp_methods, module_calls_methods},
    {0, NULL},
};

static PyType_Spec module_calls_spec = {
    "msprobe.pytorch.dump._hot.ModuleCalls", sizeof(ModuleCalls), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC, module_calls_slots,
};

PyDoc_STRVAR(module_calls_doc, "module_calls(recorder, step, state, stacks, writer, observers, parameter_gradients, counts, modules, encoder,"
" table, edges_of, extra_info, keeps_construct, /)\n--\n\nWhat records the modules of one window.");

static PyObject *make_module_calls(PyObject *self, PyObject *args)
{
    (void)self;
    if (PyTuple_Size(args) != M_COUNT + 2) return PyErr_Format(PyExc_TypeError, "module_calls() takes %d arguments", (int)M_COUNT + 2);
    ModuleCalls *calls = PyObject_GC_New(ModuleCalls, module_calls_type);
    if (!calls) return NULL;
    memset((char *)calls + sizeof(PyObject), 0, sizeof *calls - sizeof(PyObject));
    for (int k = 0; k < M_COUNT; k++) {
        calls->held[k] = PyTuple_GetItem(args, k);
        Py_INCREF(calls->held[k]);
    }
    calls->extra_info = PyObject_IsTrue(PyTuple_GetItem(args, M_COUNT));
    calls->keeps_construct = PyObject_IsTrue(PyTuple_GetItem(args, M_COUNT + 1));
    PyObject_GC_Track((PyObject *)calls);
    if (!entered_stacks_init(&calls->stacks, calls->held[M_STACKS])) Py_CLEAR(calls);
    return (PyObject *)calls;
}

#define MODULE_CALLS_METHODS {"module_calls", make_module_calls, METH_VARARGS, module_calls_doc}, {"module_hooks", module_hooks, METH_O, module_hooks_doc},

static int module_calls_init(PyObject *module)
{
    module_calls_type = (PyTypeObject *)PyType_FromSpec(&module_calls_spec);
    return module_calls_type && open_module_init() && module_names_init()
           && PyObject_SetAttrString(module, "OpenModule", (PyObject *)open_module_type) == 0;
}

#endif
