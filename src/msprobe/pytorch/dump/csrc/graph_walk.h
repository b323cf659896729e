/* Walks back from a call's outputs to its inputs: the fast twin of `trace_in_python` in graph_walk.py, whose words are used here. */
#ifndef MSPROBE_GRAPH_WALK_H
#define MSPROBE_GRAPH_WALK_H

#include "graph_edges.h"

/* The part of the graph that one call made. Rows of several things lie one after the other: those of k from first[k] to first[k + 1].
   A *target* is a distinct edge of the inputs. */
typedef struct {
    int one;          /* one node leads from all inputs to all outputs: it is the only output node, and no node is in `in_nodes` */
    int targets;
    Ints slot_first, slots;     /* target -> the slots of the inputs that share it */
    PyObject *out_nodes;        /* list: nodes, or ids of leaves */
    Ints out_first, outs;       /* output node -> triples (slot of the output, number of the node's output, inner edge below 0 or 0) */
    PyObject *in_nodes;         /* list */
    Ints in_first, places;      /* node at the inputs -> pairs (position among its gradients, target or inner edge);
                                   one node: target -> positions */
    Ints contributions;         /* target -> how many places lead to it */
    Ints through;               /* slot of an output -> target, where it is an input itself, else -1; empty where none is */
    PyObject *dtypes;           /* dict: target -> dtype, or NULL */
    int inner, changed, elsewhere;
    Map ends;                   /* edges of outputs that the call goes on with -> number of the inner edge, -1 where nothing flows there */
} Trace;

static void trace_free(Trace *trace)
{
    Ints *const all[] = {&trace->slot_first, &trace->slots, &trace->out_first, &trace->outs, &trace->in_first, &trace->places,
                         &trace->contributions, &trace->through};
    for (size_t k = 0; k < sizeof all / sizeof *all; k++) ints_free(all[k]);
    map_free(&trace->ends);
    Py_XDECREF(trace->out_nodes);
    Py_XDECREF(trace->in_nodes);
    Py_XDECREF(trace->dtypes);
}

static int trace_init(Trace *trace)
{
    trace->one = trace->targets = trace->inner = trace->changed = trace->elsewhere = 0;
    trace->dtypes = NULL;
    Ints *const all[] = {&trace->slot_first, &trace->slots, &trace->out_first, &trace->outs, &trace->in_first, &trace->places,
                         &trace->contributions, &trace->through};
    for (size_t k = 0; k < sizeof all / sizeof *all; k++) ints_init(all[k]);
    map_init(&trace->ends);
    trace->out_nodes = PyList_New(0);
    trace->in_nodes = PyList_New(0);
    return trace->out_nodes && trace->in_nodes;
}

/* What a walk needs besides. */
typedef struct {
    Trace *trace;
    long long floor, newest;
    Map targets, seen;
    PyObject *alive; /* what holds the nodes the maps point to */
    PyObject **todo;
    int waiting, room;
    PyObject *first[FIRST];
} Walk;

/* Numbers the distinct edges of the inputs, and says for each which slots share it. */
static int find_targets(Walk *walk, const EdgeList *inputs)
{
    Trace *trace = walk->trace;
    Ints of, at;
    int ok = 0;
    ints_init(&of);
    ints_init(&at);
    for (int slot = 0; slot < inputs->count; slot++) {
        const Edge *edge = inputs->edges + slot;
        int index = -1;
        if (edge->key) {
            const Slot *there = map_get(&walk->targets, edge->key, edge->number);
            index = there ? there->value : trace->targets++;
            if (!there && !map_add(&walk->targets, edge->key, edge->number, index)) goto done;
        }
        if (!ints_add(&of, index)) goto done;
    }
    for (int k = 0; k <= trace->targets; k++)
        if (!ints_add(&trace->slot_first, 0) || !ints_add(&trace->contributions, 0)) goto done;
    for (int slot = 0; slot < of.used; slot++)
        if (of.items[slot] >= 0) trace->slot_first.items[of.items[slot] + 1]++;
    for (int k = 0; k < trace->targets; k++) {
        trace->slot_first.items[k + 1] += trace->slot_first.items[k];
        if (!ints_add(&at, trace->slot_first.items[k])) goto done;
    }
    for (int k = 0; k < trace->slot_first.items[trace->targets]; k++)
        if (!ints_add(&trace->slots, 0)) goto done;
    for (int slot = 0; slot < of.used; slot++)
        if (of.items[slot] >= 0) trace->slots.items[at.items[of.items[slot]]++] = slot;
    ok = 1;
done:
    ints_free(&of);
    ints_free(&at);
    return ok;
}

