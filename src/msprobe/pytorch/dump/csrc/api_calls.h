/* Calls of APIs: what ApiMode and Recorder.api do, for the common case. */
#ifndef MSPROBE_API_CALLS_H
#define MSPROBE_API_CALLS_H

#include "call_names.h"
#include "entries.h"
#include "in_common.h"
#include "stack_of_call.h"

/* What one window's calls need, held for its duration; the first ones are attributes of others, read once. */
enum { H_RECORDER, H_STEP, H_STATE, H_STACKS, H_BY_FUNCTION, H_OPERATORS, H_AMBIGUOUS, H_WRITER, H_OBSERVERS, H_COUNTS, H_ENCODER, H_TABLE,
       H_FAILED, H_KIND_OF, H_EDGES_OF, H_DEFERRED, H_GIVEN, H_KINDS = H_GIVEN, H_COUNT };

typedef struct {
    PyObject_HEAD
    PyObject *held[H_COUNT];
    KnownStacks stacks;
    Mirror mirror;
    int extra_info, keeps_construct;
    long calls, tensors;
    double spent;
} ApiCalls;

/* How a function is recorded: the tuple that Python's `kind_of(api)` gives is (DECLINE, WANTED or LEFT_OUT, full, hidden, parameters). */
enum { DECLINE, WANTED, LEFT_OUT };

/* One call. What is not borrowed is let go of by `call_clear`. */
typedef struct {
    PyObject *api, *full, *hidden, *parameters; /* borrowed */
    PyObject *name, *backward, *parent, *stack, *data, *entry, *edges;
    long number, wanted;
    long long floor;
    int begun;
} Call;

static void call_clear(Call *call)
{
    Py_CLEAR(call->name);
    Py_CLEAR(call->backward);
    Py_CLEAR(call->parent);
    Py_CLEAR(call->stack);
    Py_CLEAR(call->data);
    Py_CLEAR(call->entry);
    Py_CLEAR(call->edges);
}

/* What Python calls an ApiCall, for what Python does with the call. */
static PyObject *call_object(const Call *call)
{
    PyObject *number = PyLong_FromLong(call->number), *floor = PyLong_FromLongLong(call->floor), *object = NULL;
    if (number && floor)
        object = PyObject_CallFunctionObjArgs(api_call_class, call->api, call->name, number, call->parent ? call->parent : Py_None,
                                              call->data ? call->data : Py_None, NULL);
    if (object && ((call->entry && PyObject_SetAttr(object, n_entry, call->entry) < 0) || (call->edges && PyObject_SetAttr(object, n_edges, call->edges) < 0)
                   || (call->stack && PyObject_SetAttr(object, n_stack, call->stack) < 0) || PyObject_SetAttr(object, n_floor, floor) < 0))
        Py_CLEAR(object);
    Py_XDECREF(number);
    Py_XDECREF(floor);
    return object;
}

/* recorder.method(step, call[, more]) with the error kept that is set; what that method raises takes its place. 0: it raised. */
static int ask_recorder(const ApiCalls *calls, PyObject *method, const Call *call, PyObject *more)
{
    PyObject *type, *value, *traceback;
    PyErr_Fetch(&type, &value, &traceback);
    PyObject *object = call_object(call);
    PyObject *done = object ? PyObject_CallMethodObjArgs(calls->held[H_RECORDER], method, calls->held[H_STEP], object, more, NULL) : NULL;
    Py_XDECREF(object);
    if (!done) {
        Py_XDECREF(type);
        Py_XDECREF(value);
        Py_XDECREF(traceback);
        return 0;
    }
    Py_DECREF(done);
    PyErr_Restore(type, value, traceback);
    return 1;
}

