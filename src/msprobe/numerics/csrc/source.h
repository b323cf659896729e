/* A tensor in memory: where its elements lie, and how to walk over them in pieces that lie side by side. */
#ifndef MSPROBE_SOURCE_H
#define MSPROBE_SOURCE_H

#include "base.h"

#define MAX_DIMS 64
/* A row shorter than this is copied together with its neighbours before it is worked on. */
#define DIRECT_RUN 64
/* Expanded tensors with more elements than this are not walked element by element. */
#define WALK_UP_TO ((int64_t)1 << 26)

typedef struct {
    const char *base;
    int code, item;
    int aligned;         /* elements may be read in place */
    int ndim;            /* 1 and stride 1: contiguous */
    int64_t shape[MAX_DIMS], stride[MAX_DIMS]; /* in elements, outermost first */
    int64_t numel;       /* distinct positions walked over */
    double repeat;       /* how often each appears: expanded dimensions are counted, not walked */
} Source;

static void source_contiguous(Source *s, const void *base, int code, int64_t numel)
{
    s->base = (const char *)base;
    s->code = code;
    s->item = ITEM_SIZE[code];
    s->aligned = ((uintptr_t)base & (uintptr_t)(ITEM_ALIGN[code] - 1)) == 0;
    s->ndim = 1;
    s->shape[0] = s->numel = numel;
    s->stride[0] = 1;
    s->repeat = 1;
}

/* One more dimension, outermost first; returns 0 if there are too many.
   The order stays that of the indices, not that of the memory: the same values in another layout are added up in the same order and
   give the same bits. Only where `count` says so are expanded dimensions counted instead of walked. */
static int source_add_dim(Source *s, int64_t size, int64_t stride, int count)
{
    if (size == 1) return 1;
    if (stride == 0 && count) {
        s->repeat *= (double)size;
        return 1;
    }
    if (s->ndim == MAX_DIMS) return 0;
    s->shape[s->ndim] = size;
    s->stride[s->ndim++] = stride;
    s->numel *= size;
    return 1;
}

/* Dimensions that follow each other in memory become one. */
static void source_merge(Source *s)
{
    int out = 0;
    for (int k = 1; k < s->ndim; k++) {
        if (s->stride[out] == s->stride[k] * s->shape[k]) {
            s->shape[out] *= s->shape[k];
            s->stride[out] = s->stride[k];
        } else {
            out++;
            s->shape[out] = s->shape[k];
            s->stride[out] = s->stride[k];
        }
    }
    if (s->ndim) s->ndim = out + 1;
    else {
        s->ndim = 1;
        s->shape[0] = 1;
        s->stride[0] = 1;
    }
}

static inline void copy_items(char *dst, const char *src, int64_t n, int64_t step_bytes, int item)
{
#define COPY(SIZE) for (int64_t i = 0; i < n; i++) memcpy(dst + i * SIZE, src + i * step_bytes, SIZE)
    if (step_bytes == item) memcpy(dst, src, (size_t)(n * item));
    else if (item == 1) COPY(1);
    else if (item == 2) COPY(2);
    else if (item == 4) COPY(4);
    else if (item == 8) COPY(8);
    else COPY(16);
#undef COPY
}

/* Calls use(ctx, pointer, n) for consecutive pieces that cover elements start .. start + n. */
typedef void (*UseFn)(void *ctx, const void *data, int64_t n);

static void source_walk(const Source *s, int64_t start, int64_t n, UseFn use, void *ctx)
{
    int last = s->ndim - 1;
    if (last == 0 && s->stride[0] == 1 && s->aligned) {
        use(ctx, s->base + start * s->item, n);
        return;
    }
    double buffer[2 * CHUNK]; /* CHUNK elements of the largest type */
    int64_t index[MAX_DIMS], rest = start, offset = 0, filled = 0;
    for (int k = last; k >= 0; k--) {
        index[k] = rest % s->shape[k];
        rest /= s->shape[k];
        offset += index[k] * s->stride[k];
    }
    while (n > 0) {
        int64_t run = s->shape[last] - index[last], step = s->stride[last];
        if (run > n) run = n;
        const char *p = s->base + offset * s->item;
        if (step == 1 && s->aligned && filled == 0 && run >= DIRECT_RUN) {
            run -= run % LANES; /* every piece but the last fills the lanes, so that an element's lane depends on its index alone */
            use(ctx, p, run);
        } else {
            if (run > CHUNK - filled) run = CHUNK - filled;
            copy_items((char *)buffer + filled * s->item, p, run, step * s->item, s->item);
            filled += run;
            if (filled == CHUNK) {
                use(ctx, buffer, filled);
                filled = 0;
            }
        }
        n -= run;
        index[last] += run;
        offset += run * step;
        for (int k = last; k > 0 && index[k] == s->shape[k]; k--) {
            offset += s->stride[k - 1] - s->shape[k] * s->stride[k];
            index[k] = 0;
            index[k - 1]++;
        }
    }
    if (filled) use(ctx, buffer, filled);
}

#endif