/* 1: the trace says how; 0: the call is anything else; -1: an error is set. */
static int single(Walk *walk, const EdgeList *outputs)
{
    Trace *trace = walk->trace;
    PyObject *node = outputs->count ? outputs->edges[0].node : NULL;
    if (!node) return 0;
    for (int slot = 1; slot < outputs->count; slot++)
        if (outputs->edges[slot].node != node) return 0;
    /* A user-written backward may change the gradients it is given in place: those must be read before it runs. */
    int python = PyObject_IsInstance(node, python_class);
    if (python) return python < 0 ? -1 : 0;
    for (int k = 0; k < walk->targets.size && walk->targets.used; k++)
        if (walk->targets.slots[k].node == (void *)node) return 0;
    PyObject *next = PyObject_GetAttr(node, n_next_functions);
    Py_ssize_t count = next ? PyTuple_Size(next) : -1;
    int answer = count < 0 ? -1 : 1;
    Ints target; /* position -> target */
    ints_init(&target);
    for (Py_ssize_t position = 0; answer == 1 && position < count; position++) {
        PyObject *following;
        void *key = NULL;
        long number = 0;
        int index = -1;
        if (!read_next(PyTuple_GetItem(next, position), &following, &key, &number)) {
            answer = -1;
        } else if (following) {
            const Slot *there = map_get(&walk->targets, key, number);
            if (there) {
                index = there->value;
            } else if (number != -1) {
                long long age = sequence(following);
                if (age < 0) answer = -1;
                else if (age >= walk->floor && age <= walk->newest) answer = 0;
            }
        }
        if (answer == 1 && !ints_add(&target, index)) answer = -1;
    }
    for (int k = 0; answer == 1 && k < trace->targets; k++) {
        int before = trace->places.used;
        if (!ints_add(&trace->in_first, before)) answer = -1;
        for (int position = 0; answer == 1 && position < target.used; position++)
            if (target.items[position] == k && !ints_add(&trace->places, position)) answer = -1;
        if (answer == 1 && trace->places.used == before) answer = 0; /* reached another way, or not at all: the walk tells */
    }
    if (answer == 1) {
        int ok = ints_add(&trace->in_first, trace->places.used) && PyList_Append(trace->out_nodes, node) == 0;
        for (int slot = 0; ok && slot < outputs->count; slot++)
            ok = ints_add(&trace->outs, slot) && ints_add(&trace->outs, (int)outputs->edges[slot].number) && ints_add(&trace->outs, 0);
        ok = ok && ints_add(&trace->out_first, 0) && ints_add(&trace->out_first, outputs->count);
        answer = ok ? 1 : -1;
    } else {
        trace->in_first.used = trace->places.used = 0;
    }
    trace->one = answer == 1;
    ints_free(&target);
    Py_XDECREF(next);
    return answer;
}

static int later(Walk *walk, PyObject *node)
{
    if (walk->waiting == walk->room) {
        PyObject **todo = more_room(walk->todo, &walk->room, walk->first, sizeof *todo);
        if (!todo) return 0;
        walk->todo = todo;
    }
    walk->todo[walk->waiting++] = node;
    return map_add(&walk->seen, node, 0, 0);
}

