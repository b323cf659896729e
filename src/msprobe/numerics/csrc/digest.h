/* Checksums of a tensor's bytes in the order of its indices, whatever the layout: CRC-32, or the XOR of its 64-bit words. */
#ifndef MSPROBE_DIGEST_H
#define MSPROBE_DIGEST_H

#include "crc32.h"
#include "pool.h"
#include "source.h"

enum { DIGEST_CRC32, DIGEST_XOR };

/* Below this many bytes the GIL stays held: letting go of it costs more than the pass. */
#define DIGEST_RELEASE_GIL_FROM (1 << 16)
/* From here on threads share the bytes, in pieces of at least DIGEST_PIECE. */
#define DIGEST_THREADS_FROM (1 << 20)
#define DIGEST_PIECE (1 << 18)
#define DIGEST_PIECES 512
/* An expanded dimension of at least so many bytes is computed from the checksum of one repetition. */
#define REPEAT_FROM 1024
/* Rows that lie across the memory are gathered many at a time; so much memory may that take. */
#define PANEL_UP_TO (1 << 18)

typedef struct {
    Source source;
    int kind;
    int flips;              /* bits to be turned over: tensors with the conjugate or negative bit */
    unsigned char flip[16]; /* in elements, again and again */
    uint64_t bytes;         /* all of them */
    int leading;            /* outer dimensions that digest_dims goes through by itself */
    uint64_t inner_bytes[MAX_DIMS];
    uint32_t shift[MAX_DIMS], series[MAX_DIMS];
    int64_t panel, inner;   /* rows gathered at a time (0: not at all) and elements of each */
    int unit;               /* the dimension whose neighbours lie side by side in memory */
    int64_t piece;          /* elements of one thread's part */
    uint64_t *parts;
} DigestJob;

/* The checksum of what came so far; a CRC is the bare state. */
typedef struct {
    const DigestJob *job;
    uint64_t value, position;
} DigestState;

static inline uint64_t rotate_bytes(uint64_t word, uint64_t bytes)
{
    unsigned by = (unsigned)(bytes & 7) * 8;
    return by ? word << by | word >> (64 - by) : word;
}

static uint64_t xor_words(const unsigned char *p, int64_t n)
{
    uint64_t lanes[8] = {0}, words[8], last = 0;
    for (; n >= 64; n -= 64, p += 64) {
        memcpy(words, p, 64);
        for (int k = 0; k < 8; k++) lanes[k] ^= words[k];
    }
    for (; n >= 8; n -= 8, p += 8) {
        memcpy(words, p, 8);
        lanes[0] ^= words[0];
    }
    memcpy(&last, p, (size_t)n);
    for (int k = 0; k < 8; k++) last ^= lanes[k];
#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
    last = __builtin_bswap64(last);
#endif
    return last;
}

static void digest_bytes(DigestState *s, const unsigned char *p, int64_t n)
{
    if (s->job->kind == DIGEST_CRC32) s->value = crc_path.update((uint32_t)s->value, p, n);
    else s->value ^= rotate_bytes(xor_words(p, n), s->position);
    s->position += (uint64_t)n;
}

static void digest_piece(void *ctx, const void *data, int64_t count)
{
    DigestState *s = (DigestState *)ctx;
    const unsigned char *p = (const unsigned char *)data;
    int64_t n = count * s->job->source.item;
    if (!s->job->flips) {
        digest_bytes(s, p, n);
        return;
    }
    while (n > 0) {
        uint64_t buffer[256], flip[2];
        int64_t part = n < (int64_t)sizeof buffer ? n : (int64_t)sizeof buffer;
        memcpy(buffer, p, (size_t)part);
        memset((char *)buffer + part, 0, sizeof buffer - (size_t)part);
        memcpy(flip, s->job->flip, 16);
        for (int64_t k = 0; k * 8 < part; k++) buffer[k] ^= flip[k & 1];
        digest_bytes(s, (const unsigned char *)buffer, part);
        p += part;
        n -= part;
    }
}

/* No prefetcher of a CPU follows columns that lie a page or more apart. */
#if defined(__GNUC__) || defined(__clang__)
#define AHEAD(base, bytes) __builtin_prefetch((const void *)((uintptr_t)(base) + (uintptr_t)(bytes)))
#else
#define AHEAD(base, bytes) (void)0
#endif

