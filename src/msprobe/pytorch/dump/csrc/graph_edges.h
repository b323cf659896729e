/* Nodes and edges of the autograd graph, read through their Python attributes; nothing of torch is known but the names of attributes.
   The words are those of graph_walk.py. */
#ifndef MSPROBE_GRAPH_EDGES_H
#define MSPROBE_GRAPH_EDGES_H

#include "graph_map.h"

#define EACH_GRAPH_NAME(X) X(next_functions) X(_sequence_nr) X(variable) X(__name__) X(grad_fn) X(output_nr) X(_version) X(_base)
EACH_GRAPH_NAME(DECLARE_NAME)

static PyObject *leaf_class, *python_class, *dtype_at, *makes_view, *numbers_given; /* see set_classes */
static unsigned long main_thread;

static int graph_init(void)
{
    EACH_GRAPH_NAME(MAKE_NAME)
    return 1;
}

static int append(PyObject *list, PyObject *item) /* takes the item */
{
    int ok = item && PyList_Append(list, item) == 0;
    Py_XDECREF(item);
    return ok;
}

static long long sequence(PyObject *node) /* -1 with an error set */
{
    PyObject *answer = PyObject_CallMethodObjArgs(node, n__sequence_nr, NULL);
    if (!answer) return -1;
    unsigned long long number = PyLong_AsUnsignedLongLong(answer);
    Py_DECREF(answer);
    if (number == (unsigned long long)-1 && PyErr_Occurred()) return -1;
    /* Nodes of leaves say 2**64 - 1. */
    return number > INT64_MAX ? INT64_MAX : (long long)number;
}

/* What kind of node this is, by the name of its class; remembered for the classes met lately. */
enum { COPY_SLICES = 1, CAST = 2, VIEW = 4 };
enum { KNOWN = 1024 };
static struct {
    PyObject *class;
    int kind;
} known[KNOWN];

static int node_kind(PyObject *node) /* -1: an error is set */
{
    PyObject *class = (PyObject *)Py_TYPE(node);
    unsigned at = (unsigned)((uint64_t)(uintptr_t)class * 0x9E3779B97F4A7C15u >> 54); /* of 10 bits */
    if (known[at].class == class) return known[at].kind;
    PyObject *name = PyObject_GetAttr(class, n___name__);
    PyObject *view = name ? PyObject_CallFunctionObjArgs(makes_view, node, NULL) : NULL;
    int kind = -1, is_view = view ? PyObject_IsTrue(view) : -1;
    if (is_view >= 0)
        kind = (is_view ? VIEW : 0) | (PyUnicode_CompareWithASCIIString(name, "CopySlices") == 0 ? COPY_SLICES : 0)
             | (PyUnicode_CompareWithASCIIString(name, "ToCopyBackward0") == 0 ? CAST : 0);
    Py_XDECREF(name);
    Py_XDECREF(view);
    if (kind < 0) return -1;
    Py_INCREF(class);
    PyObject *before = known[at].class;
    known[at].class = class;
    known[at].kind = kind;
    Py_XDECREF(before);
    return kind;
}

/* An entry of next_functions: the node (borrowed, NULL for None) and the key of its edge. 0: an error is set. */
static int read_next(PyObject *edge, PyObject **node, void **key, long *number)
{
    *node = PyTuple_GetItem(edge, 0);
    if (!*node) return 0;
    if (*node == Py_None) {
        *node = NULL;
        return 1;
    }
    if ((PyObject *)Py_TYPE(*node) == leaf_class) {
        PyObject *leaf = PyObject_GetAttr(*node, n_variable);
        if (!leaf) return 0;
        *key = leaf; /* the node holds it */
        *number = -1;
        Py_DECREF(leaf);
        return 1;
    }
    *key = *node;
    *number = PyLong_AsLong(PyTuple_GetItem(edge, 1));
    return !(*number == -1 && PyErr_Occurred());
}

