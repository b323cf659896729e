/* Max, Min, Mean and Norm of one tensor. */
#ifndef MSPROBE_SUMMARY_H
#define MSPROBE_SUMMARY_H

#include "decode.h"
#include "pool.h"
#include "source.h"

/* Below this many elements the GIL stays held: letting go of it costs more than the pass. */
#define RELEASE_GIL_FROM 16384
#define THREADS_FROM (1 << 18)
#define TEAM_FROM (1 << 17)
/* Blocks whose partial results are held at a time. */
#define WAVE 1024

typedef struct {
    int64_t high;
    uint64_t low;
} Int128;

typedef struct {
    double sum, sumsq, max, min;
    int64_t sum_high, sum_low, imax, imin;
} Partial;

typedef struct {
    Source source;
    double scale; /* what elements are multiplied by: 1, or a power of two in the second pass */
    int64_t first_block;
    Partial *out;
} SummaryJob;

typedef struct {
    const SummaryJob *job;
    Acc acc;
} BlockState;

static void use_piece(void *ctx, const void *data, int64_t n)
{
    BlockState *b = (BlockState *)ctx;
    int code = b->job->source.code;
    double scale = b->job->scale;
    if (code == C_F32) {
        path->f32(data, n, &b->acc);
    } else if (code <= C_I64) {
        path->ints[code](data, n, &b->acc);
    } else if (code == C_F64 && scale == 1) {
        path->f64(data, n, &b->acc);
    } else {
        int item = b->job->source.item;
        for (int64_t i = 0; i < n; i += CHUNK) {
            int64_t m = n - i < CHUNK ? n - i : CHUNK;
            const char *p = (const char *)data + i * item;
            if (is_complex(code)) {
                double magnitudes[CHUNK], squares[CHUNK];
                decode_magnitudes(code, p, m, scale, magnitudes, squares);
                path->magnitudes(magnitudes, squares, m, &b->acc);
            } else if (code == C_F64) {
                double scaled[CHUNK];
                for (int64_t k = 0; k < m; k++) scaled[k] = ((const double *)p)[k] * scale;
                path->f64(scaled, m, &b->acc);
            } else {
                float decoded[CHUNK];
                decode_narrow(code, p, m, decoded);
                path->f32(decoded, m, &b->acc);
            }
        }
    }
}

static void summary_block(void *ctx, int64_t k)
{
    const SummaryJob *job = (const SummaryJob *)ctx;
    Partial *out = &job->out[k];
    int64_t start = (job->first_block + k) * BLOCK, n = job->source.numel - start;
    BlockState b;
    b.job = job;
    acc_init(&b.acc);
    source_walk(&job->source, start, n < BLOCK ? n : BLOCK, use_piece, &b);
    out->sum = fold(b.acc.s, LANES);
    out->sumsq = fold(b.acc.q, LANES);
    out->max = b.acc.max;
    out->min = b.acc.min;
    out->sum_high = b.acc.sum_high;
    out->sum_low = b.acc.sum_low;
    out->imax = b.acc.imax;
    out->imin = b.acc.imin;
}

/* total += high * 2^32 + low */
static void int128_add(Int128 *total, int64_t high, int64_t low)
{
    uint64_t a = (uint64_t)high << 32;
    int64_t a_high = high >> 32;
    uint64_t sum = total->low + a;
    total->high += a_high + (sum < a);
    total->low = sum + (uint64_t)low;
    total->high += (low < 0 ? -1 : 0) + (total->low < sum);
}

/* total / n as the nearest double, but for a rounding of the last bit. */
static double int128_divide(Int128 t, uint64_t n)
{
    int negative = t.high < 0;
    if (negative) {
        t.low = ~t.low + 1;
        t.high = (int64_t)(~(uint64_t)t.high + (t.low == 0));
    }
    uint64_t quotient = 0, rest = (uint64_t)t.high;
    if (rest == 0) {
        quotient = t.low / n;
        rest = t.low % n;
    } else /* school division; a mean fits 64 bits, so rest < n < 2^63 here */
        for (int bit = 63; bit >= 0; bit--) {
            rest = rest << 1 | (t.low >> bit & 1);
            quotient <<= 1;
            if (rest >= n) {
                rest -= n;
                quotient |= 1;
            }
        }
    double mean = (double)quotient + (double)rest / (double)n;
    return negative ? -mean : mean;
}

typedef struct {
    Partial p;
    Int128 sum;
} Total;

