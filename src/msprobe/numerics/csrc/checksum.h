/* The Python face of digest.h. Included by _kernels.c after describe.h, whose way of asking a tensor it uses. */

/* What there is to know of a dtype: the size of an element, and where the negative and conjugate bits turn signs over. */
enum { ROW_ITEM = 31, ROW_FLOAT = 32, ROW_COMPLEX = 64 };

static PyObject *dtype_rows; /* dtype -> one of these, 0: its elements are not whole bytes */
static PyObject *is_complex_text, *is_floating_text, *itemsize_text;

static int checksum_init(void)
{
    crc_init();
    return (dtype_rows = PyDict_New()) && (is_complex_text = PyUnicode_InternFromString("is_complex"))
        && (is_floating_text = PyUnicode_InternFromString("is_floating_point")) && (itemsize_text = PyUnicode_InternFromString("itemsize"));
}

static int code_of_size(long item)
{
    switch (item) {
    case 1: return C_U8;
    case 2: return C_U16;
    case 4: return C_U32;
    case 8: return C_U64;
    case 16: return C_C128;
    default: return -1;
    }
}

/* Two and four elements of these share a byte, so that numel says nothing of the memory. */
static int is_packed(PyObject *dtype)
{
    static const char *const names[] = {"torch.quint4x2", "torch.quint2x4"};
    PyObject *text = PyObject_Str(dtype);
    int found = text ? 0 : -1;
    for (int k = 0; k < 2 && found == 0; k++) {
        PyObject *name = PyUnicode_FromString(names[k]);
        found = name ? PyObject_RichCompareBool(text, name, Py_EQ) : -1;
        Py_XDECREF(name);
    }
    Py_XDECREF(text);
    return found;
}

/* -1: an error is set. */
static long dtype_row(PyObject *dtype)
{
    PyObject *known = PyDict_GetItemWithError(dtype_rows, dtype);
    if (known) return PyLong_AsLong(known);
    if (PyErr_Occurred()) return -1;
    PyObject *size = PyObject_GetAttr(dtype, itemsize_text);
    if (!size) return -1;
    long row = PyLong_AsLong(size);
    Py_DECREF(size);
    if (PyErr_Occurred()) return -1;
    if (code_of_size(row) < 0) row = 0;
    int packed = is_packed(dtype), complex_ = says_yes(PyObject_GetAttr(dtype, is_complex_text));
    int floating = says_yes(PyObject_GetAttr(dtype, is_floating_text));
    if (packed < 0 || complex_ < 0 || floating < 0) return -1;
    if (packed) row = 0;
    if (row && complex_) row |= ROW_COMPLEX;
    if (row && floating) row |= ROW_FLOAT;
    PyObject *object = PyLong_FromLong(row);
    if (!object || PyDict_SetItem(dtype_rows, dtype, object) < 0) row = -1;
    Py_XDECREF(object);
    return row;
}

/* Where the signs are: 0 if this dtype has none of its own. */
static int plan_flips(DigestJob *job, long row, int conjugate, int negative)
{
    int item = (int)(row & ROW_ITEM), size = row & ROW_COMPLEX ? item / 2 : item;
    memset(job->flip, 0, sizeof job->flip);
    job->flips = conjugate || negative;
    if (!job->flips) return 1;
    if (!(row & (ROW_FLOAT | ROW_COMPLEX)) || size < 2) return 0;
    for (int at = 0; at < 16; at += size) {
        int imaginary = (row & ROW_COMPLEX) && at / size % 2;
#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
        int sign = at;
#else
        int sign = at + size - 1;
#endif
        if (negative != (conjugate && imaginary)) job->flip[sign] = 0x80;
    }
    return 1;
}

/* Fills job->source: no element is read as anything but bytes. */
static int plan_source(DigestJob *job, const Memory *memory, long item)
{
    if (!memory_source(memory, &job->source, code_of_size(item), 0)) return 0;
    job->source.aligned = 1;
    return 1;
}

static uint64_t run_digest(DigestJob *job)
{
    uint64_t value;
    Source outer;
    if (job->source.numel == 0) return 0;
    if (digest_plan(job, &outer) >= DIGEST_RELEASE_GIL_FROM) {
        Py_BEGIN_ALLOW_THREADS
        value = digest_run(job, &outer);
        Py_END_ALLOW_THREADS
    } else {
        value = digest_run(job, &outer);
    }
    return value;
}

