/* The common case of recording, without Python: calls, their gradients, and modules, where everything is recorded.
   What it does is what the classes in Python do, which serve every other case; a test holds the two against each other. */
#include "csrc/pieces.h"

#include "csrc/entries.h"

#include "csrc/parameter_objects.h"

#include "csrc/api_calls.h"

#include "csrc/module_calls.h"

#include "csrc/hooked_modules.h"

#include "csrc/operator_methods.h"

PyDoc_STRVAR(set_up_doc, "set_up(no_torch_function, mode_depth, graph_task, sequence_number, grad_enabled, tensor_classes,"
" side_class, api_call_class, backward_of, contain, declined, anchor_class, safe_file_name, dtypes_of_files, not_kept, /)\n--\n\nWhat is needed of Python and torch; once, before anything else.");

static PyObject *set_up(PyObject *self, PyObject *args)
{
    (void)self;
    PyObject **kept[] = {&no_torch_function, &mode_depth, &graph_task, &sequence_number, &grad_enabled, &tensor_classes,
                         &side_class, &api_call_class, &backward_of, &contain, &declines, &anchor_class,
                         &safe_file_name, &dtypes_of_files, &not_kept};
    enum { COUNT = sizeof kept / sizeof *kept };
    if (PyTuple_Size(args) != COUNT) return PyErr_Format(PyExc_TypeError, "set_up() takes %d arguments", (int)COUNT);
    for (int k = 0; k < COUNT; k++) {
        PyObject *given = PyTuple_GetItem(args, k);
        Py_INCREF(given);
        Py_XDECREF(*kept[k]);
        *kept[k] = given;
    }
    Py_RETURN_NONE;
}

static PyMethodDef methods[] = {
    {"set_up", set_up, METH_VARARGS, set_up_doc},
    GRADIENT_CALLS_METHODS
    API_CALLS_METHODS
    MODULE_CALLS_METHODS
    HOOKED_MODULES_METHODS
    OPERATOR_METHODS_METHODS
    {NULL, NULL, 0, NULL},
};

/* ImportError where one of the extensions that this one builds on is not there, or is of another build: all or nothing. */
static int find_others(void)
{
    PyObject *numerics = PyImport_ImportModule("msprobe.numerics._kernels"), *writer = NULL;
    if (numerics) {
        kernels = (const SharedKernels *)PyCapsule_Import(SHARED_KERNELS, 0);
        writer = kernels ? PyImport_ImportModule("msprobe.writer._entry") : NULL;
    }
    entry_class = writer ? PyObject_GetAttrString(writer, "Entry") : NULL;
    Py_XDECREF(numerics);
    Py_XDECREF(writer);
    if (!entry_class) return 0;
    if (kernels->version == SHARED_VERSION && is_entry_class(entry_class)) return 1;
    PyErr_SetString(PyExc_ImportError, "msprobe's extensions are of different builds");
    return 0;
}

static int exec_module(PyObject *module)
{
    if (!find_others()) return -1;
    if (!make_names() || !keeping_init() || !walk_init() || !gradient_calls_init(module) || !parameter_gradients_init(module)) return -1;
    return api_calls_init(module) && module_calls_init(module) && hooked_modules_init() && operator_methods_init() ? 0 : -1;
}

static PyModuleDef_Slot slots[] = {
    {Py_mod_exec, (void *)exec_module},
    {0, NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "_hot", "The common case of recording, without Python.", 0, methods, slots, NULL, NULL, NULL,
};

PyMODINIT_FUNC PyInit__hot(void) { return PyModuleDef_Init(&definition); }
