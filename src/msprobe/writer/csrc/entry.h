/* The struct behind msprobe.writer._entry.Entry, for extensions that make entries themselves. Include after Python.h. */
#ifndef MSPROBE_ENTRY_H
#define MSPROBE_ENTRY_H

typedef struct {
    PyObject_HEAD
    PyObject *name, *data, *text; /* data: NULL once deleted from Python, which nobody does */
    char done, ordinary;
} Entry;

#define ENTRY_ATTRIBUTE "_struct_of_" /* of the type: says that its instances are such structs, and of which build */
enum { ENTRY_VERSION = 1 };

#endif