/* --- the begin ------------------------------------------------------------------------------------------------------------------------ */
/* Where the call was made from, and the module around it. */
static int find_place(ApiCalls *calls, Call *call, PyObject *local, PyObject *frame)
{
    PyObject *open = PyDict_GetItem(local, n_open);
    PyObject *last = open && PyList_Size(open) > 0 ? PyList_GetItem(open, PyList_Size(open) - 1) : NULL;
    PyObject *anchor = last ? PyObject_GetAttr(last, n_anchor) : NULL;
    if (last && !anchor) return 0;
    long depth = 0;
    call->stack = stack_of_call(&calls->stacks, frame, anchor, call->hidden, &depth);
    long deepest = anchor ? PyLong_AsLong(PyTuple_GetItem(anchor, 2)) : 0;
    Py_XDECREF(anchor);
    if (!call->stack || PyErr_Occurred()) return 0;
    if (last && deepest > depth) {
        PyObject *at = PyLong_FromLong(depth);
        PyObject *done = at ? PyObject_CallMethodObjArgs(calls->held[H_RECORDER], n__unwind, calls->held[H_STEP], at, NULL) : NULL;
        Py_XDECREF(at);
        Py_XDECREF(done);
        if (!done) return 0;
        last = PyList_Size(open) > 0 ? PyList_GetItem(open, PyList_Size(open) - 1) : NULL;
    }
    if (last) call->parent = PyObject_GetAttr(last, n_name);
    else if (calls->keeps_construct)
        call->parent = PyObject_CallMethodObjArgs(calls->held[H_RECORDER], n__loose_parent, calls->held[H_STEP], call->stack, NULL);
    else {
        call->parent = Py_None;
        Py_INCREF(Py_None);
    }
    return call->parent != NULL;
}

/* The line of construct.json, unless a call that raised has made the same already. */
static int note_parent(ApiCalls *calls, const Call *call)
{
    if (!calls->keeps_construct) return 1;
    if (PyDict_Size(calls->held[H_FAILED]) > 0) {
        PyObject *failed = PyDict_GetItemWithError(calls->held[H_FAILED], call->name);
        int same = failed ? PyObject_RichCompareBool(PyTuple_GetItem(failed, 1), call->parent, Py_EQ) : PyErr_Occurred() ? -1 : 0;
        if (same) return same > 0;
    }
    return add_call(calls->held[H_WRITER], call->name, call->parent);
}

static int record_inputs(ApiCalls *calls, Call *call, PyObject *args, PyObject *kwargs, int with_gradients)
{
    PyObject *leaves = PyList_New(0), *positional = NULL, *keyword = NULL;
    int ok = 0;
    if (!leaves) return 0;
    Records records;
    records_begin(&records, calls->held[H_ENCODER], calls->held[H_TABLE], call->name, n_input, leaves);
    positional = positional_records(&records, args);
    if (positional) {
        int some = kwargs && PyDict_Size(kwargs) > 0;
        keyword = some ? (records_role(&records, n_kwargs) ? keyword_records(&records, kwargs) : NULL) : PyDict_New();
    }
    ok = records_end(&records, keyword != NULL);
    call->data = ok ? PyDict_New() : NULL;
    ok = call->data && PyDict_SetItem(call->data, n_input_args, positional) == 0 && PyDict_SetItem(call->data, n_input_kwargs, keyword) == 0;
    if (ok && PyDict_Size(calls->held[H_FAILED]) > 0) { /* the same name again takes its place in the file */
        ok = PyDict_DelItem(calls->held[H_FAILED], call->name) == 0 || PyErr_ExceptionMatches(PyExc_KeyError);
        if (ok) PyErr_Clear();
    }
    if (ok) call->entry = entry_add(calls->held[H_WRITER], call->name, call->data, 0, records.encoding.ordinary);
    ok = ok && call->entry;
    if (ok) calls->tensors += records.encoding.tensors;
    if (ok && with_gradients && PyList_Size(leaves) > 0)
        ok = edges_of_inputs(calls->held[H_EDGES_OF], calls->held[H_RECORDER], calls->held[H_STEP], call->name, leaves, &call->edges, &call->floor);
    Py_XDECREF(positional);
    Py_XDECREF(keyword);
    Py_DECREF(leaves);
    return ok;
}

/* The form the call was written in; 0 with an error set. `*args` and `*kwargs` are replaced by new references. */
static int as_called(ApiCalls *calls, const Call *call, PyObject *frame, PyObject **args, PyObject **kwargs)
{
    PyObject *caller = PyObject_GetAttr(frame, n_f_back);
    PyObject *given = *kwargs ? *kwargs : PyDict_New(), *pair = NULL;
    if (*kwargs) Py_INCREF(given);
    if (caller && given) pair = PyObject_CallMethodObjArgs(calls->held[H_RECORDER], n__as_called, call->api, caller, *args, given, NULL);
    Py_XDECREF(caller);
    Py_XDECREF(given);
    if (!pair) return 0;
    *args = PyTuple_GetItem(pair, 0);
    *kwargs = PyTuple_GetItem(pair, 1);
    Py_XINCREF(*args);
    Py_XINCREF(*kwargs);
    Py_DECREF(pair);
    return *args && *kwargs;
}