/* Reads n neighbours from each column of a row and puts them into n rows. */
static void gather(const DigestJob *job, const char *base, int64_t n, char *out, int64_t row_bytes)
{
    const Source *s = &job->source;
    int last = s->ndim - 1;
    int64_t index[MAX_DIMS] = {0}, offset = 0;
#define GATHER(SIZE)                                                                                                   \
    for (int64_t c = 0; c < s->shape[last]; c++) {                                                                     \
        AHEAD(from, (c + 16) * s->stride[last] * SIZE);                                                                \
        for (int64_t r = 0; r < n; r++)                                                                                \
            memcpy(to + r * row_bytes + c * SIZE, from + (c * s->stride[last] + r) * SIZE, SIZE);                      \
    }
    for (int64_t column = 0; column < job->inner; column += s->shape[last]) {
        const char *from = base + offset * s->item;
        char *to = out + column * s->item;
        switch (s->item) {
        case 1: GATHER(1) break;
        case 2: GATHER(2) break;
        case 4: GATHER(4) break;
        case 8: GATHER(8) break;
        default: GATHER(16)
        }
        for (int k = last - 1; k > job->unit; k--) {
            offset += s->stride[k];
            if (++index[k] < s->shape[k]) break;
            offset -= s->shape[k] * s->stride[k];
            index[k] = 0;
        }
    }
#undef GATHER
}

/* Rows start .. start + count of all the rows that there are; 0 if there is no memory for it. */
static int digest_panels(DigestState *state, int64_t start, int64_t count)
{
    const DigestJob *job = state->job;
    const Source *s = &job->source;
    int64_t bytes = job->inner * s->item, row_bytes = bytes % 512 ? bytes : bytes + 64; /* else rows fight for the same cache lines */
    char *rows = (char *)malloc((size_t)(row_bytes * job->panel));
    if (!rows) return 0;
    while (count > 0) {
        int64_t rest = start / s->shape[job->unit], r = start % s->shape[job->unit], offset = r;
        int64_t n = s->shape[job->unit] - r;
        for (int k = job->unit - 1; k >= 0; k--) {
            offset += rest % s->shape[k] * s->stride[k];
            rest /= s->shape[k];
        }
        if (n > count) n = count;
        if (n > job->panel) n = job->panel;
        gather(job, s->base + offset * s->item, n, rows, row_bytes);
        if (row_bytes == bytes) digest_piece(state, rows, n * job->inner);
        else
            for (int64_t k = 0; k < n; k++) digest_piece(state, rows + k * row_bytes, job->inner);
        start += n;
        count -= n;
    }
    free(rows);
    return 1;
}

/* Elements start .. start + n, whole rows where panels are gathered. */
static uint64_t digest_range(const DigestJob *job, int64_t start, int64_t n, uint64_t before)
{
    DigestState s = {job, before, 0};
    if (!job->panel || !digest_panels(&s, start / job->inner, n / job->inner)) source_walk(&job->source, start, n, digest_piece, &s);
    return s.value;
}

static void digest_part(void *ctx, int64_t k)
{
    const DigestJob *job = (const DigestJob *)ctx;
    int64_t start = k * job->piece, n = job->source.numel - start;
    job->parts[k] = digest_range(job, start, n < job->piece ? n : job->piece, 0);
}

/* All elements of the source, by several threads where there are many. */
static uint64_t digest_source(DigestJob *job)
{
    int64_t numel = job->source.numel, item = job->source.item;
    if (pool_threads == 1 || numel < DIGEST_THREADS_FROM / item) return digest_range(job, 0, numel, 0);
    uint64_t parts[DIGEST_PIECES], value = 0;
    int64_t step = job->panel ? job->inner * job->panel : 1;
    job->piece = DIGEST_PIECE / item;
    if (job->piece < numel / DIGEST_PIECES + 1) job->piece = numel / DIGEST_PIECES + 1;
    job->piece = (job->piece + step - 1) / step * step;
    job->parts = parts;
    int64_t count = (numel + job->piece - 1) / job->piece;
    pool_run(digest_part, job, count, pool_threads);
    uint64_t bytes = (uint64_t)(job->piece * item), last = (uint64_t)((numel - (count - 1) * job->piece) * item);
    uint32_t shift = job->kind == DIGEST_CRC32 ? crc_shift(bytes) : 0;
    for (int64_t k = 0; k < count; k++) {
        if (job->kind == DIGEST_XOR) value ^= rotate_bytes(parts[k], bytes * (uint64_t)k);
        else value = crc_multiply((uint32_t)value, k == count - 1 ? crc_shift(last) : shift) ^ (uint32_t)parts[k];
    }
    return value;
}

