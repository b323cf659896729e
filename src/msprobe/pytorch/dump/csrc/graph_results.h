/* What Python gets of the graph: the functions that graph_walk.py calls. */
#ifndef MSPROBE_GRAPH_RESULTS_H
#define MSPROBE_GRAPH_RESULTS_H

#include "graph_walk.h"

/* A list of the integers from `from` to `to`. */
static PyObject *list_of_ints(const Ints *ints, int from, int to)
{
    PyObject *list = PyList_New(0);
    for (int k = from; list && k < to; k++)
        if (!append(list, PyLong_FromLong(ints->items[k]))) Py_CLEAR(list);
    return list;
}

/* A list of the pairs that begin at every `step`th integer from `from` to `to`. */
static PyObject *list_of_pairs(const Ints *ints, int from, int to, int step)
{
    PyObject *list = PyList_New(0);
    for (int k = from; list && k < to; k += step)
        if (!append(list, Py_BuildValue("(ii)", ints->items[k], ints->items[k + 1]))) Py_CLEAR(list);
    return list;
}

static PyObject *list_of_slots(const Trace *trace)
{
    PyObject *list = PyList_New(0);
    for (int k = 0; list && k < trace->targets; k++)
        if (!append(list, list_of_ints(&trace->slots, trace->slot_first.items[k], trace->slot_first.items[k + 1]))) Py_CLEAR(list);
    return list;
}

static PyObject *list_of_contributions(const Trace *trace) { return list_of_ints(&trace->contributions, 0, trace->targets); }

/* [(node, pairs)]: `width` integers belong to one pair. */
static PyObject *list_of_nodes(PyObject *nodes, const Ints *first, const Ints *rows, int width)
{
    PyObject *list = PyList_New(0);
    for (Py_ssize_t k = 0; list && k < PyList_Size(nodes); k++) {
        PyObject *pairs = list_of_pairs(rows, width * first->items[k], width * first->items[k + 1], width);
        if (!append(list, pairs ? Py_BuildValue("(ON)", PyList_GetItem(nodes, k), pairs) : NULL)) Py_CLEAR(list);
    }
    return list;
}

static PyObject *dict_of_inner(const Trace *trace)
{
    PyObject *inner = PyDict_New();
    for (int k = 0; inner && k < trace->ends.size && trace->inner; k++) {
        const Slot *end = trace->ends.slots + k;
        if (!end->node || end->value < 0) continue;
        PyObject *first = end->number == -1 ? PyLong_FromVoidPtr(end->node) : (PyObject *)end->node;
        if (end->number != -1) Py_INCREF(first);
        PyObject *edge = first ? Py_BuildValue("(Nl)", first, end->number) : NULL, *number = PyLong_FromLong(-1 - end->value);
        if (!edge || !number || PyDict_SetItem(inner, edge, number) < 0) Py_CLEAR(inner);
        Py_XDECREF(edge);
        Py_XDECREF(number);
    }
    return inner;
}

/* A dict, or None for an empty one. */
static PyObject *dict_of_through(const Trace *trace)
{
    if (!trace->through.used) return Py_BuildValue("");
    PyObject *through = PyDict_New();
    for (int slot = 0; through && slot < trace->through.used; slot++) {
        int target = trace->through.items[slot];
        if (target < 0) continue;
        PyObject *at = PyLong_FromLong(slot);
        PyObject *slots = list_of_ints(&trace->slots, trace->slot_first.items[target], trace->slot_first.items[target + 1]);
        if (!at || !slots || PyDict_SetItem(through, at, slots) < 0) Py_CLEAR(through);
        Py_XDECREF(at);
        Py_XDECREF(slots);
    }
    return through;
}

static PyObject *single_result(const Trace *trace)
{
    PyObject *positions = PyList_New(0);
    for (int k = 0; positions && k < trace->targets; k++) {
        PyObject *places = list_of_ints(&trace->places, trace->in_first.items[k], trace->in_first.items[k + 1]);
        PyObject *slots = list_of_ints(&trace->slots, trace->slot_first.items[k], trace->slot_first.items[k + 1]);
        PyObject *pair = places && slots ? PyTuple_Pack(2, places, slots) : NULL;
        Py_XDECREF(places);
        Py_XDECREF(slots);
        if (!append(positions, pair)) Py_CLEAR(positions);
    }
    PyObject *numbers = positions ? list_of_pairs(&trace->outs, 0, trace->outs.used, 3) : NULL;
    PyObject *result = numbers ? PyTuple_Pack(3, PyList_GetItem(trace->out_nodes, 0), numbers, positions) : NULL;
    Py_XDECREF(numbers);
    Py_XDECREF(positions);
    return result;
}