static int call_begins(ApiCalls *calls, Call *call, PyObject *local, PyObject *args, PyObject *kwargs)
{
    PyObject *frame = (PyObject *)PyEval_GetFrame();
    if (!frame) return 0;
    if (!take_number(calls->held[H_COUNTS], call->full, &call->number) || !call_names(call->full, call->number, &call->name, &call->backward)) return 0;
    if (!find_place(calls, call, local, frame) || !note_parent(calls, call)) return 0;
    if (call->wanted != WANTED) return 1;
    int with_gradients = ask_yes(grad_enabled);
    if (with_gradients < 0) return 0;
    if (call->parameters == Py_None) return record_inputs(calls, call, args, kwargs, with_gradients);
    PyObject *own_args = args, *own_kwargs = kwargs;
    if (!as_called(calls, call, frame, &own_args, &own_kwargs)) return 0;
    int ok = record_inputs(calls, call, own_args, own_kwargs, with_gradients);
    Py_DECREF(own_args);
    Py_DECREF(own_kwargs);
    return ok;
}

/* --- the end -------------------------------------------------------------------------------------------------------------------------- */
static int finish_call(ApiCalls *calls, Call *call)
{
    if (((Entry *)call->entry)->done) return 1;
    if (!entry_finish(calls->held[H_WRITER], call->entry)) return 0;
    return !calls->extra_info || add_stack(calls->held[H_WRITER], call->name, call->stack);
}

static int call_ends(ApiCalls *calls, Call *call, PyObject *result)
{
    PyObject *leaves = PyList_New(0);
    if (!leaves) return 0;
    Records records;
    records_begin(&records, calls->held[H_ENCODER], calls->held[H_TABLE], call->name, n_output, leaves);
    PyObject *output = output_records(&records, result);
    int ok = records_end(&records, output != NULL);
    ok = ok && PyDict_SetItem(((Entry *)call->entry)->data, n_output, output) == 0; /* no text yet: it is not done */
    Py_XDECREF(output);
    if (!records.encoding.ordinary) ((Entry *)call->entry)->ordinary = 0;
    if (ok) calls->tensors += records.encoding.tensors;
    ok = ok && finish_call(calls, call);
    if (ok) calls->calls++;
    if (ok && call->edges && PyList_Size(leaves) > 0) {
        PyObject *parent = mirrored(&calls->mirror, call->parent), *floor = PyLong_FromLongLong(call->floor), *watched = NULL;
        if (parent && floor)
            watched = PyObject_CallMethodObjArgs(calls->held[H_OBSERVERS], n_watch, call->backward, parent, leaves, call->edges, floor, NULL);
        ok = watched != NULL;
        Py_XDECREF(parent);
        Py_XDECREF(floor);
        Py_XDECREF(watched);
    }
    Py_DECREF(leaves);
    return ok;
}

/* What is done after the function has returned; 0: an error is to be let through. */
static int after_return(ApiCalls *calls, Call *call, PyObject *args, PyObject *result)
{
    if ((PyObject *)Py_TYPE(result) == calls->held[H_DEFERRED]) return ask_recorder(calls, n__defer_contained, call, result);
    if (!call->data) return 1;
    double began = now();
    Quiet quiet = {NULL};
    int ok = quiet_begin(&quiet) && call_ends(calls, call, result);
    if (ok && result == Py_None && call->edges && PyTuple_Size(args) > 0) ok = ask_recorder(calls, n__changed, call, PyTuple_GetItem(args, 0));
    quiet_end(&quiet);
    if (!ok) {
        ok = contained(calls->held[H_STEP], call->name, "result could not be recorded");
        if (ok) ok = ask_recorder(calls, n__give_up, call, NULL);
    }
    calls->spent += now() - began;
    return ok;
}

