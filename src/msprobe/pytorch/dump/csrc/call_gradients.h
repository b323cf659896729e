/* The gradients of one call on their way into an entry: the twin of `OneNodeCall` in call_gradients.py. */
#ifndef MSPROBE_CALL_GRADIENTS_H
#define MSPROBE_CALL_GRADIENTS_H

#include "observers.h"

/* Contributions to one gradient that have come so far. */
typedef struct {
    PyObject *given; /* list, or NULL */
    int count;
} Sum;

/* One backward pass of a call that is several nodes: the twin of `GraphPass` in graph_pass.py. It is freed with its call, and used again when
   its entry is final, so that another thread may still hold it. */
typedef struct Pass {
    struct Pass *next;
    int used; /* its entry is not final yet */
    long long task;
    int number, left, inputs_left;
    long tensors;
    PyObject *entry, *received, *passed_on; /* NULL: none yet */
    Sum *sums;                              /* one for each target, then one for each inner edge; NULL where nothing was ever summed */
} Pass;

/* Held by the observers on its nodes; it holds no node itself, or the graph would never be freed. */
typedef struct {
    PyObject_HEAD
    Observers *observers;
    PyObject *name, *parent;
    int outputs, inputs; /* how many slots there are */
    int one, told_late, gives_view;
    int out_nodes, in_nodes, targets, inner;
    int passes;
    /* The plan, in one piece of memory; see Trace for what is in the rows. `through`: NULL where no output is an input itself. */
    int *slot_first, *slots, *out_first, *outs, *in_first, *places, *contributions, *through;
    PyObject *dtypes; /* or NULL */
    Pass first; /* of a call that is several nodes: mostly the only one */
} GradientCall;

/* The name of an entry in the pass with this number, from 1. */
static PyObject *with_pass(int number, PyObject *name)
{
    if (number == 1) {
        Py_INCREF(name);
        return name;
    }
    return PyUnicode_FromFormat("%U.pass%d", name, number - 1);
}

/* 1: the step has ended, which is told once for each call; 0: it has not; -1: an error is set. */
static int is_late(GradientCall *call)
{
    if (!call->observers->closed) return 0;
    if (call->told_late) return 1;
    call->told_late = 1;
    PyObject *told = PyObject_CallFunctionObjArgs(call->observers->late, call->name, NULL);
    Py_XDECREF(told);
    return told ? 1 : -1;
}

static PyObject *list_of_none(int count)
{
    PyObject *list = PyList_New(count);
    for (int k = 0; list && k < count; k++) {
        Py_INCREF(Py_None);
        PyList_SetItem(list, k, Py_None);
    }
    return list;
}

/* Puts the records of one gradient into slots of a list; 0 with an error set. */
static int record_into(Records *records, PyObject *list, const int *slots, int count, PyObject *gradient)
{
    for (int k = 0; k < count; k++) {
        PyObject *slot = PyLong_FromLong(slots[k]);
        PyObject *record = slot ? gradient_record(records, gradient, slot) : NULL;
        Py_XDECREF(slot);
        if (!record || PyList_SetItem(list, slots[k], record) < 0) return 0;
    }
    return 1;
}

/* A new entry with the gradients of a pass; NULL with an error set. */
static PyObject *write_entry(GradientCall *call, int number, PyObject *name, PyObject *received, PyObject *passed_on, int done)
{
    Observers *o = call->observers;
    PyObject *entry = NULL, *data = PyDict_New(), *parent = call->parent;
    if (parent != Py_None && number > 1) parent = with_pass(number, parent);
    else Py_INCREF(parent);
    if (data && parent && PyDict_SetItem(data, n_input, received) == 0 && PyDict_SetItem(data, n_output, passed_on) == 0) {
        o->calls++;
        if (!o->keeps_construct || add_call(o->writer, name, parent)) entry = entry_add(o->writer, name, data, done, 0);
    }
    Py_XDECREF(data);
    Py_XDECREF(parent);
    return entry;
}

