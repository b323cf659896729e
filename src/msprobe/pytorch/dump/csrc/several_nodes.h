/* The gradients of a call that is several nodes of the graph, collected over each backward pass for itself: the twin of `GraphCall` and
   `GraphPass` in graph_call.py and graph_pass.py. */
#ifndef MSPROBE_SEVERAL_NODES_H
#define MSPROBE_SEVERAL_NODES_H

#include "call_gradients.h"

static void clear_sums(const GradientCall *call, Pass *pass)
{
    for (int k = 0; pass->sums && k < call->targets + call->inner; k++) {
        Py_CLEAR(pass->sums[k].given);
        pass->sums[k].count = 0;
    }
}

/* Where contributions to a target, or to an inner edge (below 0), are kept; NULL: no memory. */
static Sum *sum_of(const GradientCall *call, Pass *pass, int edge)
{
    if (!pass->sums && !(pass->sums = PyMem_Calloc((size_t)(call->targets + call->inner) + 1, sizeof *pass->sums))) {
        PyErr_NoMemory();
        return NULL;
    }
    return pass->sums + (edge >= 0 ? edge : call->targets - 1 - edge);
}

/* Records one gradient in its slots; NULL is an error that is set. */
static int record_gradient(GradientCall *call, Pass *pass, PyObject *gradient, int received, const int *slots, int count)
{
    if (!gradient || gradient == Py_None) return gradient != NULL;
    Observers *o = call->observers;
    PyObject *list = received ? pass->received : pass->passed_on, *name = with_pass(pass->number, call->name);
    if (!name || !list) {
        Py_XDECREF(name);
        if (!PyErr_Occurred()) PyErr_SetString(PyExc_IndexError, "list assignment index out of range");
        return 0;
    }
    Py_INCREF(list); /* another thread may end the pass meanwhile */
    Records records;
    records_begin(&records, o->encoder, o->table, name, received ? n_input : n_output, NULL);
    int ok = records_end(&records, record_into(&records, list, slots, count, gradient));
    Py_DECREF(list);
    Py_DECREF(name);
    if (ok) pass->tensors += records.encoding.tensors;
    return ok;
}

static int record_target(GradientCall *call, Pass *pass, PyObject *gradient, int target)
{
    int first = call->slot_first[target];
    return record_gradient(call, pass, gradient, 0, call->slots + first, call->slot_first[target + 1] - first);
}

/* Records the sum of contributions; takes the list, which may be NULL. */
static int record_sum(GradientCall *call, Pass *pass, PyObject *given, int target)
{
    if (!given) return 1;
    PyObject *sum = sum_of_gradients(given);
    int ok = record_target(call, pass, sum, target);
    Py_XDECREF(sum);
    Py_DECREF(given);
    return ok;
}

/* See GraphPass.contribute. */
static int add_contribution(GradientCall *call, Pass *pass, int edge, PyObject *gradient)
{
    int places = edge >= 0 ? call->contributions[edge] : 0;
    if (places == 1) return record_target(call, pass, gradient, edge);
    Sum *sum = sum_of(call, pass, edge);
    if (!sum || (!sum->given && !(sum->given = PyList_New(0)))) return 0;
    if (gradient != Py_None && PyList_Append(sum->given, gradient) < 0) return 0;
    if (++sum->count != places) return 1;
    PyObject *given = sum->given;
    *sum = (Sum){NULL, 0};
    return record_sum(call, pass, given, edge);
}

static int contribute(GradientCall *call, Pass *pass, int edge, PyObject *gradient)
{
    if (!gradient) return 0;
    if (!call->dtypes || edge < 0 || gradient == Py_None) return add_contribution(call, pass, edge, gradient);
    PyObject *at = PyLong_FromLong(edge), *dtype = at ? PyDict_GetItemWithError(call->dtypes, at) : NULL;
    Py_XDECREF(at);
    if (!dtype) return !PyErr_Occurred() && add_contribution(call, pass, edge, gradient);
    PyObject *converted = call_quietly(in_dtype, gradient, dtype);
    int ok = converted && add_contribution(call, pass, edge, converted);
    Py_XDECREF(converted);
    return ok;
}

