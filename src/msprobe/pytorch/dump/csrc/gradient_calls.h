/* From a call that has returned to observers on the nodes of its graph: the twin of `GradientObservers.watch`. */
#ifndef MSPROBE_GRADIENT_CALLS_H
#define MSPROBE_GRADIENT_CALLS_H

#include "node_hooks.h"

/* --- the call -------------------------------------------------------------------------------------------------------------------------------- */
/* call(task): that backward pass is over. */
static PyObject *gradient_call_call(PyObject *self, PyObject *args, PyObject *kwargs)
{
    (void)kwargs;
    PyObject *number = PyTuple_GetItem(args, 0);
    long long task = number ? PyLong_AsLongLong(number) : -1;
    if (PyErr_Occurred() || !finish_pass(self, task)) return NULL;
    return Py_BuildValue("");
}

static PyType_Slot gradient_call_slots[] = {
    {Py_tp_dealloc, (void *)gradient_call_dealloc},
    {Py_tp_traverse, (void *)gradient_call_traverse},
    {Py_tp_clear, (void *)gradient_call_clear},
    {Py_tp_call, (void *)gradient_call_call},
    {0, NULL},
};
static PyType_Spec gradient_call_spec = {"msprobe.pytorch.dump._hot.GradientCall", sizeof(GradientCall), 0,
                                Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_DISALLOW_INSTANTIATION, gradient_call_slots};

/* The rows of the trace, in one piece of memory. */
static int copy_plan(GradientCall *call, const Trace *trace)
{
    const Ints *const rows[] = {&trace->slot_first, &trace->slots, &trace->out_first, &trace->outs, &trace->in_first, &trace->places,
                                &trace->contributions, &trace->through};
    int **const to[] = {&call->slot_first, &call->slots, &call->out_first, &call->outs, &call->in_first, &call->places,
                        &call->contributions, &call->through};
    enum { ROWS = sizeof rows / sizeof *rows };
    size_t size = 0;
    for (int k = 0; k < ROWS; k++) size += (size_t)rows[k]->used;
    int *at = PyMem_Malloc((size + 1) * sizeof *at);
    if (!at) return no_memory();
    for (int k = 0; k < ROWS; k++) {
        *to[k] = at;
        memcpy(at, rows[k]->items, (size_t)rows[k]->used * sizeof *at);
        at += rows[k]->used;
    }
    if (!trace->through.used) call->through = NULL;
    return 1;
}

/* 1, 0, or -1 with an error set. */
static int makes_views(const Trace *trace)
{
    for (Py_ssize_t k = 0; k < PyList_Size(trace->out_nodes); k++) {
        PyObject *node = PyList_GetItem(trace->out_nodes, k);
        int kind = PyLong_CheckExact(node) ? 0 : node_kind(node);
        if (kind < 0 || kind & VIEW) return kind < 0 ? -1 : 1;
    }
    return 0;
}

static GradientCall *new_gradient_call(Observers *o, PyObject *name, PyObject *parent, const Trace *trace, int outputs, int inputs)
{
    int views = trace->one ? 0 : makes_views(trace);
    GradientCall *call = views < 0 ? NULL : PyObject_GC_New(GradientCall, gradient_call_type);
    if (!call) return NULL;
    memset((char *)call + sizeof(PyObject), 0, sizeof *call - sizeof(PyObject));
    Py_INCREF(o);
    Py_INCREF(name);
    Py_INCREF(parent);
    call->observers = o;
    call->name = name;
    call->parent = parent;
    call->outputs = outputs;
    call->inputs = inputs;
    call->one = trace->one;
    call->gives_view = views;
    call->out_nodes = (int)PyList_Size(trace->out_nodes);
    call->in_nodes = (int)PyList_Size(trace->in_nodes);
    call->targets = trace->targets;
    call->inner = trace->inner;
    if (trace->dtypes && PyDict_Size(trace->dtypes)) {
        Py_INCREF(trace->dtypes);
        call->dtypes = trace->dtypes;
    }
    if (!copy_plan(call, trace)) Py_CLEAR(call);
    else PyObject_GC_Track(call);
    return call;
}

/* --- watch ------------------------------------------------------------------------------------------------------------------------------------ */
/* The edges of tensors; where reading one fails (a view whose base was changed as autograd forbids) it is told, and none is there. */
static int edges_of(Observers *o, PyObject *name, PyObject *tensors, EdgeList *edges)
{
    Py_ssize_t count = PyList_Size(tensors);
    for (Py_ssize_t k = 0; k < count; k++) {
        PyObject *tensor = PyList_GetItem(tensors, k);
        Py_INCREF(tensor);
        int ok = edges_add_tensor(edges, tensor)
              || (contained(o->sink, name, "the gradient of a tensor cannot be followed") && edges_add(edges, NULL, NULL, 0));
        Py_DECREF(tensor);
        if (!ok) return 0;
    }
    return count >= 0;
}