/* --- attributes of tensors ------------------------------------------------------------------------------------------------------------- */
/* Of plain tensors they are read without a look at their class. */
enum { GRAD_FN, OUTPUT_NR, VERSION, BASE, ATTRIBUTES };
static PyObject **const attribute_names[] = {&n_grad_fn, &n_output_nr, &n__version, &n__base};
static PyObject *attributes[ATTRIBUTES]; /* see set_views */
static PyObject *(*attribute_getters[ATTRIBUTES])(PyObject *attribute, PyObject *object, PyObject *class);
static PyObject *stale_view_class, *get_creation, *set_creation, *usual_creation, *forbidding_creation;

enum { OTHER_CLASS, PLAIN_TENSOR, PLAIN_PARAMETER };

static int class_of(PyObject *tensor)
{
    PyObject *class = (PyObject *)Py_TYPE(tensor);
    if (class == PyTuple_GetItem(tensor_classes, 0)) return PLAIN_TENSOR;
    return class == PyTuple_GetItem(tensor_classes, 1) ? PLAIN_PARAMETER : OTHER_CLASS;
}

static PyObject *read_attribute(PyObject *tensor, int class, int which)
{
    if (class == OTHER_CLASS || !attribute_getters[which]) return PyObject_GetAttr(tensor, *attribute_names[which]);
    return attribute_getters[which](attributes[which], tensor, (PyObject *)Py_TYPE(tensor));
}

/* Whether an answer is true; takes it. What raises is not. */
static int is_yes(PyObject *answer)
{
    int yes = answer ? PyObject_IsTrue(answer) : -1;
    Py_XDECREF(answer);
    if (yes < 0) PyErr_Clear();
    return yes > 0;
}

static int mark_creation(PyObject *view, PyObject *as)
{
    PyObject *done = PyObject_CallFunctionObjArgs(set_creation, view, as, NULL);
    Py_XDECREF(done);
    if (!done) PyErr_Clear();
    return done != NULL;
}

/* Whether this is a view of memory that was changed; anything else has its node, or makes it at no other time. Parameters are made
   detached, and every step of an optimizer changes them. */
static int may_be_stale(PyObject *tensor, int class)
{
    if (class == PLAIN_PARAMETER || !is_yes(read_attribute(tensor, class, VERSION))) return 0;
    PyObject *base = read_attribute(tensor, class, BASE);
    int is_view = base && base != Py_None;
    Py_XDECREF(base);
    if (!base) PyErr_Clear();
    return is_view;
}

/* A tensor's grad_fn, NULL with an error set; or stale, see torch_internals.is_stale_view, and nothing. No other thread of Python runs while
   the view is marked. */
static PyObject *read_node(PyObject *tensor, int class, int *stale)
{
    *stale = 0;
    if (!may_be_stale(tensor, class)) return read_attribute(tensor, class, GRAD_FN);
    PyObject *creation = PyObject_CallFunctionObjArgs(get_creation, tensor, NULL);
    if (creation && mark_creation(tensor, forbidding_creation)) {
        PyObject *node = read_attribute(tensor, class, GRAD_FN);
        if (!node) PyErr_Clear();
        mark_creation(tensor, creation);
        int usual = node ? 0 : PyObject_RichCompareBool(creation, usual_creation, Py_EQ);
        *stale = usual > 0;
        if (node || *stale) {
            Py_DECREF(creation);
            return node;
        }
    }
    Py_XDECREF(creation);
    PyErr_Clear();
    return read_attribute(tensor, class, GRAD_FN); /* where it is stale all the same, this raises */
}

/* --- where the gradients of tensors arrive ------------------------------------------------------------------------------------------- */
/* The place of one tensor: (node, number of its output), (address of a leaf, -1), or nothing where it could not be read or is not made yet. */
typedef struct {
    PyObject *node; /* owned; NULL for a leaf; a StaleView where there is no key */
    void *key;      /* the node, or the leaf's address; NULL: not known */
    long number;
} Edge;