static PyObject *digest_of(int kind, const char *name, PyObject *const *args, Py_ssize_t nargs)
{
    DigestJob job;
    if (!check_nargs(name, nargs, 4)) return NULL;
    void *address = PyLong_AsVoidPtr(args[0]);
    if (!address && PyErr_Occurred()) return NULL;
    long item = PyLong_AsLong(args[1]);
    if (item == -1 && PyErr_Occurred()) return NULL;
    if (code_of_size(item) < 0) {
        PyErr_Format(PyExc_ValueError, "an element has %ld bytes; it may have 1, 2, 4, 8 or 16", item);
        return NULL;
    }
    job.kind = kind;
    Memory memory;
    if (!plan_flips(&job, item, 0, 0) || !memory_of_tuples(&memory, address, args[2], args[3]) || !plan_source(&job, &memory, item)) return NULL;
    return PyLong_FromUnsignedLongLong(run_digest(&job));
}

PyDoc_STRVAR(crc32_of_doc, "crc32_of(address, itemsize, shape, strides, /)\n--\n\n"
"zlib.crc32 of the elements of a view in the order of its indices; strides count elements and are not negative.");

static PyObject *crc32_of(PyObject *self, PyObject *const *args, Py_ssize_t nargs)
{
    (void)self;
    return digest_of(DIGEST_CRC32, "crc32_of", args, nargs);
}

PyDoc_STRVAR(xor_of_doc, "xor_of(address, itemsize, shape, strides, /)\n--\n\n"
"The bytes of a view in the order of its indices, as little-endian 64-bit words, the last filled up with zeros, added by XOR.");

static PyObject *xor_of(PyObject *self, PyObject *const *args, Py_ssize_t nargs)
{
    (void)self;
    return digest_of(DIGEST_XOR, "xor_of", args, nargs);
}

static PyObject *hexadecimal(int kind, uint64_t value)
{
    static const char digits[] = "0123456789abcdef";
    int n = kind == DIGEST_CRC32 ? 8 : 16, at = kind == DIGEST_CRC32 ? 0 : 2;
    char text[18] = "0x";
    for (int k = n - 1; k >= 0; k--, value >>= 4) text[at + k] = digits[value & 15];
    return PyUnicode_FromStringAndSize(text, at + n);
}

/* The checksum as text; None for the XOR of nothing. Not for packed dtypes, nor for the conjugate or the negative bit. */
static PyObject *memory_digest(int kind, const Memory *memory, int code)
{
    DigestJob job;
    job.kind = kind;
    job.flips = 0;
    if (!plan_source(&job, memory, ITEM_SIZE[code])) return NULL;
    return kind == DIGEST_XOR && !job.source.numel ? none() : hexadecimal(kind, run_digest(&job));
}

/* NULL without an error set: a tensor that has no plain memory here. */
static PyObject *tensor_digest(int kind, PyObject *tensor)
{
    DigestJob job;
    Memory memory;
    PyObject *dtype = PyObject_GetAttr(tensor, attribute[A_DTYPE]);
    if (!dtype) return NULL;
    long row = dtype_row(dtype);
    Py_DECREF(dtype);
    if (row <= 0 || !memory_by_attributes(&memory, tensor)) return NULL;
    int negative = says_yes(ask(tensor, A_IS_NEG)), conjugate = row & ROW_COMPLEX ? says_yes(ask(tensor, A_IS_CONJ)) : 0;
    if (negative < 0 || conjugate < 0) return NULL;
    job.kind = kind;
    if (!plan_flips(&job, row, conjugate, negative)) return NULL;
    if (!plan_source(&job, &memory, row & ROW_ITEM) || (kind == DIGEST_XOR && !job.source.numel)) return NULL;
    return hexadecimal(kind, run_digest(&job));
}

static PyObject *text_or_none(PyObject *text)
{
    if (text) return text;
    /* Whatever kind of tensor refused an answer: the caller has a slower way that finds out. */
    if (PyErr_Occurred() && PyErr_ExceptionMatches(PyExc_Exception)) PyErr_Clear();
    return PyErr_Occurred() ? NULL : none();
}