/* The part of an output's gradient that comes from outside the call. A new reference. */
static PyObject *from_outside(const GradientCall *call, Pass *pass, int edge, PyObject *gradient)
{
    Sum *sum = sum_of(call, pass, edge);
    if (!sum) return NULL;
    PyObject *given = sum->given, *part = gradient;
    *sum = (Sum){NULL, 0};
    if (given && PyList_Size(given) && gradient != Py_None) part = call_quietly(part_from_outside, given, gradient);
    else Py_INCREF(part);
    Py_XDECREF(given);
    return part;
}

/* Puts the entry into the dump. */
static int place_entry(GradientCall *call, Pass *pass)
{
    if (!pass->received && !(pass->received = PyList_New(0))) return 0;
    if (!pass->passed_on && !(pass->passed_on = PyList_New(0))) return 0;
    PyObject *name = with_pass(pass->number, call->name);
    PyObject *entry = name ? write_entry(call, pass->number, name, pass->received, pass->passed_on, 0) : NULL;
    Py_XDECREF(name);
    if (!entry) return 0;
    replace(&pass->entry, entry);
    return 1;
}

static int any_of(PyObject *list)
{
    for (Py_ssize_t k = 0; list && k < PyList_Size(list); k++) {
        int yes = PyObject_IsTrue(PyList_GetItem(list, k));
        if (yes) return yes;
    }
    return 0;
}

static int conclude(GradientCall *call, Pass *pass)
{
    Observers *o = call->observers;
    if (!pass->entry && !place_entry(call, pass)) return 0;
    if (call->gives_view && !any_of(pass->received) && any_of(pass->passed_on)) {
        /* Gradients went through the call, and none came by its output. */
        PyObject *told = PyObject_CallMethodObjArgs((PyObject *)o, n_report_cut, call->name, NULL);
        Py_XDECREF(told);
        if (!told) return 0;
    }
    if (PyErr_Occurred()) return 0;
    o->tensors += pass->tensors;
    PyObject *entry = pass->entry;
    Py_INCREF(entry);
    int ok = entry_finish(o->writer, entry);
    Py_DECREF(entry);
    return ok;
}

/* The entry is final. */
static int complete(GradientCall *call, Pass *pass)
{
    int ok = conclude(call, pass);
    Py_CLEAR(pass->entry);
    Py_CLEAR(pass->received);
    Py_CLEAR(pass->passed_on);
    clear_sums(call, pass);
    pass->used = 0;
    return ok;
}

/* The running pass of a backward pass; NULL where none is. */
static Pass *pass_of(GradientCall *call, long long task)
{
    Pass *pass = &call->first;
    while (pass && !(pass->used && pass->left && pass->task == task)) pass = pass->next;
    return pass;
}

/* The backward pass is over: what has not come does not come. */
static int finish_pass(PyObject *self, long long task)
{
    GradientCall *call = (GradientCall *)self;
    Pass *pass = pass_of(call, task);
    if (!pass) return 1;
    int ok = 1;
    for (int k = 0; ok && pass->sums && k < call->targets; k++) {
        PyObject *given = pass->sums[k].given;
        pass->sums[k] = (Sum){NULL, 0};
        ok = record_sum(call, pass, given, k);
    }
    pass->left = 0;
    if (ok) return complete(call, pass);
    PyObject *type, *error, *trace; /* what cannot be summed is missing, and the entry complete */
    PyErr_Fetch(&type, &error, &trace);
    if (complete(call, pass)) {
        PyErr_Restore(type, error, trace);
    } else {
        Py_XDECREF(type);
        Py_XDECREF(error);
        Py_XDECREF(trace);
    }
    return 0;
}

/* A pass that begins; NULL with an error set. Several run at a time where a hook of the user's begins one, or other threads do. */
static Pass *new_pass(GradientCall *call, long long task)
{
    Pass *pass = &call->first;
    while (pass->used && pass->next) pass = pass->next;
    if (pass->used) {
        if (!(pass->next = PyMem_Calloc(1, sizeof *pass))) return (Pass *)PyErr_NoMemory();
        pass = pass->next;
    }
    pass->used = 1;
    pass->task = task;
    pass->number = ++call->passes;
    pass->left = call->out_nodes + call->in_nodes;
    pass->inputs_left = call->in_nodes;
    pass->tensors = 0;
    pass->received = list_of_none(call->outputs);
    pass->passed_on = list_of_none(call->inputs);
    if (!pass->received || !pass->passed_on) return NULL;
    if (pass->left > 1 && !call_at_end(call->observers, task, (PyObject *)call)) return NULL;
    return pass;
}