/* What views whose place was not known have become since: see GradientObservers._settled. */
static int settle_views(Observers *o, PyObject *name, EdgeList *edges, const char *role)
{
    int open = 0;
    for (int k = 0; k < edges->count; k++) open = open || (!edges->edges[k].key && edges->edges[k].node);
    if (!open) return 1;
    PyObject *list = list_of_edges(edges), *settled = list ? PyObject_CallMethod((PyObject *)o, "_settled", "OOs", name, list, role) : NULL;
    edges_free(edges);
    edges_init(edges);
    int ok = settled && edges_from_list(edges, settled);
    Py_XDECREF(list);
    Py_XDECREF(settled);
    return ok;
}

/* The nodes of the outputs that are leaves, by the leaf's id; NULL without an error where none is. */
static PyObject *nodes_of_leaves(Observers *o, const Trace *trace, PyObject *tensors)
{
    PyObject *wanted = NULL, *nodes = NULL;
    for (Py_ssize_t k = 0; k < PyList_Size(trace->out_nodes); k++) {
        PyObject *node = PyList_GetItem(trace->out_nodes, k);
        if (!PyLong_CheckExact(node)) continue;
        if (!wanted) wanted = PySet_New(NULL);
        if (!wanted || PySet_Add(wanted, node) < 0) goto done;
    }
    if (wanted) nodes = PyObject_CallMethodObjArgs((PyObject *)o, n__leaf_nodes, wanted, tensors, NULL);
done:
    Py_XDECREF(wanted);
    return nodes;
}

static int put_observer(Observers *o, GradientCall *call, int kind, int k, PyObject *node, int always)
{
    PyObject *hook = new_hook(call, kind, k);
    int ok = hook && observe(o, node, kind == OUTPUT_NODE ? n_register_prehook : n_register_hook, hook, always);
    Py_XDECREF(hook);
    return ok;
}

/* Puts the observers of a call on the graph. tensors: the outputs, of which some may be leaves. */
static int attach(Observers *o, GradientCall *call, const Trace *trace, PyObject *tensors)
{
    if (call->one) return put_observer(o, call, ONE_NODE, 0, PyList_GetItem(trace->out_nodes, 0), 0);
    PyObject *leaves = nodes_of_leaves(o, trace, tensors);
    int ok = leaves || !PyErr_Occurred();
    for (int k = 0; ok && k < call->out_nodes; k++) {
        PyObject *node = PyList_GetItem(trace->out_nodes, k);
        int is_leaf = PyLong_CheckExact(node);
        if (is_leaf) node = PyObject_GetItem(leaves, node);
        else Py_INCREF(node);
        /* A leaf's node outlives the step: nothing of ours may stay on it, whether it fired or not. */
        ok = node && put_observer(o, call, OUTPUT_NODE, k, node, is_leaf);
        Py_XDECREF(node);
    }
    for (int k = 0; ok && k < call->in_nodes; k++) ok = put_observer(o, call, INPUT_NODE, k, PyList_GetItem(trace->in_nodes, k), 0);
    Py_XDECREF(leaves);
    return ok;
}

/* A view was changed in place inside the call. */
static int tell_cut(Observers *o, PyObject *name, const EdgeList *outputs, const EdgeList *inputs, const Trace *trace)
{
    PyObject *out = list_of_edges(outputs), *in = list_of_edges(inputs), *slots = list_of_slots(trace), *told = NULL;
    PyObject *contributions = list_of_contributions(trace);
    if (out && in && slots && contributions)
        told = PyObject_CallMethodObjArgs((PyObject *)o, n__tell_cut, name, out, in, slots, contributions, NULL);
    Py_XDECREF(out);
    Py_XDECREF(in);
    Py_XDECREF(slots);
    Py_XDECREF(contributions);
    Py_XDECREF(told);
    return told != NULL;
}

/* The walk has ended at nodes of another thread. */
static int tell_elsewhere(Observers *o, PyObject *name, const Trace *trace)
{
    PyObject *slots = list_of_slots(trace), *contributions = list_of_contributions(trace), *through = dict_of_through(trace), *told = NULL;
    if (slots && contributions && through)
        told = PyObject_CallMethodObjArgs((PyObject *)o, n__tell_elsewhere, name, slots, contributions, through, NULL);
    Py_XDECREF(slots);
    Py_XDECREF(contributions);
    Py_XDECREF(through);
    Py_XDECREF(told);
    return told != NULL;
}