static int mark_end(Trace *trace, const Edge *edge)
{
    return map_get(&trace->ends, edge->key, edge->number) || map_add(&trace->ends, edge->key, edge->number, -1);
}

/* `of` gets the index among the output nodes of each output, -1 for none. */
static int begin_at_outputs(Walk *walk, const EdgeList *outputs, Ints *of)
{
    Trace *trace = walk->trace;
    Map index;
    map_init(&index);
    int ok = 0;
    for (int slot = 0; slot < outputs->count; slot++) {
        const Edge *edge = outputs->edges + slot;
        if (!edge->key) {
            if (!ints_add(of, -1)) goto done;
            continue;
        }
        const Slot *input = map_get(&walk->targets, edge->key, edge->number);
        if (input) {
            while (trace->through.used < outputs->count)
                if (!ints_add(&trace->through, -1)) goto done;
            trace->through.items[slot] = input->value;
            if (!mark_end(trace, edge)) goto done;
        } else if (edge->node) {
            long long age = sequence(edge->node);
            if (age < 0) goto done;
            if (age > walk->newest && age >= walk->floor) trace->elsewhere = 1;
            else if (age >= walk->floor && (!mark_end(trace, edge) || (!map_get(&walk->seen, edge->key, 0) && !later(walk, edge->node)))) goto done;
        }
        const Slot *there = map_get(&index, edge->key, 0);
        if (!there) {
            PyObject *node = edge->node ? edge->node : PyLong_FromVoidPtr(edge->key);
            if (edge->node) Py_INCREF(node);
            if (!ints_add(of, index.used) || !map_add(&index, edge->key, 0, index.used) || !append(trace->out_nodes, node)) goto done;
        } else if (!ints_add(of, there->value)) {
            goto done;
        }
    }
    ok = 1;
done:
    map_free(&index);
    return ok;
}

/* The edge behind a node that only converts a dtype, if it is an input's: its index, else -1; -2: an error is set. */
static int behind_cast(Walk *walk, PyObject *node)
{
    int kind = node_kind(node);
    if (kind < 0 || !(kind & CAST)) return kind < 0 ? -2 : -1;
    Trace *trace = walk->trace;
    int index = -1;
    PyObject *next = PyObject_GetAttr(node, n_next_functions);
    PyObject *edge = next ? PyTuple_GetItem(next, 0) : NULL, *following;
    void *key = NULL;
    long number = 0;
    if (!edge || !read_next(edge, &following, &key, &number)) {
        Py_XDECREF(next);
        return -2;
    }
    const Slot *target = following ? map_get(&walk->targets, key, number) : NULL;
    if (target) {
        index = target->value;
        PyObject *dtype = PyObject_CallFunctionObjArgs(dtype_at, edge, NULL), *at = PyLong_FromLong(index);
        if (!trace->dtypes) trace->dtypes = PyDict_New();
        if (!dtype || !at || !trace->dtypes || (dtype != Py_None && PyDict_SetItem(trace->dtypes, at, dtype) < 0)) index = -2;
        Py_XDECREF(dtype);
        Py_XDECREF(at);
    }
    Py_DECREF(next);
    return index;
}