/* (outputs, places, slots, contributions, inner, dtypes, through, changed, elsewhere) */
static PyObject *walk_result(const Trace *trace)
{
    PyObject *parts[] = {list_of_nodes(trace->out_nodes, &trace->out_first, &trace->outs, 3),
                         list_of_nodes(trace->in_nodes, &trace->in_first, &trace->places, 2),
                         list_of_slots(trace),
                         list_of_contributions(trace),
                         dict_of_inner(trace),
                         dict_of_through(trace)};
    enum { COUNT = sizeof parts / sizeof *parts };
    int ok = 1;
    for (int k = 0; k < COUNT; k++) ok = ok && parts[k];
    PyObject *dtypes = trace->dtypes && PyDict_Size(trace->dtypes) ? trace->dtypes : Py_None;
    PyObject *result = ok ? PyTuple_Pack(9, parts[0], parts[1], parts[2], parts[3], parts[4], dtypes, parts[5],
                                         trace->changed ? Py_True : Py_False, trace->elsewhere ? Py_True : Py_False)
                          : NULL;
    for (int k = 0; k < COUNT; k++) Py_XDECREF(parts[k]);
    return result;
}

PyDoc_STRVAR(trace_doc, "trace(outputs, inputs, floor, /)\n--\n\nSee graph_walk.trace_in_python.");

static PyObject *graph_trace(PyObject *self, PyObject *const *args, Py_ssize_t nargs)
{
    (void)self;
    if (nargs != 3 || !leaf_class) return PyErr_Format(PyExc_TypeError, "trace() takes 3 positional arguments, after set_classes()");
    long long floor = PyLong_AsLongLong(args[2]);
    if (floor == -1 && PyErr_Occurred()) return NULL;
    EdgeList outputs, inputs;
    edges_init(&outputs);
    edges_init(&inputs);
    PyObject *result = NULL;
    if (edges_from_list(&outputs, args[0]) && edges_from_list(&inputs, args[1])) {
        Trace trace;
        if (trace_graph(&trace, &outputs, &inputs, floor)) result = trace.one ? single_result(&trace) : walk_result(&trace);
        trace_free(&trace);
    }
    edges_free(&outputs);
    edges_free(&inputs);
    return result;
}

PyDoc_STRVAR(edges_doc, "edges(tensors, /)\n--\n\nThe edge of each tensor; raises what reading one raises.");

static PyObject *graph_edges(PyObject *self, PyObject *tensors)
{
    (void)self;
    EdgeList edges;
    edges_init(&edges);
    Py_ssize_t count = PyList_Size(tensors);
    int ok = count >= 0;
    for (Py_ssize_t k = 0; ok && k < count; k++) ok = edges_add_tensor(&edges, PyList_GetItem(tensors, k));
    PyObject *list = ok ? list_of_edges(&edges) : NULL;
    edges_free(&edges);
    return list;
}

PyDoc_STRVAR(set_classes_doc, "set_classes(leaf, python, dtype_at, makes_view, numbers_given, main_thread, /)\n--\n\n"
"The class of leaves' nodes, that of nodes written in Python, the function that gives the dtype at an edge, the one that tells whether a\n"
"node makes a view, the one that gives this thread's sequence number, and the id of the main thread.");

static PyObject *set_classes(PyObject *self, PyObject *args)
{
    (void)self;
    PyObject *leaf, *python, *at, *view, *numbers;
    if (!PyArg_ParseTuple(args, "OOOOOk", &leaf, &python, &at, &view, &numbers, &main_thread)) return NULL;
    Py_INCREF(leaf);
    Py_INCREF(python);
    Py_INCREF(at);
    Py_INCREF(view);
    Py_INCREF(numbers);
    leaf_class = leaf;
    python_class = python;
    dtype_at = at;
    makes_view = view;
    numbers_given = numbers;
    Py_RETURN_NONE;
}

PyDoc_STRVAR(set_views_doc, "set_views(tensor, stale, get, set, usual, forbidding, /)\n--\n\n"
"The class that has the attributes of tensors, StaleView, and of torch_internals: get_creation, set_creation and two values of Creation.");

static PyObject *set_views(PyObject *self, PyObject *args)
{
    (void)self;
    PyObject *tensor, *given[5], **kept[] = {&stale_view_class, &get_creation, &set_creation, &usual_creation, &forbidding_creation};
    if (!PyArg_ParseTuple(args, "OOOOOO", &tensor, given, given + 1, given + 2, given + 3, given + 4)) return NULL;
    for (int k = 0; k < 5; k++) {
        Py_INCREF(given[k]);
        Py_XDECREF(*kept[k]);
        *kept[k] = given[k];
    }
    for (int k = 0; k < ATTRIBUTES; k++) {
        PyObject *attribute = PyObject_GetAttr(tensor, *attribute_names[k]);
        if (!attribute) return NULL;
        Py_XDECREF(attributes[k]);
        attributes[k] = attribute;
        attribute_getters[k] = (PyObject *(*)(PyObject *, PyObject *, PyObject *))PyType_GetSlot(Py_TYPE(attribute), Py_tp_descr_get);
    }
    Py_RETURN_NONE;
}

#define GRAPH_METHODS \
    {"trace", (PyCFunction)(void (*)(void))graph_trace, METH_FASTCALL, trace_doc}, \
    {"edges", graph_edges, METH_O, edges_doc}, \
    {"set_classes", set_classes, METH_VARARGS, set_classes_doc}, \
    {"set_views", set_views, METH_VARARGS, set_views_doc},

#endif