/* --- one call ---------------------------------------------------------------------------------------------------------------------------- */
static PyObject *recorded_call(ApiCalls *calls, Call *call, PyObject *local, PyObject *function, PyObject *args, PyObject *kwargs)
{
    double began = now();
    Quiet quiet = {NULL};
    call->begun = quiet_begin(&quiet) && call_begins(calls, call, local, args, kwargs);
    quiet_end(&quiet);
    if (!call->begun && !contained(calls->held[H_STEP], call->full, "call could not be recorded")) return NULL;
    if (PyDict_SetItem(local, n_inside, Py_True) < 0) return NULL;
    calls->spent += now() - began;
    PyObject *result = PyObject_Call(function, args, kwargs);
    if (!result) {
        PyObject *type, *value, *traceback;
        PyErr_Fetch(&type, &value, &traceback);
        PyErr_NormalizeException(&type, &value, &traceback);
        int ok = PyDict_SetItem(local, n_inside, Py_False) == 0 && (!call->begun || ask_recorder(calls, n__raised_contained, call, value));
        if (ok) PyErr_Restore(type, value, traceback);
        else {
            Py_XDECREF(type);
            Py_XDECREF(value);
            Py_XDECREF(traceback);
        }
        return NULL;
    }
    if (PyDict_SetItem(local, n_inside, Py_False) < 0 || (call->begun && !after_return(calls, call, args, result))) Py_CLEAR(result);
    return result;
}

/* kind_of(api), asked once. Borrowed; NULL with an error set. */
static PyObject *kind_of(ApiCalls *calls, PyObject *api)
{
    PyObject *kind = PyDict_GetItemWithError(calls->held[H_KINDS], api);
    if (kind || PyErr_Occurred()) return kind;
    kind = PyObject_CallFunctionObjArgs(calls->held[H_KIND_OF], api, NULL);
    if (!kind || PyDict_SetItem(calls->held[H_KINDS], api, kind) < 0) {
        Py_XDECREF(kind);
        return NULL;
    }
    Py_DECREF(kind);
    return kind; /* the dict holds it */
}

static PyObject *declined(void)
{
    PyErr_Clear();
    Py_INCREF(declines);
    return declines;
}

PyDoc_STRVAR(call_doc, "call(function, args, kwargs, /)\n--\n\n"
"Call a function that a mode has seen, and record the call where it is watched; gives what the function gives.\n"
"DECLINED: nothing has been done; Python's own way finds out what to do.");

static PyObject *api_call(PyObject *self, PyObject *const *given, Py_ssize_t count)
{
    ApiCalls *calls = (ApiCalls *)self;
    if (count != 3) return PyErr_Format(PyExc_TypeError, "call() takes 3 positional arguments, not %zd", count);
    PyObject *function = given[0], *args = given[1], *kwargs = given[2] == Py_None ? NULL : given[2];
    if (!PyTuple_Check(args) || (kwargs && !PyDict_Check(kwargs))) return declined();
    PyObject *api = PyDict_GetItemWithError(calls->held[H_BY_FUNCTION], function);
    if (!api) return declined();
    PyObject *local = PyObject_GetAttr(calls->held[H_STATE], n___dict__); /* this thread's */
    if (!local) return declined();
    PyObject *result = NULL, *spelling = PyDict_GetItem(local, n_spelling);
    if (spelling && spelling != Py_None) {
        PyObject *spelled = PyDict_GetItemWithError(calls->held[H_OPERATORS], spelling);
        if (spelled) api = spelled;
        if (PyDict_SetItem(local, n_spelling, Py_None) < 0) goto done;
    } else {
        PyObject *name = PyObject_GetAttr(api, n_name);
        int ambiguous = name ? PySet_Contains(calls->held[H_AMBIGUOUS], name) : -1;
        Py_XDECREF(name);
        if (ambiguous) {
            result = declined();
            goto done;
        }
    }
    if (PyDict_GetItem(local, n_inside) == Py_True) {
        result = PyObject_Call(function, args, kwargs);
        goto done;
    }
    PyObject *kind = kind_of(calls, api);
    Call call = {.api = api};
    call.wanted = kind ? PyLong_AsLong(PyTuple_GetItem(kind, 0)) : DECLINE;
    PyErr_Clear();
    if (call.wanted == DECLINE || !is_attribute(calls->held[H_RECORDER], n_step, calls->held[H_STEP])
        || !is_attribute(calls->held[H_RECORDER], n_only, Py_None)) {
        PyObject *named = kwargs ? kwargs : PyDict_New();
        if (kwargs) Py_INCREF(named);
        if (named) result = PyObject_CallMethodObjArgs(calls->held[H_RECORDER], n_api, api, function, args, named, NULL);
        Py_XDECREF(named);
        goto done;
    }
    call.full = PyTuple_GetItem(kind, 1);
    call.hidden = PyTuple_GetItem(kind, 2);
    call.parameters = PyTuple_GetItem(kind, 3);
    Py_INCREF(api); /* a table may change while the function runs */
    result = recorded_call(calls, &call, local, function, args, kwargs);
    Py_DECREF(api);
    call_clear(&call);
done:
    Py_DECREF(local);
    return result;
}