PyDoc_STRVAR(checksum_doc, "checksum(tensor, /)\n--\n\n"
"CRC-32 of a tensor's values as 8 hexadecimal digits; None for a tensor without strided memory of its own on the host.");

static PyObject *checksum(PyObject *self, PyObject *tensor)
{
    (void)self;
    return text_or_none(tensor_digest(DIGEST_CRC32, tensor));
}

PyDoc_STRVAR(xor_checksum_doc, "xor_checksum(tensor, /)\n--\n\n"
"XOR of a tensor's 64-bit words as 0x and 16 hexadecimal digits; None for an empty tensor and where checksum() gives None.");

static PyObject *xor_checksum(PyObject *self, PyObject *tensor)
{
    (void)self;
    return text_or_none(tensor_digest(DIGEST_XOR, tensor));
}

PyDoc_STRVAR(crc32_combine_doc, "crc32_combine(first, second, nbytes, /)\n--\n\n"
"The CRC-32 of two byte strings, one after the other, from that of each and the length of the second.");

static PyObject *crc32_combine(PyObject *self, PyObject *const *args, Py_ssize_t nargs)
{
    uint64_t value[3];
    (void)self;
    if (!check_nargs("crc32_combine", nargs, 3)) return NULL;
    for (int k = 0; k < 3; k++) {
        value[k] = PyLong_AsUnsignedLongLong(args[k]);
        if (value[k] == UINT64_MAX && PyErr_Occurred()) return NULL;
    }
    if (value[0] > UINT32_MAX || value[1] > UINT32_MAX) {
        PyErr_SetString(PyExc_ValueError, "a CRC-32 has 32 bits");
        return NULL;
    }
    return PyLong_FromUnsignedLongLong(crc_multiply((uint32_t)value[0], crc_shift(value[2])) ^ value[1]);
}

PyDoc_STRVAR(crc_paths_doc, "_crc_paths()\n--\n\nThe ways to compute CRC-32 that can be forced here, best first.");

static PyObject *crc_paths(PyObject *self, PyObject *unused)
{
    CrcPath found[MAX_CRC_PATHS];
    PyObject *names[MAX_CRC_PATHS];
    (void)self;
    (void)unused;
    int n = available_crc_paths(found);
    for (int k = 0; k < n; k++) names[k] = PyUnicode_FromString(found[k].name);
    return pack_many(names, n);
}

PyDoc_STRVAR(force_crc_path_doc, "_force_crc_path(name, /)\n--\n\nFor tests: compute CRC-32 this way; returns the way before.");

static PyObject *force_crc_path(PyObject *self, PyObject *arg)
{
    CrcPath found[MAX_CRC_PATHS], before = crc_path;
    (void)self;
    int n = available_crc_paths(found);
    for (int k = 0; k < n; k++) {
        PyObject *name = PyUnicode_FromString(found[k].name);
        int same = name ? PyObject_RichCompareBool(name, arg, Py_EQ) : -1;
        Py_XDECREF(name);
        if (same < 0) return NULL;
        if (same) {
            crc_path = found[k];
            return PyUnicode_FromString(before.name);
        }
    }
    PyErr_Format(PyExc_ValueError, "%R is no way to compute CRC-32 on this machine", arg);
    return NULL;
}

#define CHECKSUM_METHODS \
    {"crc32_of", (PyCFunction)(void (*)(void))crc32_of, METH_FASTCALL, crc32_of_doc}, \
    {"xor_of", (PyCFunction)(void (*)(void))xor_of, METH_FASTCALL, xor_of_doc}, \
    {"checksum", checksum, METH_O, checksum_doc}, \
    {"xor_checksum", xor_checksum, METH_O, xor_checksum_doc}, \
    {"crc32_combine", (PyCFunction)(void (*)(void))crc32_combine, METH_FASTCALL, crc32_combine_doc}, \
    {"_crc_paths", crc_paths, METH_NOARGS, crc_paths_doc}, \
    {"_force_crc_path", force_crc_path, METH_O, force_crc_path_doc}
