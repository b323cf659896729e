/* The part of DLPack's C exchange API that tells where a tensor lies (dlpack.h of DLPack 1.3, stable over all versions 1.x). A class offers
   it as a capsule, `__dlpack_c_exchange_api__`; torch does from 2.10 on. */
#ifndef MSPROBE_EXCHANGE_H
#define MSPROBE_EXCHANGE_H

typedef struct {
    void *data;
    int32_t device_type, device_id;
    int32_t ndim;
    struct {
        uint8_t code, bits;
        uint16_t lanes;
    } dtype;
    int64_t *shape, *strides;
    uint64_t byte_offset;
} DLTensor;

typedef struct ExchangeApi {
    struct {
        struct {
            uint32_t major, minor;
        } version;
        struct ExchangeApi *prev_api;
    } header;
    void (*managed_tensor_allocator)(void);
    void (*managed_tensor_from_py_object_no_sync)(void);
    void (*managed_tensor_to_py_object_no_sync)(void);
    int (*dltensor_from_py_object_no_sync)(void *object, DLTensor *out);
    void (*current_work_stream)(void);
} ExchangeApi;

enum { DL_MAJOR = 1, DL_CPU = 1 };

/* What is told of a tensor in host memory. Sizes and strides count elements and are the tensor's own: they live as long as it is not changed. */
typedef struct {
    void *address;
    int ndim;
    const int64_t *shape, *strides; /* strides NULL: side by side */
} Exchanged;

/* 0, perhaps with an error set, where the capsule does not tell: a tensor of another kind, or one that is not in host memory. */
static int exchange_read(PyObject *capsule, PyObject *tensor, Exchanged *out)
{
    ExchangeApi *api = (ExchangeApi *)PyCapsule_GetPointer(capsule, "dlpack_exchange_api");
    while (api && api->header.version.major > DL_MAJOR) api = api->header.prev_api;
    DLTensor told;
    if (!api || api->header.version.major != DL_MAJOR || !api->dltensor_from_py_object_no_sync
        || api->dltensor_from_py_object_no_sync(tensor, &told) != 0)
        return 0;
    if (told.device_type != DL_CPU || told.ndim < 0) return 0;
    out->address = told.data ? (char *)told.data + told.byte_offset : NULL;
    out->ndim = told.ndim;
    out->shape = told.shape;
    out->strides = told.strides;
    return 1;
}

#endif