enum { EDGES = 8 };

typedef struct {
    Edge *edges;
    int count, room;
    Edge first[EDGES];
} EdgeList;

static void edges_init(EdgeList *list)
{
    list->edges = list->first;
    list->count = 0;
    list->room = EDGES;
}

static void edges_free(EdgeList *list)
{
    for (int k = 0; k < list->count; k++) Py_XDECREF(list->edges[k].node);
    if (list->edges != list->first) PyMem_Free(list->edges);
    list->count = 0;
    list->edges = list->first;
}

static int edges_add(EdgeList *list, PyObject *node, void *key, long number) /* takes the node */
{
    if (list->count == list->room) {
        Edge *edges = more_room(list->edges, &list->room, list->first, sizeof *edges);
        if (!edges) {
            Py_XDECREF(node);
            return 0;
        }
        list->edges = edges;
    }
    list->edges[list->count++] = (Edge){node, key, number};
    return 1;
}

static int edges_add_plain(EdgeList *list, PyObject *tensor)
{
    int stale, class = class_of(tensor);
    PyObject *node = read_node(tensor, class, &stale);
    if (stale) {
        PyObject *view = PyObject_CallFunctionObjArgs(stale_view_class, tensor, NULL);
        return view && edges_add(list, view, NULL, 0);
    }
    if (!node) return 0;
    if (node == Py_None) {
        Py_DECREF(node);
        return edges_add(list, NULL, tensor, -1);
    }
    PyObject *answer = read_attribute(tensor, class, OUTPUT_NR);
    long number = answer ? PyLong_AsLong(answer) : -1;
    Py_XDECREF(answer);
    if (number == -1 && PyErr_Occurred()) {
        Py_DECREF(node);
        return 0;
    }
    return edges_add(list, node, node, number);
}

/* Adds the edge of one tensor; 0 with an error set, which reading it may raise. */
static int edges_add_tensor(EdgeList *list, PyObject *tensor)
{
    Quiet quiet;
    int ok = quiet_for(&quiet, tensor) && edges_add_plain(list, tensor);
    quiet_end(&quiet);
    return ok;
}

/* From a list of Python's: (node, number), (id of a leaf, -1), None. 0: an error is set. */
static int edges_from_list(EdgeList *list, PyObject *given)
{
    Py_ssize_t count = PyList_Size(given);
    for (Py_ssize_t k = 0; k < count; k++) {
        PyObject *edge = PyList_GetItem(given, k);
        if (edge == Py_None || (PyObject *)Py_TYPE(edge) == stale_view_class) {
            Py_INCREF(edge);
            if (!edges_add(list, edge == Py_None ? NULL : edge, NULL, 0)) return 0;
            continue;
        }
        PyObject *first = PyTuple_GetItem(edge, 0), *second = first ? PyTuple_GetItem(edge, 1) : NULL;
        if (!second) return 0;
        long number = PyLong_AsLong(second);
        int is_leaf = PyLong_CheckExact(first);
        void *key = is_leaf ? PyLong_AsVoidPtr(first) : (void *)first;
        if (PyErr_Occurred()) return 0;
        if (!is_leaf) Py_INCREF(first);
        if (!edges_add(list, is_leaf ? NULL : first, key, number)) return 0;
    }
    return count >= 0;
}

/* The other way. */
static PyObject *list_of_edges(const EdgeList *list)
{
    PyObject *result = PyList_New(0);
    for (int k = 0; result && k < list->count; k++) {
        Edge edge = list->edges[k];
        PyObject *item;
        if (!edge.key) {
            item = edge.node ? edge.node : Py_None;
            Py_INCREF(item);
        } else if (edge.node) {
            item = Py_BuildValue("(Ol)", edge.node, edge.number);
        } else {
            item = Py_BuildValue("(Nl)", PyLong_FromVoidPtr(edge.key), edge.number);
        }
        if (!append(result, item)) Py_CLEAR(result);
    }
    return result;
}

#endif