/* Records the gradients of one call from now on: see GradientObservers.watch. tensors: a list. 0: an error is set. */
static int watch_call(Observers *o, PyObject *name, PyObject *parent, PyObject *tensors, const EdgeList *inputs, long long floor)
{
    EdgeList outputs;
    edges_init(&outputs);
    int ok = observers_ready(o) && edges_of(o, name, tensors, &outputs) && settle_views(o, name, &outputs, "input");
    for (int k = 0; ok && k < outputs.count; k++) ok = !outputs.edges[k].key || add_maker(o, outputs.edges + k, name);
    if (ok) {
        Trace trace;
        ok = trace_graph(&trace, &outputs, inputs, floor);
        if (ok && trace.changed) ok = tell_cut(o, name, &outputs, inputs, &trace);
        if (ok && trace.elsewhere) ok = tell_elsewhere(o, name, &trace);
        if (ok && PyList_Size(trace.out_nodes)) {
            GradientCall *call = new_gradient_call(o, name, parent, &trace, outputs.count, inputs->count);
            ok = call && attach(o, call, &trace, tensors);
            Py_XDECREF(call);
        }
        trace_free(&trace);
    }
    edges_free(&outputs);
    return ok;
}

PyDoc_STRVAR(watch_doc, "watch(name, parent, tensors, inputs, floor, /)\n--\n\nSee GradientObservers.watch.");

static PyObject *observers_watch(PyObject *self, PyObject *const *args, Py_ssize_t nargs)
{
    if (nargs != 5 || !PyUnicode_Check(args[0])) return PyErr_Format(PyExc_TypeError, "watch() takes a name and 4 arguments more");
    long long floor = PyLong_AsLongLong(args[4]);
    if (floor == -1 && PyErr_Occurred()) return NULL;
    EdgeList inputs;
    edges_init(&inputs);
    int ok = edges_from_list(&inputs, args[3]) && settle_views((Observers *)self, args[0], &inputs, "output")
          && watch_call((Observers *)self, args[0], args[1], args[2], &inputs, floor);
    edges_free(&inputs);
    return ok ? Py_BuildValue("") : NULL;
}

static PyMethodDef observers_methods[] = {
    {"watch", (PyCFunction)(void (*)(void))observers_watch, METH_FASTCALL, watch_doc},
    {"close", observers_close, METH_NOARGS, close_doc},
    {"_end", observers_end, METH_O, end_doc},
    {"_makers_of", observers_makers_of, METH_O, makers_of_doc},
    {NULL, NULL, 0, NULL},
};
static PyType_Slot observers_slots[] = {
    {Py_tp_doc, (void *)"The part in C of a class that derives from it and from GradientObservers."},
    {Py_tp_dealloc, (void *)observers_dealloc},
    {Py_tp_traverse, (void *)observers_traverse},
    {Py_tp_clear, (void *)observers_clear},
    {Py_tp_members, observers_members},
    {Py_tp_methods, observers_methods},
    {0, NULL},
};
static PyType_Spec observers_spec = {"msprobe.pytorch.dump._hot.Observers", sizeof(Observers), 0,
                                     Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_BASETYPE, observers_slots};

PyDoc_STRVAR(set_helpers_doc, "set_helpers(total, from_outside, as_dtype, hooks, dispatch_modes, /)\n--\n\n"
"Functions of graph_pass.py for what is rare, the class of a node's or parameter's dictionary of hooks, and what tells how many dispatch\n"
"modes there are.");

static PyObject *set_helpers(PyObject *self, PyObject *args)
{
    (void)self;
    PyObject *total, *outside, *dtype, *hooks, *modes;
    if (!PyArg_ParseTuple(args, "OOOOO", &total, &outside, &dtype, &hooks, &modes)) return NULL;
    Py_INCREF(total);
    Py_INCREF(outside);
    Py_INCREF(dtype);
    Py_INCREF(hooks);
    Py_INCREF(modes);
    total_of = total;
    part_from_outside = outside;
    in_dtype = dtype;
    hooks_class = hooks;
    dispatch_modes = modes;
    Py_RETURN_NONE;
}

/* A type that is in the module under its name; NULL with an error set. */
static PyTypeObject *add_type(PyObject *module, const char *name, PyType_Spec *spec)
{
    PyObject *type = PyType_FromSpec(spec);
    if (!type || PyModule_AddObjectRef(module, name, type) < 0) Py_CLEAR(type);
    return (PyTypeObject *)type;
}

static int gradient_calls_init(PyObject *module)
{
    EACH_GRADIENT_NAME(MAKE_NAME)
    return graph_init() && (observers_type = add_type(module, "Observers", &observers_spec)) && (gradient_call_type = add_type(module, "GradientCall", &gradient_call_spec))
        && (hook_type = add_type(module, "NodeHook", &hook_spec));
}

#define GRADIENT_CALLS_METHODS \
    GRAPH_METHODS \
    {"set_helpers", set_helpers, METH_VARARGS, set_helpers_doc}, \
    NODE_HOOKS_METHODS

#endif