/* 1 where the gradients can be added as they are: nobody would see it. 0, or -1 with an error set. */
static int can_add(PyObject *gradients)
{
    int enabled = ask_yes(grad_enabled);
    long long modes = enabled ? -1 : ask_long(dispatch_modes);
    if (enabled || modes) return enabled < 0 || (modes < 0 && PyErr_Occurred()) ? -1 : 0;
    for (Py_ssize_t k = 0; k < PyList_Size(gradients); k++) {
        PyObject *gradient = PyList_GetItem(gradients, k);
        int attached = (PyObject *)Py_TYPE(gradient) == PyTuple_GetItem(tensor_classes, 0) ? says(gradient, n_requires_grad) : 1;
        if (attached) return attached < 0 ? -1 : 0;
    }
    return PyList_Size(gradients) > 0;
}

/* The sum of the contributions to one gradient: what call_gradients.total gives. */
static PyObject *sum_of_gradients(PyObject *gradients)
{
    int plain = can_add(gradients);
    if (plain <= 0) return plain < 0 ? NULL : call_quietly(total_of, gradients, NULL);
    PyObject *sum = PyList_GetItem(gradients, 0);
    Py_INCREF(sum);
    for (Py_ssize_t k = 1; sum && k < PyList_Size(gradients); k++) {
        PyObject *before = sum;
        sum = PyNumber_Add(before, PyList_GetItem(gradients, k));
        Py_DECREF(before);
    }
    return sum;
}

/* --- a call that is one node ------------------------------------------------------------------------------------------------------------ */
/* The gradient for one target: that of its place, or the sum of several. A new reference. */
static PyObject *at_places(const GradientCall *call, int target, PyObject *gradients)
{
    int first = call->in_first[target], count = call->in_first[target + 1] - first;
    PyObject *list = count == 1 ? NULL : PyList_New(0), *gradient = NULL;
    if (count != 1 && !list) return NULL;
    for (int k = 0; k < count; k++) {
        gradient = PyTuple_GetItem(gradients, call->places[first + k]);
        if (!gradient || (list && PyList_Append(list, gradient) < 0)) {
            Py_XDECREF(list);
            return NULL;
        }
    }
    if (!list) {
        Py_INCREF(gradient);
        return gradient;
    }
    PyObject *sum = sum_of_gradients(list);
    Py_DECREF(list);
    return sum;
}

static int record_received(GradientCall *call, Records *records, PyObject *received, PyObject *gradients)
{
    for (int k = 0; k < call->out_first[1]; k++) {
        const int *out = call->outs + 3 * k;
        PyObject *gradient = PyTuple_GetItem(gradients, out[1]);
        if (!gradient || (gradient != Py_None && !record_into(records, received, out, 1, gradient))) return 0;
    }
    return 1;
}

static int record_passed_on(GradientCall *call, Records *records, PyObject *passed_on, PyObject *gradients)
{
    for (int k = 0; k < call->targets; k++) {
        PyObject *gradient = at_places(call, k, gradients);
        int first = call->slot_first[k];
        int ok = gradient && (gradient == Py_None || record_into(records, passed_on, call->slots + first, call->slot_first[k + 1] - first, gradient));
        Py_XDECREF(gradient);
        if (!ok) return 0;
    }
    return 1;
}

/* The whole pass at once; 0 with an error set. */
static int one_node_fired(GradientCall *call, PyObject *grad_inputs, PyObject *grad_outputs)
{
    Observers *o = call->observers;
    if (o->closed) return is_late(call) >= 0;
    double began = now();
    int number = ++call->passes;
    o->task = ask_long(graph_task);
    PyObject *name = PyErr_Occurred() ? NULL : with_pass(number, call->name);
    PyObject *received = list_of_none(call->outputs), *passed_on = list_of_none(call->inputs);
    Quiet quiet = {NULL};
    int ok = name && received && passed_on && quiet_begin(&quiet);
    if (ok) {
        Records records;
        records_begin(&records, o->encoder, o->table, name, n_input, NULL);
        ok = records_end(&records, record_received(call, &records, received, grad_outputs));
        long tensors = records.encoding.tensors;
        if (ok) {
            records_begin(&records, o->encoder, o->table, name, n_output, NULL);
            ok = records_end(&records, record_passed_on(call, &records, passed_on, grad_inputs));
        }
        if (ok) {
            PyObject *entry = write_entry(call, number, name, received, passed_on, 1);
            o->tensors += tensors + records.encoding.tensors;
            ok = entry != NULL;
            Py_XDECREF(entry);
        }
        quiet_end(&quiet);
    }
    Py_XDECREF(name);
    Py_XDECREF(received);
    Py_XDECREF(passed_on);
    if (ok) o->spent += now() - began;
    return ok;
}

#endif