static void add_partial(Total *t, const Partial *p, int code, int first)
{
    t->p.sum += p->sum;
    t->p.sumsq += p->sumsq;
    t->p.max = p->max > t->p.max ? p->max : t->p.max;
    t->p.min = p->min < t->p.min ? p->min : t->p.min;
    int128_add(&t->sum, p->sum_high, p->sum_low);
    if (first || (code == C_U64 ? (uint64_t)p->imax > (uint64_t)t->p.imax : p->imax > t->p.imax)) t->p.imax = p->imax;
    if (first || (code == C_U64 ? (uint64_t)p->imin < (uint64_t)t->p.imin : p->imin < t->p.imin)) t->p.imin = p->imin;
}

static void summary_pass(SummaryJob *job, Total *t)
{
    int64_t blocks = (job->source.numel + BLOCK - 1) / BLOCK, wave = 1;
    int threads = job->source.numel >= (team_exists() ? TEAM_FROM : THREADS_FROM) ? pool_threads : 1;
    Partial one, *many = threads > 1 ? (Partial *)malloc(WAVE * sizeof(Partial)) : NULL;
    memset(t, 0, sizeof *t);
    t->p.max = -INFINITY;
    t->p.min = INFINITY;
    if (many) wave = WAVE;
    job->out = many ? many : &one;
    for (int64_t first = 0; first < blocks; first += wave) {
        int64_t count = blocks - first < wave ? blocks - first : wave;
        job->first_block = first;
        if (many) pool_run(summary_block, job, count, threads);
        else summary_block(job, 0);
        for (int64_t k = 0; k < count; k++) add_partial(t, &job->out[k], job->source.code, first + k == 0);
    }
    job->out = NULL;
    free(many);
}

typedef struct {
    double max, min, mean, norm;
    int64_t imax, imin;
} Summary;

/* Sums of squares from here on lost nothing to underflow. */
#define SAFE_LOW 0x1p-900

/* Where squares left the range of float64, everything is summed again, scaled by a power of two. */
static void rescaled(SummaryJob *job, const Total *t, Summary *r)
{
    double big = fabs(t->p.max) > fabs(t->p.min) ? fabs(t->p.max) : fabs(t->p.min);
    int e = 1000;
    if (big <= DBL_MAX) frexp(big, &e);
    e = e > 1000 ? 1000 : e < -1000 ? -1000 : e;
    Total again;
    job->scale = ldexp(1.0, -e);
    summary_pass(job, &again);
    r->mean = ldexp(again.p.sum / (double)job->source.numel, e);
    r->norm = ldexp(sqrt(again.p.sumsq * job->source.repeat), e);
}

/* numel >= 1. Takes no Python objects, so that it can run without the GIL. */
static void summarize_source(SummaryJob *job, Summary *r)
{
    int code = job->source.code;
    double n = (double)job->source.numel;
    FpEnv env;
    Total t;
    fp_enter(&env);
    job->scale = 1;
    summary_pass(job, &t);
    r->imax = t.p.imax;
    r->imin = t.p.imin;
    if (code <= C_I64) {
        r->mean = int128_divide(t.sum, (uint64_t)job->source.numel);
        r->norm = sqrt(t.p.sumsq * job->source.repeat);
    } else if (t.p.sumsq != t.p.sumsq) { /* squares are never negative, so only a NaN among the elements gives NaN */
        r->max = r->min = r->mean = r->norm = NAN;
    } else {
        r->max = t.p.max + 0.0; /* -0 becomes 0: which zero is the maximum depends on the CPU's instruction */
        r->min = t.p.min + 0.0;
        r->mean = t.p.sum / n;
        r->norm = sqrt(t.p.sumsq * job->source.repeat);
        int wide = code == C_F64 || code == C_C128;
        int has_inf = code == C_F64 && (t.p.max > DBL_MAX || t.p.min < -DBL_MAX);
        int overflow = t.p.sumsq * job->source.repeat > DBL_MAX;
        int underflow = t.p.sumsq < SAFE_LOW && (t.p.max != 0 || t.p.min != 0);
        if (wide && !has_inf && (overflow || underflow)) rescaled(job, &t, r);
        /* the true mean lies between the two; rounding may have carried it over */
        if (r->mean > r->max) r->mean = r->max;
        if (r->mean < r->min) r->mean = r->min;
    }
    fp_leave(&env);
}

#endif
