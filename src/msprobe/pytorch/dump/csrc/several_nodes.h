/* The gradients of a call that is several nodes of the graph, collected over one backward pass: the twin of `GraphCall` in graph_call.py. */
#ifndef MSPROBE_SEVERAL_NODES_H
#define MSPROBE_SEVERAL_NODES_H

#include "call_gradients.h"

static void clear_sums(GradientCall *call)
{
    for (int k = 0; call->sums && k < call->targets + call->inner; k++) {
        Py_CLEAR(call->sums[k].given);
        call->sums[k].count = 0;
    }
}

/* Where contributions to a target, or to an inner edge (below 0), are kept; NULL: no memory. */
static Sum *sum_of(GradientCall *call, int edge)
{
    if (!call->sums && !(call->sums = PyMem_Calloc((size_t)(call->targets + call->inner) + 1, sizeof *call->sums))) {
        PyErr_NoMemory();
        return NULL;
    }
    return call->sums + (edge >= 0 ? edge : call->targets - 1 - edge);
}

/* Records one gradient in its slots; NULL is an error that is set. */
static int record_gradient(GradientCall *call, PyObject *gradient, int received, const int *slots, int count)
{
    if (!gradient || gradient == Py_None) return gradient != NULL;
    Observers *o = call->observers;
    PyObject *list = received ? call->received : call->passed_on, *name = with_pass(call, call->name);
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
    if (ok) call->tensors += records.encoding.tensors;
    return ok;
}

static int record_target(GradientCall *call, PyObject *gradient, int target)
{
    int first = call->slot_first[target];
    return record_gradient(call, gradient, 0, call->slots + first, call->slot_first[target + 1] - first);
}

/* Records the sum of contributions; takes the list, which may be NULL. */
static int record_sum(GradientCall *call, PyObject *given, int target)
{
    if (!given) return 1;
    PyObject *sum = sum_of_gradients(given);
    int ok = record_target(call, sum, target);
    Py_XDECREF(sum);
    Py_DECREF(given);
    return ok;
}

/* See GraphCall.contribute. */
static int add_contribution(GradientCall *call, int edge, PyObject *gradient)
{
    int places = edge >= 0 ? call->contributions[edge] : 0;
    if (places == 1) return record_target(call, gradient, edge);
    Sum *sum = sum_of(call, edge);
    if (!sum || (!sum->given && !(sum->given = PyList_New(0)))) return 0;
    if (gradient != Py_None && PyList_Append(sum->given, gradient) < 0) return 0;
    if (++sum->count != places) return 1;
    PyObject *given = sum->given;
    *sum = (Sum){NULL, 0};
    return record_sum(call, given, edge);
}

static int contribute(GradientCall *call, int edge, PyObject *gradient)
{
    if (!gradient) return 0;
    if (!call->dtypes || edge < 0 || gradient == Py_None) return add_contribution(call, edge, gradient);
    PyObject *at = PyLong_FromLong(edge), *dtype = at ? PyDict_GetItemWithError(call->dtypes, at) : NULL;
    Py_XDECREF(at);
    if (!dtype) return !PyErr_Occurred() && add_contribution(call, edge, gradient);
    PyObject *converted = call_quietly(in_dtype, gradient, dtype);
    int ok = converted && add_contribution(call, edge, converted);
    Py_XDECREF(converted);
    return ok;
}

/* The part of an output's gradient that comes from outside the call. A new reference. */
static PyObject *from_outside(GradientCall *call, int edge, PyObject *gradient)
{
    Sum *sum = sum_of(call, edge);
    if (!sum) return NULL;
    PyObject *given = sum->given, *part = gradient;
    *sum = (Sum){NULL, 0};
    if (given && PyList_Size(given) && gradient != Py_None) part = call_quietly(part_from_outside, given, gradient);
    else Py_INCREF(part);
    Py_XDECREF(given);
    return part;
}