/* `outer` are the dimensions that were there before digest_plan cut the leading ones off. */
static uint64_t digest_dims(DigestJob *job, const Source *outer, int dim, const char *base)
{
    if (dim == job->leading) {
        job->source.base = base;
        return digest_source(job);
    }
    uint64_t n = (uint64_t)outer->shape[dim], bytes = job->inner_bytes[dim], value = 0;
    if (outer->stride[dim] == 0) {
        uint64_t one = digest_dims(job, outer, dim + 1, base);
        if (job->kind == DIGEST_CRC32) return crc_multiply((uint32_t)one, job->series[dim]);
        for (uint64_t k = 0; k < n % 16; k++) value ^= rotate_bytes(one, k * bytes); /* eight turn it once, sixteen cancel */
        return value;
    }
    for (uint64_t k = 0; k < n; k++) {
        uint64_t one = digest_dims(job, outer, dim + 1, base + (int64_t)k * outer->stride[dim] * outer->item);
        if (job->kind == DIGEST_CRC32) value = crc_multiply((uint32_t)value, job->shift[dim]) ^ one;
        else value ^= rotate_bytes(one, k * bytes);
    }
    return value;
}

static void plan_panels(DigestJob *job)
{
    const Source *s = &job->source;
    int last = s->ndim - 1, unit = last;
    int64_t inner = 1, most = PANEL_UP_TO / s->item;
    if (s->stride[last] == 1) return;
    for (; unit >= 0 && s->stride[unit] != 1; unit--) {
        if (inner > most / s->shape[unit]) return;
        inner *= s->shape[unit];
    }
    if (unit < 0) return;
    int64_t rows = 64 / s->item; /* a cache line */
    if (rows < 4096 / (inner * s->item)) rows = 4096 / (inner * s->item);
    if (rows > s->shape[unit]) rows = s->shape[unit];
    while (rows > 1 && rows * (inner * s->item + 64) > PANEL_UP_TO) rows /= 2;
    if (rows < 4) return;
    job->panel = rows;
    job->inner = inner;
    job->unit = unit;
}

/* Cuts off the dimensions down to the innermost one that is worth repeating; returns the number of bytes that will be looked at. */
static double digest_plan(DigestJob *job, Source *outer)
{
    Source *s = &job->source;
    uint64_t bytes = (uint64_t)s->item;
    double work = 1;
    source_merge(s);
    job->bytes = (uint64_t)s->numel * bytes;
    job->leading = 0;
    job->panel = 0;
    if (s->ndim == 1 && s->stride[0] == 1) return (double)job->bytes;
    *outer = *s;
    for (int k = s->ndim - 1; k >= 0; k--) {
        job->inner_bytes[k] = bytes;
        bytes *= (uint64_t)s->shape[k];
        if (!job->leading && s->stride[k] == 0 && s->shape[k] > 1 && bytes >= REPEAT_FROM) job->leading = k + 1;
    }
    for (int k = 0; k < job->leading; k++) {
        if (outer->stride[k] != 0) work *= (double)outer->shape[k];
        if (job->kind != DIGEST_CRC32) continue;
        job->shift[k] = crc_shift(job->inner_bytes[k]);
        if (outer->stride[k] == 0) job->series[k] = crc_series(job->shift[k], (uint64_t)outer->shape[k]);
    }
    if (job->leading) {
        s->ndim -= job->leading;
        s->numel = 1;
        for (int k = 0; k < s->ndim; k++) {
            s->shape[k] = outer->shape[k + job->leading];
            s->stride[k] = outer->stride[k + job->leading];
            s->numel *= s->shape[k];
        }
        source_merge(s);
    }
    plan_panels(job);
    return work * (double)s->numel * s->item;
}

/* What zlib.crc32 says of all bytes, or their 64-bit words added by XOR. `outer` comes from digest_plan; takes no Python objects. */
static uint64_t digest_run(DigestJob *job, const Source *outer)
{
    const Source *s = &job->source;
    if (job->kind == DIGEST_XOR) return digest_dims(job, outer, 0, s->base);
    if (!job->leading && (pool_threads == 1 || s->numel < DIGEST_THREADS_FROM / s->item))
        return (uint32_t)~digest_range(job, 0, s->numel, 0xFFFFFFFFu);
    return (uint32_t)~(digest_dims(job, outer, 0, s->base) ^ crc_multiply(0xFFFFFFFFu, crc_shift(job->bytes)));
}

#endif