PyDoc_STRVAR(settle_doc, "settle(tally, /)\n--\n\nAdd to a step's tally what has been counted since.");

static PyObject *settle(PyObject *self, PyObject *tally)
{
    ApiCalls *calls = (ApiCalls *)self;
    if (!add_to(tally, n_calls, calls->calls) || !add_to(tally, n_apis, calls->calls) || !add_to(tally, n_tensors, calls->tensors)) return NULL;
    add_seconds(tally, n_spent, calls->spent);
    calls->calls = calls->tensors = 0;
    calls->spent = 0;
    Py_RETURN_NONE;
}

/* --- the type ---------------------------------------------------------------------------------------------------------------------------- */
static int api_calls_traverse(PyObject *self, visitproc visit, void *arg)
{
    ApiCalls *calls = (ApiCalls *)self;
    for (int k = 0; k < H_COUNT; k++) Py_VISIT(calls->held[k]);
    Py_VISIT(Py_TYPE(self));
    return 0;
}

static int api_calls_clear(PyObject *self)
{
    ApiCalls *calls = (ApiCalls *)self;
    for (int k = 0; k < H_COUNT; k++) Py_CLEAR(calls->held[k]);
    known_stacks_clear(&calls->stacks);
    mirror_clear(&calls->mirror);
    return 0;
}

static void api_calls_dealloc(PyObject *self)
{
    PyTypeObject *type = Py_TYPE(self);
    PyObject_GC_UnTrack(self);
    api_calls_clear(self);
    PyObject_GC_Del(self);
    Py_DECREF(type);
}

static PyMethodDef api_calls_methods[] = {
    {"call", (PyCFunction)(void (*)(void))api_call, METH_FASTCALL, call_doc},
    {"settle", settle, METH_O, settle_doc},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot api_calls_slots[] = {
    {Py_tp_traverse, (void *)api_calls_traverse},
    {Py_tp_clear, (void *)api_calls_clear},
    {Py_tp_dealloc, (void *)api_calls_dealloc},
    {Py_tp_methods, api_calls_methods},
    {0, NULL},
};

static PyType_Spec api_calls_spec = {
    "msprobe.pytorch.dump._hot.ApiCalls", sizeof(ApiCalls), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC, api_calls_slots,
};

static PyTypeObject *api_calls_type;

PyDoc_STRVAR(api_calls_doc, "api_calls(recorder, step, state, stacks, by_function, operators, ambiguous, writer, observers, counts, encoder,"
" table, failed, kind_of, edges_of, deferred, extra_info, keeps_construct, /)\n--\n\nWhat records the calls of one window.");

static PyObject *make_api_calls(PyObject *self, PyObject *args)
{
    (void)self;
    if (PyTuple_Size(args) != H_GIVEN + 2) return PyErr_Format(PyExc_TypeError, "api_calls() takes %d arguments", (int)H_GIVEN + 2);
    ApiCalls *calls = PyObject_GC_New(ApiCalls, api_calls_type);
    if (!calls) return NULL;
    memset((char *)calls + sizeof(PyObject), 0, sizeof *calls - sizeof(PyObject));
    for (int k = 0; k < H_GIVEN; k++) {
        calls->held[k] = PyTuple_GetItem(args, k);
        Py_INCREF(calls->held[k]);
    }
    calls->extra_info = PyObject_IsTrue(PyTuple_GetItem(args, H_GIVEN));
    calls->keeps_construct = PyObject_IsTrue(PyTuple_GetItem(args, H_GIVEN + 1));
    calls->held[H_KINDS] = PyDict_New();
    PyObject_GC_Track((PyObject *)calls);
    if (!calls->held[H_KINDS] || !known_stacks_init(&calls->stacks, calls->held[H_STACKS])) {
        Py_DECREF(calls);
        return NULL;
    }
    return (PyObject *)calls;
}

#define API_CALLS_METHODS {"api_calls", make_api_calls, METH_VARARGS, api_calls_doc},

static int api_calls_init(PyObject *module)
{
    (void)module;
    api_calls_type = (PyTypeObject *)PyType_FromSpec(&api_calls_spec);
    return api_calls_type && call_names_init();
}

#endif