static int visit(Walk *walk, PyObject *node)
{
    Trace *trace = walk->trace;
    int kind = node_kind(node), ok = 0, before = trace->places.used;
    if (kind < 0) return 0;
    if (kind & COPY_SLICES) trace->changed = 1;
    PyObject *next = PyObject_GetAttr(node, n_next_functions);
    Py_ssize_t count = next && PyList_Append(walk->alive, next) == 0 ? PyTuple_Size(next) : -1;
    if (count < 0) goto done;
    for (Py_ssize_t position = 0; position < count; position++) {
        PyObject *following;
        void *key = NULL;
        long number = 0;
        if (!read_next(PyTuple_GetItem(next, position), &following, &key, &number)) goto done;
        if (!following) continue;
        const Slot *target = map_get(&walk->targets, key, number);
        int index = target ? target->value : -1;
        Slot *end = map_get(&trace->ends, key, number);
        if (end) {
            if (end->value < 0) end->value = trace->inner++;
            if (!ints_add(&trace->places, (int)position) || !ints_add(&trace->places, -1 - end->value)) goto done;
        }
        if (!target) {
            index = behind_cast(walk, following);
            if (index == -2) goto done;
            if (index == -1) {
                if (number == -1 || map_get(&walk->seen, following, 0)) continue;
                long long age = sequence(following);
                if (age > walk->newest && age >= walk->floor) trace->elsewhere = 1;
                else if (age < 0 || (age >= walk->floor && !later(walk, following))) goto done;
                continue;
            }
        }
        if (!ints_add(&trace->places, (int)position) || !ints_add(&trace->places, index)) goto done;
        trace->contributions.items[index]++;
    }
    ok = trace->places.used == before || (PyList_Append(trace->in_nodes, node) == 0 && ints_add(&trace->in_first, before / 2));
done:
    Py_XDECREF(next);
    return ok;
}

/* Which outputs each output node has made, and what of them comes from inside. */
static int finish_outputs(Trace *trace, const EdgeList *outputs, const Ints *of)
{
    Py_ssize_t nodes = PyList_Size(trace->out_nodes);
    Ints at;
    ints_init(&at);
    int ok = 0;
    for (Py_ssize_t k = 0; k <= nodes; k++)
        if (!ints_add(&trace->out_first, 0)) goto done;
    for (int slot = 0; slot < of->used; slot++)
        if (of->items[slot] >= 0) trace->out_first.items[of->items[slot] + 1]++;
    for (Py_ssize_t k = 0; k < nodes; k++) {
        trace->out_first.items[k + 1] += trace->out_first.items[k];
        if (!ints_add(&at, trace->out_first.items[k])) goto done;
    }
    for (int k = 0; k < 3 * trace->out_first.items[nodes]; k++)
        if (!ints_add(&trace->outs, 0)) goto done;
    for (int slot = 0; slot < of->used; slot++) {
        if (of->items[slot] < 0) continue;
        const Edge *edge = outputs->edges + slot;
        const Slot *end = map_get(&trace->ends, edge->key, edge->number);
        int *out = trace->outs.items + 3 * at.items[of->items[slot]]++;
        out[0] = slot;
        out[1] = edge->number > 0 ? (int)edge->number : 0;
        out[2] = end && end->value >= 0 ? -1 - end->value : 0;
    }
    ok = 1;
done:
    ints_free(&at);
    return ok;
}

/* Fills *trace, which `trace_free` frees in any case; 0: an error is set. floor: the thread's sequence number when the call began. */
static int trace_graph(Trace *trace, const EdgeList *outputs, const EdgeList *inputs, long long floor)
{
    if (!trace_init(trace)) return 0;
    Walk walk = {.trace = trace, .floor = floor, .newest = INT64_MAX, .alive = PyList_New(0), .room = FIRST};
    walk.todo = walk.first;
    map_init(&walk.targets);
    map_init(&walk.seen);
    Ints of;
    ints_init(&of);
    if (PyThread_get_thread_ident() != main_thread) walk.newest = ask_long(numbers_given) - 1;
    int ok = !PyErr_Occurred() && walk.alive && find_targets(&walk, inputs), one = ok ? single(&walk, outputs) : -1;
    ok = one >= 0;
    if (!one) {
        ok = begin_at_outputs(&walk, outputs, &of);
        while (ok && walk.waiting) ok = visit(&walk, walk.todo[--walk.waiting]);
        ok = ok && ints_add(&trace->in_first, trace->places.used / 2) && finish_outputs(trace, outputs, &of);
    }
    ints_free(&of);
    Py_XDECREF(walk.alive);
    if (walk.todo != walk.first) PyMem_Free(walk.todo);
    map_free(&walk.targets);
    map_free(&walk.seen);
    return ok;
}

#endif
