/* Reads the autograd graph through its Python attributes: the fast twin of `trace_in_python` in graph_walk.py, whose words are used here.
   Stable ABI of CPython 3.10; nothing of torch is known but the names of attributes. */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>
#include <string.h>

enum { S_NEXT, S_SEQUENCE, S_VARIABLE, S_NAME, S_GRAD_FN, S_OUTPUT_NR, S_COUNT };
static const char *const text[S_COUNT] = {"next_functions", "_sequence_nr", "variable", "__name__", "grad_fn", "output_nr"};
static PyObject *word[S_COUNT];
static PyObject *leaf_class, *python_class, *dtype_at;

/* --- a map from edges to numbers ------------------------------------------------------------------------------------------------ */
typedef struct {
    void *node;
    long number;
    int value;
} Slot;

enum { FIRST = 32 };

typedef struct {
    Slot *slots;
    int used, size;
    Slot first[FIRST];
} Map;

static void map_init(Map *map)
{
    map->slots = map->first;
    map->used = 0;
    map->size = FIRST;
    memset(map->first, 0, sizeof map->first);
}

static void map_free(Map *map)
{
    if (map->slots != map->first) PyMem_Free(map->slots);
}

/* Where (node, number) is, or would be. */
static Slot *map_find(const Map *map, void *node, long number)
{
    uint64_t hash = ((uint64_t)(uintptr_t)node >> 4) * 0x9E3779B97F4A7C15u + (uint64_t)number * 0xC2B2AE3D27D4EB4Fu;
    unsigned at = (unsigned)(hash >> 32) & (unsigned)(map->size - 1);
    while (map->slots[at].node && (map->slots[at].node != node || map->slots[at].number != number)) at = (at + 1) & (unsigned)(map->size - 1);
    return map->slots + at;
}

static Slot *map_get(const Map *map, void *node, long number)
{
    if (!map->used) return NULL;
    Slot *slot = map_find(map, node, number);
    return slot->node ? slot : NULL;
}

/* Adds an edge that is not there yet; 0: no memory. */
static int map_add(Map *map, void *node, long number, int value)
{
    if (4 * (map->used + 1) > 3 * map->size) {
        Map bigger = {.slots = PyMem_Calloc(2 * (size_t)map->size, sizeof(Slot)), .used = map->used, .size = 2 * map->size};
        if (!bigger.slots) {
            PyErr_NoMemory();
            return 0;
        }
        for (int k = 0; k < map->size; k++)
            if (map->slots[k].node) *map_find(&bigger, map->slots[k].node, map->slots[k].number) = map->slots[k];
        map_free(map);
        map->slots = bigger.slots;
        map->size = bigger.size;
    }
    Slot *slot = map_find(map, node, number);
    *slot = (Slot){node, number, value};
    map->used++;
    return 1;
}

/* --- small pieces of Python ------------------------------------------------------------------------------------------------------- */
static int append(PyObject *list, PyObject *item) /* takes the item */
{
    int ok = item && PyList_Append(list, item) == 0;
    Py_XDECREF(item);
    return ok;
}

/* An edge of the caller: (node, number) or (id of a leaf, -1). `node` is then the leaf's address. 0: an error is set. */
static int read_edge(PyObject *edge, void **node, long *number, int *is_leaf)
{
    PyObject *first = PyTuple_GetItem(edge, 0), *second = PyTuple_GetItem(edge, 1);
    if (!first || !second) return 0;
    *number = PyLong_AsLong(second);
    *is_leaf = PyLong_CheckExact(first);
    *node = *is_leaf ? PyLong_AsVoidPtr(first) : (void *)first;
    return !PyErr_Occurred();
}

static long long sequence(PyObject *node) /* -1 with an error set */
{
    PyObject *answer = PyObject_CallMethodObjArgs(node, word[S_SEQUENCE], NULL);
    if (!answer) return -1;
    unsigned long long number = PyLong_AsUnsignedLongLong(answer);
    Py_DECREF(answer);
    /* Nodes of leaves say 2**64 - 1. */
    return number > INT64_MAX ? INT64_MAX : (long long)number;
}

enum { PLAIN, COPY_SLICES, CAST };
enum { KNOWN = 64 };
static struct {
    PyObject *class;
    int kind;
} known[KNOWN];

