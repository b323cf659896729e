/* What other extensions of this package call without going through Python: the capsule `_kernels._shared` holds a `SharedKernels`.
   Include after Python.h. */
#ifndef MSPROBE_SHARED_H
#define MSPROBE_SHARED_H

#define SHARED_KERNELS "msprobe.numerics._kernels._shared"
enum { SHARED_VERSION = 2 };

/* How the values of one side of a call become records. */
typedef struct Encoding {
    PyObject *classes, *table; /* as describe_each takes them; borrowed */
    PyObject *leaves;          /* a list that gets the tensors that require grad, or NULL */
    PyObject *(*other)(struct Encoding *encoding, PyObject *value, PyObject *name); /* makes the records of all other kinds of values */
    void *context;             /* for `other` and `keep` */
    /* Keeps the values of a tensor that has some, once its record is made; NULL: none are kept. `address`: where they lie side by side,
       NULL where they do not. 0: an error is set. */
    int (*keep)(struct Encoding *encoding, PyObject *tensor, PyObject *record, PyObject *name, const void *address, long long bytes);
    long tensors;              /* counts up */
    int ordinary;              /* becomes 0 where a record may hold NaN or an infinite number */
} Encoding;

typedef struct {
    int version;
    /* A list of records, one for each value of a tuple; a dict of records by the keys of a dict. NULL with an error set. */
    PyObject *(*each)(Encoding *encoding, PyObject *values);
    PyObject *(*items)(Encoding *encoding, PyObject *values);
    /* The record of one value; `name` is handed to `other`. */
    PyObject *(*value)(Encoding *encoding, PyObject *value, PyObject *name);
} SharedKernels;

#endif