/* Puts the entry into the dump. */
static int place_entry(GradientCall *call)
{
    if (!call->received && !(call->received = PyList_New(0))) return 0;
    if (!call->passed_on && !(call->passed_on = PyList_New(0))) return 0;
    PyObject *name = with_pass(call, call->name);
    PyObject *entry = name ? write_entry(call, name, call->received, call->passed_on, 0) : NULL;
    Py_XDECREF(name);
    if (!entry) return 0;
    replace(&call->entry, entry);
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

/* The entry is final. */
static int complete(GradientCall *call)
{
    Observers *o = call->observers;
    if (!call->entry && !place_entry(call)) return 0;
    if (call->gives_view && !any_of(call->received) && any_of(call->passed_on)) {
        /* Gradients went through the call, and none came by its output. */
        PyObject *told = PyObject_CallMethodObjArgs((PyObject *)o, n_report_cut, call->name, NULL);
        Py_XDECREF(told);
        if (!told) return 0;
    }
    if (PyErr_Occurred()) return 0;
    Py_CLEAR(call->received);
    Py_CLEAR(call->passed_on);
    clear_sums(call);
    o->tensors += call->tensors;
    PyObject *entry = call->entry;
    Py_INCREF(entry); /* another thread may begin the next pass meanwhile */
    int ok = entry_finish(o->writer, entry);
    Py_DECREF(entry);
    return ok;
}

/* The backward pass is over: what has not come does not come. */
static int finish_pass(PyObject *self, long long task)
{
    GradientCall *call = (GradientCall *)self;
    if (!call->left || task != call->task) return 1;
    for (int k = 0; call->sums && k < call->targets; k++) {
        PyObject *given = call->sums[k].given;
        call->sums[k] = (Sum){NULL, 0};
        if (!record_sum(call, given, k)) {
            clear_sums(call); /* what cannot be summed must not keep later passes from being recorded */
            return 0;
        }
    }
    clear_sums(call);
    call->left = 0;
    return complete(call);
}

/* Each observer calls it first; 1, 0 where nothing is to be recorded, or -1 with an error set. */
static int begin_pass(GradientCall *call)
{
    Observers *o = call->observers;
    int late = is_late(call);
    if (late) return late < 0 ? -1 : 0;
    long long task = ask_long(graph_task);
    if (task == -1 && PyErr_Occurred()) return -1;
    o->task = task;
    if (task == call->task && call->left) return 1;
    if (call->left && !finish_pass((PyObject *)call, call->task)) return -1;
    call->task = task;
    call->passes++;
    call->left = call->out_nodes + call->in_nodes;
    call->inputs_left = call->in_nodes;
    call->tensors = 0;
    Py_CLEAR(call->entry);
    replace(&call->received, list_of_none(call->outputs));
    replace(&call->passed_on, list_of_none(call->inputs));
    clear_sums(call);
    if (!call->received || !call->passed_on) return -1;
    if (call->left > 1 && !call_at_end(o, task, (PyObject *)call)) return -1;
    return 1;
}

/* One node is through; the last one completes the entry. When all nodes at the inputs are through, the entry takes its place in the dump:
   outputs that still lack a gradient mostly get none. */
static int node_is_through(GradientCall *call)
{
    if (--call->left == 0) return complete(call);
    return call->entry || !call->in_nodes || call->inputs_left || place_entry(call);
}

/* A node that made outputs. */
static int outputs_arrived(GradientCall *call, int node, PyObject *gradients)
{
    for (int k = call->out_first[node]; k < call->out_first[node + 1]; k++) {
        const int *out = call->outs + 3 * k;
        PyObject *gradient = PyTuple_GetItem(gradients, out[1]);
        if (!gradient) return 0;
        int target = call->through ? call->through[out[0]] : -1, ok;
        if (target >= 0 && !record_target(call, gradient, target)) return 0;
        if (out[2]) {
            gradient = from_outside(call, out[2], gradient);
            ok = record_gradient(call, gradient, 1, out, 1);
            Py_XDECREF(gradient);
        } else {
            ok = record_gradient(call, gradient, 1, out, 1);
        }
        if (!ok) return 0;
    }
    return node_is_through(call);
}

/* A node that leads to inputs. */
static int inputs_left_node(GradientCall *call, int node, PyObject *gradients)
{
    for (int k = call->in_first[node]; k < call->in_first[node + 1]; k++)
        if (!contribute(call, call->places[2 * k + 1], PyTuple_GetItem(gradients, call->places[2 * k]))) return 0;
    call->inputs_left--;
    return node_is_through(call);
}

/* --- the object ------------------------------------------------------------------------------------------------------------------------ */
static int gradient_call_traverse(PyObject *self, visitproc visit, void *arg)
{
    GradientCall *call = (GradientCall *)self;
    Py_VISIT(Py_TYPE(self));
    Py_VISIT(call->observers);
    Py_VISIT(call->entry);
    Py_VISIT(call->received);
    Py_VISIT(call->passed_on);
    for (int k = 0; call->sums && k < call->targets + call->inner; k++) Py_VISIT(call->sums[k].given);
    return 0;
}

static int gradient_call_clear(PyObject *self)
{
    GradientCall *call = (GradientCall *)self;
    Py_CLEAR(call->observers);
    Py_CLEAR(call->entry);
    Py_CLEAR(call->received);
    Py_CLEAR(call->passed_on);
    clear_sums(call);
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
    PyMem_Free(call->sums);
    PyMem_Free(call->slot_first);
    PyObject_GC_Del(self);
    Py_DECREF(type);
}

#endif