/* What kind of node this is, by the name of its class; remembered for the classes met lately. -1: an error is set. */
static int kind_of(PyObject *node)
{
    PyObject *class = (PyObject *)Py_TYPE(node);
    unsigned at = (unsigned)((uintptr_t)class >> 5) % KNOWN;
    if (known[at].class == class) return known[at].kind;
    PyObject *name = PyObject_GetAttr(class, word[S_NAME]);
    if (!name) return -1;
    int kind = PyUnicode_CompareWithASCIIString(name, "CopySlices") == 0        ? COPY_SLICES
               : PyUnicode_CompareWithASCIIString(name, "ToCopyBackward0") == 0 ? CAST
                                                                                : PLAIN;
    Py_DECREF(name);
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
        PyObject *leaf = PyObject_GetAttr(*node, word[S_VARIABLE]);
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

/* --- a call that is one node ------------------------------------------------------------------------------------------------------- */
/* The distinct edges of the inputs, and for each a list of slots. */
static int read_inputs(PyObject *inputs, Map *slots, PyObject *lists)
{
    Py_ssize_t count = PyList_Size(inputs);
    for (Py_ssize_t slot = 0; slot < count; slot++) {
        PyObject *edge = PyList_GetItem(inputs, slot);
        if (edge == Py_None) continue;
        void *node;
        long number;
        int is_leaf;
        if (!read_edge(edge, &node, &number, &is_leaf)) return 0;
        Slot *there = map_get(slots, node, number);
        int index = there ? there->value : slots->used;
        if (!there && (!map_add(slots, node, number, index) || !append(lists, PyList_New(0)))) return 0;
        if (!append(PyList_GetItem(lists, index), PyLong_FromSsize_t(slot))) return 0;
    }
    return count >= 0;
}

/* 1: `*result` is (node, outputs, positions); 0: the call is anything else; -1: an error is set. */
static int single(PyObject *outputs, const Map *slots, PyObject *lists, long long floor, PyObject **result)
{
    Py_ssize_t count = PyList_Size(outputs);
    PyObject *node = NULL, *numbers = NULL, *positions = NULL, *next = NULL;
    int answer = 0;
    for (Py_ssize_t slot = 0; slot < count; slot++) {
        PyObject *edge = PyList_GetItem(outputs, slot);
        if (edge == Py_None) return 0;
        PyObject *its = PyTuple_GetItem(edge, 0);
        if (!its || PyLong_CheckExact(its) || (node && its != node)) return its ? 0 : -1;
        node = its;
    }
    if (!node) return 0;
    int python = PyObject_IsInstance(node, python_class);
    if (python) return python < 0 ? -1 : 0;
    for (int k = 0; k < slots->size && slots->used; k++)
        if (slots->slots[k].node == (void *)node) return 0;
    answer = -1;
    int distinct = slots->used;
    positions = PyList_New(0);
    numbers = PyList_New(0);
    next = PyObject_GetAttr(node, word[S_NEXT]);
    if (!positions || !numbers || !next) goto done;
    for (int k = 0; k < distinct; k++) {
        PyObject *places = PyList_New(0);
        PyObject *pair = places ? PyTuple_Pack(2, places, PyList_GetItem(lists, k)) : NULL;
        Py_XDECREF(places);
        if (!append(positions, pair)) goto done;
    }
    Py_ssize_t n_next = PyTuple_Size(next);
    for (Py_ssize_t position = 0; position < n_next; position++) {
        PyObject *following;
        void *key = NULL;
        long number = 0;
        if (!read_next(PyTuple_GetItem(next, position), &following, &key, &number)) goto done;
        if (!following) continue;
        const Slot *slot = map_get(slots, key, number);
        if (slot) {
            PyObject *places = PyTuple_GetItem(PyList_GetItem(positions, slot->value), 0);
            if (!append(places, PyLong_FromSsize_t(position))) goto done;
        } else if (number != -1) {
            long long age = sequence(following);
            if (age < 0) goto done;
            if (age >= floor) {
                answer = 0;
                goto done;
            }
        }
    }
    for (int k = 0; k < distinct; k++)
        if (PyList_Size(PyTuple_GetItem(PyList_GetItem(positions, k), 0)) == 0) {
            answer = 0; /* reached another way, or not at all: the walk tells */
            goto done;
        }
    for (Py_ssize_t slot = 0; slot < count; slot++) {
        PyObject *its = PyTuple_GetItem(PyList_GetItem(outputs, slot), 1), *at = PyLong_FromSsize_t(slot);
        PyObject *pair = at && its ? PyTuple_Pack(2, at, its) : NULL;
        Py_XDECREF(at);
        if (!append(numbers, pair)) goto done;
    }
    *result = PyTuple_Pack(3, node, numbers, positions);
    answer = *result ? 1 : -1;
done:
    Py_XDECREF(next);
    Py_XDECREF(positions);
    Py_XDECREF(numbers);
    return answer;
}

/* --- the walk --------------------------------------------------------------------------------------------------------------------- */
typedef struct {
    PyObject *outputs;  /* list of (node or id of a leaf, list of (slot, number)) */
    PyObject *places;   /* list of (node, list of (position, target)) */
    PyObject *through;  /* dict, or NULL */
    PyObject *dtypes;   /* dict: index of an input edge -> dtype, or NULL */
    PyObject *alive;    /* everything the maps point to */
    PyObject **todo;
    int waiting, room, inner, changed;
    int *contributions;
    Map slots, ends, seen, out_index;
} Walk;

static int later(Walk *walk, PyObject *node)
{
    if (walk->waiting == walk->room) {
        int room = walk->room ? 2 * walk->room : 32;
        PyObject **todo = PyMem_Realloc(walk->todo, (size_t)room * sizeof *todo);
        if (!todo) {
            PyErr_NoMemory();
            return 0;
        }
        walk->todo = todo;
        walk->room = room;
    }
    walk->todo[walk->waiting++] = node;
    return map_add(&walk->seen, node, 0, 0);
}

static int begin_at_outputs(Walk *walk, PyObject *outputs, PyObject *lists, long long floor)
{
    Py_ssize_t count = PyList_Size(outputs);
    for (Py_ssize_t slot = 0; slot < count; slot++) {
        PyObject *edge = PyList_GetItem(outputs, slot);
        if (edge == Py_None) continue;
        void *node;
        long number;
        int is_leaf;
        if (!read_edge(edge, &node, &number, &is_leaf)) return 0;
        const Slot *input = map_get(&walk->slots, node, number);
        if (input) {
            if (!walk->through && !(walk->through = PyDict_New())) return 0;
            PyObject *at = PyLong_FromSsize_t(slot);
            int failed = !at || PyDict_SetItem(walk->through, at, PyList_GetItem(lists, input->value)) < 0;
            Py_XDECREF(at);
            if (failed) return 0;
            if (!map_get(&walk->ends, node, number) && !map_add(&walk->ends, node, number, -1)) return 0;
        } else if (!is_leaf) {
            long long age = sequence(node);
            if (age < 0) return 0;
            if (age >= floor) {
                if (!map_get(&walk->ends, node, number) && !map_add(&walk->ends, node, number, -1)) return 0;
                if (!map_get(&walk->seen, node, 0) && !later(walk, node)) return 0;
            }
        }
        const Slot *known_node = map_get(&walk->out_index, node, 0);
        int index = known_node ? known_node->value : (int)PyList_Size(walk->outputs);
        if (!known_node) {
            PyObject *pairs = PyList_New(0);
            PyObject *row = pairs ? PyTuple_Pack(2, PyTuple_GetItem(edge, 0), pairs) : NULL;
            Py_XDECREF(pairs);
            if (!append(walk->outputs, row) || !map_add(&walk->out_index, node, 0, index)) return 0;
        }
        PyObject *pairs = PyTuple_GetItem(PyList_GetItem(walk->outputs, index), 1);
        if (!append(pairs, Py_BuildValue("(nl)", slot, number > 0 ? number : 0))) return 0;
    }
    return count >= 0;
}

/* The edge behind a node that only converts a dtype, if it is an input's: its index, else -1; -2: an error is set. */
static int behind_cast(Walk *walk, PyObject *node)
{
    int kind = kind_of(node);
    if (kind != CAST) return kind < 0 ? -2 : -1;
    int index = -1;
    PyObject *next = PyObject_GetAttr(node, word[S_NEXT]);
    PyObject *edge = next ? PyTuple_GetItem(next, 0) : NULL, *following;
    void *key = NULL;
    long number = 0;
    if (!edge || !read_next(edge, &following, &key, &number)) {
        Py_XDECREF(next);
        return -2;
    }
    const Slot *slot = following ? map_get(&walk->slots, key, number) : NULL;
    if (slot) {
        index = slot->value;
        PyObject *dtype = PyObject_CallFunctionObjArgs(dtype_at, edge, NULL), *at = PyLong_FromLong(index);
        if (!walk->dtypes) walk->dtypes = PyDict_New();
        if (!dtype || !at || !walk->dtypes || (dtype != Py_None && PyDict_SetItem(walk->dtypes, at, dtype) < 0)) index = -2;
        Py_XDECREF(dtype);
        Py_XDECREF(at);
    }
    Py_DECREF(next);
    return index;
}

static int add_place(PyObject **mine, Py_ssize_t position, int target)
{
    if (!*mine && !(*mine = PyList_New(0))) return 0;
    return append(*mine, Py_BuildValue("(ni)", position, target));
}

static int visit(Walk *walk, PyObject *node, long long floor)
{
    int kind = kind_of(node), ok = 0;
    if (kind < 0) return 0;
    if (kind == COPY_SLICES) walk->changed = 1;
    PyObject *next = PyObject_GetAttr(node, word[S_NEXT]), *mine = NULL;
    if (!next || PyList_Append(walk->alive, next) < 0) goto done;
    Py_ssize_t count = PyTuple_Size(next);
    for (Py_ssize_t position = 0; position < count; position++) {
        PyObject *following;
        void *key = NULL;
        long number = 0;
        if (!read_next(PyTuple_GetItem(next, position), &following, &key, &number)) goto done;
        if (!following) continue;
        const Slot *slot = map_get(&walk->slots, key, number);
        int index = slot ? slot->value : -1;
        Slot *end = map_get(&walk->ends, key, number);
        if (end) {
            if (end->value < 0) end->value = walk->inner++;
            if (!add_place(&mine, position, -1 - end->value)) goto done;
        }
        if (!slot) {
            index = behind_cast(walk, following);
            if (index == -2) goto done;
            if (index == -1) {
                if (number == -1 || map_get(&walk->seen, following, 0)) continue;
                long long age = sequence(following);
                if (age < 0) goto done;
                if (age >= floor && !later(walk, following)) goto done;
                continue;
            }
        }
        if (!add_place(&mine, position, index)) goto done;
        walk->contributions[index]++;
    }
    if (mine) {
        PyObject *row = PyTuple_Pack(2, node, mine);
        if (!append(walk->places, row)) goto done;
    }
    ok = 1;
done:
    Py_XDECREF(next);
    Py_XDECREF(mine);
    return ok;
}

/* (outputs, places, slots, contributions, inner, dtypes, through, changed) */
static PyObject *walk_result(Walk *walk, PyObject *lists)
{
    PyObject *inner = PyDict_New(), *contributions = PyList_New(0), *result = NULL;
    if (!inner || !contributions) goto done;
    for (int k = 0; k < walk->slots.used; k++)
        if (!append(contributions, PyLong_FromLong(walk->contributions[k]))) goto done;
    for (int k = 0; k < walk->ends.size && walk->inner; k++) {
        const Slot *end = walk->ends.slots + k;
        if (!end->node || end->value < 0) continue;
        /* A leaf's edge is told by its id. */
        PyObject *first = end->number == -1 ? PyLong_FromVoidPtr(end->node) : (PyObject *)end->node;
        if (end->number != -1) Py_INCREF(first);
        PyObject *edge = first ? Py_BuildValue("(Nl)", first, end->number) : NULL, *number = PyLong_FromLong(-1 - end->value);
        int failed = !edge || !number || PyDict_SetItem(inner, edge, number) < 0;
        Py_XDECREF(edge);
        Py_XDECREF(number);
        if (failed) goto done;
    }
    result = PyTuple_Pack(8, walk->outputs, walk->places, lists, contributions, inner, walk->dtypes ? walk->dtypes : Py_None,
                          walk->through ? walk->through : Py_None, walk->changed ? Py_True : Py_False);
done:
    Py_XDECREF(inner);
    Py_XDECREF(contributions);
    return result;
}

PyDoc_STRVAR(trace_doc, "trace(outputs, inputs, floor, /)\n--\n\nSee graph_walk.trace_in_python.");

static PyObject *trace(PyObject *self, PyObject *const *args, Py_ssize_t nargs)
{
    (void)self;
    if (nargs != 3 || !leaf_class) return PyErr_Format(PyExc_TypeError, "trace() takes 3 positional arguments, after set_classes()");
    long long floor = PyLong_AsLongLong(args[2]);
    if (floor == -1 && PyErr_Occurred()) return NULL;
    Walk walk = {0};
    map_init(&walk.slots);
    map_init(&walk.ends);
    map_init(&walk.seen);
    map_init(&walk.out_index);
    PyObject *result = NULL, *lists = PyList_New(0);
    if (!lists || !read_inputs(args[1], &walk.slots, lists)) goto done;
    int one = single(args[0], &walk.slots, lists, floor, &result);
    if (one) goto done;
    walk.outputs = PyList_New(0);
    walk.places = PyList_New(0);
    walk.alive = PyList_New(0);
    walk.contributions = PyMem_Calloc((size_t)walk.slots.used + 1, sizeof *walk.contributions);
    if (!walk.outputs || !walk.places || !walk.alive || !walk.contributions) {
        if (!PyErr_Occurred()) PyErr_NoMemory();
        goto done;
    }
    if (!begin_at_outputs(&walk, args[0], lists, floor)) goto done;
    while (walk.waiting)
        if (!visit(&walk, walk.todo[--walk.waiting], floor)) goto done;
    result = walk_result(&walk, lists);
done:
    Py_XDECREF(lists);
    Py_XDECREF(walk.outputs);
    Py_XDECREF(walk.places);
    Py_XDECREF(walk.through);
    Py_XDECREF(walk.dtypes);
    Py_XDECREF(walk.alive);
    PyMem_Free(walk.todo);
    PyMem_Free(walk.contributions);
    map_free(&walk.slots);
    map_free(&walk.ends);
    map_free(&walk.seen);
    map_free(&walk.out_index);
    return result;
}

PyDoc_STRVAR(edges_doc, "edges(tensors, /)\n--\n\nThe edge of each tensor; raises what reading one raises.");

static PyObject *edges(PyObject *self, PyObject *tensors)
{
    (void)self;
    Py_ssize_t count = PyList_Size(tensors);
    PyObject *list = count < 0 ? NULL : PyList_New(0);
    for (Py_ssize_t k = 0; list && k < count; k++) {
        PyObject *tensor = PyList_GetItem(tensors, k);
        PyObject *node = PyObject_GetAttr(tensor, word[S_GRAD_FN]), *number = NULL, *edge = NULL;
        if (node == Py_None) {
            PyObject *id = PyLong_FromVoidPtr(tensor);
            number = PyLong_FromLong(-1);
            edge = id && number ? PyTuple_Pack(2, id, number) : NULL;
            Py_XDECREF(id);
        } else if (node) {
            number = PyObject_GetAttr(tensor, word[S_OUTPUT_NR]);
            edge = number ? PyTuple_Pack(2, node, number) : NULL;
        }
        Py_XDECREF(node);
        Py_XDECREF(number);
        if (!append(list, edge)) Py_CLEAR(list);
    }
    return list;
}

PyDoc_STRVAR(set_classes_doc, "set_classes(leaf, python, dtype_at, /)\n--\n\n"
"The class of leaves' nodes, that of nodes written in Python, and the function that gives the dtype at an edge.");

static PyObject *set_classes(PyObject *self, PyObject *args)
{
    (void)self;
    PyObject *leaf, *python, *at;
    if (!PyArg_ParseTuple(args, "OOO", &leaf, &python, &at)) return NULL;
    Py_INCREF(leaf);
    Py_INCREF(python);
    Py_INCREF(at);
    leaf_class = leaf;
    python_class = python;
    dtype_at = at;
    Py_RETURN_NONE;
}

static PyMethodDef methods[] = {
    {"trace", (PyCFunction)(void (*)(void))trace, METH_FASTCALL, trace_doc},
    {"edges", edges, METH_O, edges_doc},
    {"set_classes", set_classes, METH_VARARGS, set_classes_doc},
    {NULL, NULL, 0, NULL},
};

static int exec_module(PyObject *module)
{
    (void)module;
    for (int k = 0; k < S_COUNT; k++)
        if (!(word[k] = PyUnicode_InternFromString(text[k]))) return -1;
    return 0;
}

static PyModuleDef_Slot slots[] = {
    {Py_mod_exec, (void *)exec_module},
    {0, NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "_graph", "Reads the autograd graph.", 0, methods, slots, NULL, NULL, NULL,
};

PyMODINIT_FUNC PyInit__graph(void) { return PyModuleDef_Init(&definition); }