/* Each observer calls it first; NULL without an error where nothing is to be recorded. */
static Pass *begin_pass(GradientCall *call)
{
    Observers *o = call->observers;
    if (is_late(call)) return NULL;
    long long task = ask_long(graph_task);
    if (task == -1 && PyErr_Occurred()) return NULL;
    o->task = task;
    Pass *pass = pass_of(call, task);
    return pass ? pass : new_pass(call, task);
}

/* One node is through; the last one completes the entry. When all nodes at the inputs are through, the entry takes its place in the dump:
   outputs that still lack a gradient mostly get none. */
static int node_is_through(GradientCall *call, Pass *pass)
{
    if (--pass->left == 0) return complete(call, pass);
    return pass->entry || !call->in_nodes || pass->inputs_left || place_entry(call, pass);
}

/* A node that made outputs. */
static int outputs_arrived(GradientCall *call, Pass *pass, int node, PyObject *gradients)
{
    for (int k = call->out_first[node]; k < call->out_first[node + 1]; k++) {
        const int *out = call->outs + 3 * k;
        PyObject *gradient = PyTuple_GetItem(gradients, out[1]);
        if (!gradient) return 0;
        int target = call->through ? call->through[out[0]] : -1, ok;
        if (target >= 0 && !record_target(call, pass, gradient, target)) return 0;
        if (out[2]) {
            gradient = from_outside(call, pass, out[2], gradient);
            ok = record_gradient(call, pass, gradient, 1, out, 1);
            Py_XDECREF(gradient);
        } else {
            ok = record_gradient(call, pass, gradient, 1, out, 1);
        }
        if (!ok) return 0;
    }
    return node_is_through(call, pass);
}

/* A node that leads to inputs. */
static int inputs_left_node(GradientCall *call, Pass *pass, int node, PyObject *gradients)
{
    for (int k = call->in_first[node]; k < call->in_first[node + 1]; k++)
        if (!contribute(call, pass, call->places[2 * k + 1], PyTuple_GetItem(gradients, call->places[2 * k]))) return 0;
    pass->inputs_left--;
    return node_is_through(call, pass);
}

/* --- the object ------------------------------------------------------------------------------------------------------------------------ */
static int gradient_call_traverse(PyObject *self, visitproc visit, void *arg)
{
    GradientCall *call = (GradientCall *)self;
    Py_VISIT(Py_TYPE(self));
    Py_VISIT(call->observers);
    for (const Pass *pass = &call->first; pass; pass = pass->next) {
        Py_VISIT(pass->entry);
        Py_VISIT(pass->received);
        Py_VISIT(pass->passed_on);
        for (int k = 0; pass->sums && k < call->targets + call->inner; k++) Py_VISIT(pass->sums[k].given);
    }
    return 0;
}

static int gradient_call_clear(PyObject *self)
{
    GradientCall *call = (GradientCall *)self;
    Py_CLEAR(call->observers);
    for (Pass *pass = &call->first; pass; pass = pass->next) {
        Py_CLEAR(pass->entry);
        Py_CLEAR(pass->received);
        Py_CLEAR(pass->passed_on);
        clear_sums(call, pass);
    }
    return 0;
}

static void gradient_call_dealloc(PyObject *self)
{
    GradientCall *call = (GradientCall *)self;
    PyTypeObject *type = Py_TYPE(self);
    PyObject_GC_UnTrack(self);
    gradient_call_clear(self);
    Py_XDECREF(call->name);
    Py_XDECREF(call->parent);
    Py_XDECREF(call->dtypes);
    PyMem_Free(call->first.sums);
    for (Pass *pass = call->first.next, *next; pass; pass = next) {
        next = pass->next;
        PyMem_Free(pass->sums);
        PyMem_Free(pass);
    }
    PyMem_Free(call->slot_first);
    PyObject_GC_Del(self);
    Py_DECREF(type);
}

#endif
