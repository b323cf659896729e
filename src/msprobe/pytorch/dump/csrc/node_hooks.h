/* The observers on nodes of the graph: what torch calls when gradients have arrived there. */
#ifndef MSPROBE_NODE_HOOKS_H
#define MSPROBE_NODE_HOOKS_H

#include "several_nodes.h"

enum { ONE_NODE, OUTPUT_NODE, INPUT_NODE };

typedef struct {
    PyObject_HEAD
    GradientCall *call;
    int kind, node; /* which of the call's nodes of this kind */
} NodeHook;

static int hook_has_fired(PyObject *hook) { return ((NodeHook *)hook)->call->passes > 0; }

static PyObject *call_of_hook(PyObject *hook) { return (PyObject *)((NodeHook *)hook)->call; }

static PyObject *new_hook(GradientCall *call, int kind, int node)
{
    NodeHook *hook = PyObject_New(NodeHook, hook_type);
    if (!hook) return NULL;
    Py_INCREF(call);
    hook->call = call;
    hook->kind = kind;
    hook->node = node;
    return (PyObject *)hook;
}

static void hook_dealloc(PyObject *self)
{
    PyTypeObject *type = Py_TYPE(self);
    Py_DECREF(((NodeHook *)self)->call);
    PyObject_Free(self);
    Py_DECREF(type);
}

static int several_nodes_fired(GradientCall *call, int kind, int node, PyObject *gradients)
{
    Quiet quiet;
    double began = now();
    if (!gradients || !quiet_begin(&quiet)) return 0;
    Pass *pass = begin_pass(call);
    int ok = pass ? (kind == OUTPUT_NODE ? outputs_arrived : inputs_left_node)(call, pass, node, gradients) : !PyErr_Occurred();
    quiet_end(&quiet);
    if (ok) call->observers->spent += now() - began;
    return ok;
}

/* An observer has failed, and it was told: where no further node can complete the entry, it is complete. 0: an error of the user's is set. */
static int give_up(GradientCall *call)
{
    if (call->out_nodes + call->in_nodes > 1) return 1;
    return finish_pass((PyObject *)call, ask_long(graph_task)) || contained(call->observers->sink, call->name, "gradients could not be recorded");
}

/* hook(grad_outputs) before a node runs, hook(grad_inputs, grad_outputs) afterwards; gives None whatever happens. */
static PyObject *hook_call(PyObject *self, PyObject *args, PyObject *kwargs)
{
    (void)kwargs;
    const NodeHook *hook = (NodeHook *)self;
    GradientCall *call = hook->call;
    Py_INCREF(call);
    PyObject *first = PyTuple_GetItem(args, 0);
    int ok;
    if (hook->kind == ONE_NODE) {
        PyObject *second = first ? PyTuple_GetItem(args, 1) : NULL;
        ok = second && one_node_fired(call, first, second);
    } else {
        ok = several_nodes_fired(call, hook->kind, hook->node, first);
    }
    if (!ok) {
        ok = contained(call->observers->sink, call->name, "gradients could not be recorded");
        if (ok && hook->kind != ONE_NODE) ok = give_up(call);
    }
    Py_DECREF(call);
    return ok ? Py_BuildValue("") : NULL;
}

static PyType_Slot hook_slots[] = {
    {Py_tp_dealloc, (void *)hook_dealloc},
    {Py_tp_call, (void *)hook_call},
    {0, NULL},
};
static PyType_Spec hook_spec = {"msprobe.pytorch.dump._hot.NodeHook", sizeof(NodeHook), 0,
                                Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION, hook_slots};

/* --- how torch keeps a hook of a node --------------------------------------------------------------------------------------------------------- */
static PyObject *kept_by_torch; /* torch's own way */

PyDoc_STRVAR(register_hook_doc, "register_hook(hooks, hook, /)\n--\n\n"
"What torch calls to keep a hook of a node: (the node's dictionary of hooks, what takes the hook off). `hooks`: the dictionary, None where\n"
"there is none yet. An observer of ours is kept without a handle made by Python, any other hook in torch's own way.");

static PyObject *register_hook(PyObject *self, PyObject *const *args, Py_ssize_t nargs)
{
    (void)self;
    if (nargs != 2 || !kept_by_torch) return PyErr_Format(PyExc_TypeError, "register_hook() takes 2 arguments");
    PyObject *hooks = args[0], *hook = args[1];
    if (Py_TYPE(hook) != hook_type || (hooks != Py_None && (PyObject *)Py_TYPE(hooks) != hooks_class))
        return PyObject_CallFunctionObjArgs(kept_by_torch, hooks, hook, NULL);
    if (hooks == Py_None) hooks = call0(hooks_class);
    else Py_INCREF(hooks);
    PyObject *pair = hooks && PyObject_SetItem(hooks, hook, hook) == 0 ? PyTuple_Pack(2, hooks, hooks) : NULL;
    Py_XDECREF(hooks);
    return pair;
}

PyDoc_STRVAR(keep_hooks_doc, "keep_hooks(by_torch, /)\n--\n\nTorch's own way to keep a hook, for `register_hook`.");

static PyObject *keep_hooks(PyObject *self, PyObject *by_torch)
{
    (void)self;
    Py_INCREF(by_torch);
    replace(&kept_by_torch, by_torch);
    Py_RETURN_NONE;
}

#define NODE_HOOKS_METHODS \
    {"register_hook", (PyCFunction)(void (*)(void))register_hook, METH_FASTCALL, register_hook_doc}, \
    {"keep_hooks", keep_hooks, METH_O, keep_hooks_doc},

#endif
