/* How far two tensors of one shape lie apart, in float64, in one pass. */
#ifndef MSPROBE_PAIR_H
#define MSPROBE_PAIR_H

#include "decode.h"
#include "pool.h"

#define PAIR_THREADS_FROM (1 << 18)
#define PAIR_WAVE 1024
/* Sums of squares from here on lost nothing to underflow. */
#define PAIR_SAFE_LOW 0x1p-900

/* Of one block, and added up of all. */
typedef struct {
    double dot, sumsq_a, sumsq_b, sumsq_diff; /* in units of the job's scales */
    double max_abs, max_rel, max_a, max_b;
    int64_t equal, within_1e3, within_5e3, nan_differ, inf_differ, nonfinite_equal;
} PairPartial;

typedef struct {
    const char *a, *b;
    int code_a, code_b;
    int64_t numel;
    double eps; /* what stands below the bar of the relative difference where b is 0 */
    int scaled; /* the second pass: squares of float64 left its range, so values are scaled by powers of two */
    double scale_a, scale_b, scale_d;
    int64_t first_block;
    PairPartial *out;
} PairJob;

#define WIDEN(T)                                                                                                               \
    for (int64_t i = 0; i < n; i++) {                                                                                          \
        T v;                                                                                                                   \
        memcpy(&v, p + i * (int64_t)sizeof v, sizeof v);                                                                       \
        s->re[i] = (double)v;                                                                                                  \
    }                                                                                                                          \
    break

static void load_side(Side *s, int code, const char *p, int64_t n)
{
    double aligned[CHUNK * 2];
    switch (code) {
    case C_BOOL:
        for (int64_t i = 0; i < n; i++) s->re[i] = p[i] != 0;
        break;
    case C_U8: WIDEN(uint8_t);
    case C_I8: WIDEN(int8_t);
    case C_U16: WIDEN(uint16_t);
    case C_I16: WIDEN(int16_t);
    case C_U32: WIDEN(uint32_t);
    case C_I32: WIDEN(int32_t);
    case C_F32: WIDEN(float);
    case C_F64: WIDEN(double);
    case C_I64:
        for (int64_t i = 0; i < n; i++) {
            int64_t v;
            memcpy(&v, p + i * 8, 8);
            double d = (double)v; /* 2^63 is no int64: the largest ones are taken apart without going back */
            s->re[i] = d;
            s->lo[i] = d >= 0x1p63 ? -(double)(INT64_MAX - v) - 1.0 : (double)(v - (int64_t)d);
        }
        break;
    case C_U64:
        for (int64_t i = 0; i < n; i++) {
            uint64_t v;
            memcpy(&v, p + i * 8, 8);
            double d = (double)v;
            s->re[i] = d;
            s->lo[i] = d >= 0x1p64 ? -(double)(UINT64_MAX - v) - 1.0 : (double)(int64_t)(v - (uint64_t)d);
        }
        break;
    default:
        memcpy(aligned, p, (size_t)(n * ITEM_SIZE[code]));
        if (is_complex(code)) decode_complex(code, aligned, n, 1.0, s->re, s->im);
        else {
            float narrow[CHUNK];
            decode_narrow(code, aligned, n, narrow);
            for (int64_t i = 0; i < n; i++) s->re[i] = narrow[i];
        }
    }
}
#undef WIDEN

/* The parts that a side's type does not have are zero, and are never written again. */
static void side_init(Side *s, int code)
{
    memset(s, 0, sizeof *s);
    s->has_im = is_complex(code);
    s->has_lo = code == C_I64 || code == C_U64;
}

static inline int is_nan(double re, double im) { return re != re || im != im; }

/* Counts positions where a side is not finite and makes both sides zero there. Returns how many. */
static int64_t set_aside(Side *a, Side *b, int64_t n, PairPartial *out)
{
    int64_t count = 0;
    for (int64_t i = 0; i < n; i++) {
        if (fabs(a->re[i]) <= DBL_MAX && fabs(a->im[i]) <= DBL_MAX && fabs(b->re[i]) <= DBL_MAX && fabs(b->im[i]) <= DBL_MAX) continue;
        int nan_a = is_nan(a->re[i], a->im[i]), nan_b = is_nan(b->re[i], b->im[i]);
        if (nan_a != nan_b) out->nan_differ++;
        else if (nan_a || (a->re[i] == b->re[i] && a->im[i] == b->im[i])) out->nonfinite_equal++;
        else out->inf_differ++;
        a->re[i] = a->im[i] = a->lo[i] = b->re[i] = b->im[i] = b->lo[i] = 0;
        count++;
    }
    return count;
}

/* Any types of which one is complex. */
static void pair_complex(const Side *a, const Side *b, int64_t n, Terms *t)
{
    double square;
    for (int64_t i = 0; i < n; i++) {
        t->product[i] = a->re[i] * b->re[i] + a->im[i] * b->im[i];
        t->a[i] = magnitude(a->re[i], a->im[i], &square);
        t->b[i] = magnitude(b->re[i], b->im[i], &square);
        t->d[i] = magnitude((a->re[i] - b->re[i]) + (a->lo[i] - b->lo[i]), a->im[i] - b->im[i], &square);
    }
}

/* The terms in scaled units; relative differences stay right where a - b itself leaves the range of float64. */
static void pair_scaled(const PairJob *job, const Side *a, const Side *b, int64_t n, Terms *t)
{
    double square, sa = job->scale_a, sb = job->scale_b;
    for (int64_t i = 0; i < n; i++) {
        double ar = a->re[i], ai = a->im[i], br = b->re[i], bi = b->im[i];
        double size_b = magnitude(br, bi, &square);
        double d = magnitude((ar - br) + (a->lo[i] - b->lo[i]), ai - bi, &square);
        t->product[i] = (ar * sa) * (br * sb) + (ai * sa) * (bi * sb);
        t->a[i] = magnitude(ar * sa, ai * sa, &square);
        t->b[i] = magnitude(br * sb, bi * sb, &square);
        if (d <= DBL_MAX && size_b <= DBL_MAX) {
            t->d[i] = d * job->scale_d;
            t->rel[i] = d / (size_b == 0 ? job->eps : size_b);
        } else {
            double quarter = magnitude(0.25 * ar - 0.25 * br, 0.25 * ai - 0.25 * bi, &square);
            t->d[i] = quarter * job->scale_d * 4;
            t->rel[i] = br == 0 && bi == 0 ? INFINITY : quarter / magnitude(0.25 * br, 0.25 * bi, &square);
        }
    }
}

static double largest(const double *lanes)
{
    double big = 0;
    for (int l = 0; l < PAIR_LANES; l++) big = lanes[l] > big ? lanes[l] : big;
    return big;
}

static void pair_block(void *ctx, int64_t k)
{
    const PairJob *job = (const PairJob *)ctx;
    PairPartial *out = &job->out[k];
    int64_t start = (job->first_block + k) * BLOCK, stop = start + BLOCK < job->numel ? start + BLOCK : job->numel;
    int item_a = ITEM_SIZE[job->code_a], item_b = ITEM_SIZE[job->code_b];
    int narrow_complex = (is_complex(job->code_a) || is_complex(job->code_b)) && narrow_float(job->code_a) && narrow_float(job->code_b);
    int64_t not_counted = 0;
    Side a, b;
    Terms t;
    PairAcc acc;
    memset(out, 0, sizeof *out);
    memset(&acc, 0, sizeof acc);
    side_init(&a, job->code_a);
    side_init(&b, job->code_b);
    for (int64_t i = start; i < stop; i += CHUNK) {
        int64_t n = stop - i < CHUNK ? stop - i : CHUNK, padded = (n + PAIR_LANES - 1) / PAIR_LANES * PAIR_LANES;
        load_side(&a, job->code_a, job->a + i * item_a, n);
        load_side(&b, job->code_b, job->b + i * item_b, n);
        for (int64_t pad = n; pad < padded; pad++) a.re[pad] = a.im[pad] = a.lo[pad] = b.re[pad] = b.im[pad] = b.lo[pad] = 0;
        if (!path->all_finite(a.re, b.re, n) || ((a.has_im | b.has_im) && !path->all_finite(a.im, b.im, n)))
            not_counted += set_aside(&a, &b, n, out);
        not_counted += padded - n;
        if (job->scaled) pair_scaled(job, &a, &b, padded, &t);
        else {
            if (narrow_complex) path->pair_narrow_complex(&a, &b, padded, &t);
            else if (a.has_im | b.has_im) pair_complex(&a, &b, padded, &t);
            else path->pair_real(&a, &b, padded, &t);
            path->pair_relative(&t, padded, job->eps);
        }
        path->pair_sums(&t, padded, &acc);
        path->pair_distances(&t, padded, &acc);
    }
    out->dot = fold(acc.dot, PAIR_LANES);
    out->sumsq_a = fold(acc.qa, PAIR_LANES);
    out->sumsq_b = fold(acc.qb, PAIR_LANES);
    out->sumsq_diff = fold(acc.qd, PAIR_LANES);
    out->max_abs = largest(acc.max_abs);
    out->max_rel = largest(acc.max_rel);
    out->max_a = largest(acc.max_a);
    out->max_b = largest(acc.max_b);
    /* what was set aside, and the padding, went through the loops as 0 against 0 */
    out->equal = (int64_t)fold(acc.equal, PAIR_LANES) - not_counted;
    out->within_1e3 = (int64_t)fold(acc.within_1e3, PAIR_LANES) - not_counted;
    out->within_5e3 = (int64_t)fold(acc.within_5e3, PAIR_LANES) - not_counted;
}

static void pair_pass(PairJob *job, PairPartial *t)
{
    int64_t blocks = (job->numel + BLOCK - 1) / BLOCK, wave = 1;
    int threads = job->numel >= PAIR_THREADS_FROM ? pool_threads : 1;
    PairPartial one, *many = threads > 1 ? (PairPartial *)malloc(PAIR_WAVE * sizeof(PairPartial)) : NULL;
    memset(t, 0, sizeof *t);
    if (many) wave = PAIR_WAVE;
    job->out = many ? many : &one;
    for (int64_t first = 0; first < blocks; first += wave) {
        int64_t count = blocks - first < wave ? blocks - first : wave;
        job->first_block = first;
        if (many) pool_run(pair_block, job, count, threads);
        else pair_block(job, 0);
        for (int64_t k = 0; k < count; k++) {
            const PairPartial *p = &job->out[k];
            t->dot += p->dot;
            t->sumsq_a += p->sumsq_a;
            t->sumsq_b += p->sumsq_b;
            t->sumsq_diff += p->sumsq_diff;
            t->max_abs = p->max_abs > t->max_abs ? p->max_abs : t->max_abs;
            t->max_rel = p->max_rel > t->max_rel ? p->max_rel : t->max_rel;
            t->max_a = p->max_a > t->max_a ? p->max_a : t->max_a;
            t->max_b = p->max_b > t->max_b ? p->max_b : t->max_b;
            t->equal += p->equal;
            t->within_1e3 += p->within_1e3;
            t->within_5e3 += p->within_5e3;
            t->nan_differ += p->nan_differ;
            t->inf_differ += p->inf_differ;
            t->nonfinite_equal += p->nonfinite_equal;
        }
    }
    job->out = NULL;
    free(many);
}

static int left_the_range(double sumsq, double big) { return !(sumsq <= DBL_MAX) || (big > 0 && sumsq < PAIR_SAFE_LOW); }

static int scale_exponent(double big)
{
    int e = 0;
    if (!(big <= DBL_MAX)) return 1000;
    if (big > 0) frexp(big, &e);
    return e > 1000 ? 1000 : e < -1000 ? -1000 : e;
}

typedef struct {
    PairPartial p;
    int exp_a, exp_b, exp_d; /* sums of squares are in units of 4^exp, the dot product of 2^(exp_a + exp_b) */
} PairResult;

/* Takes no Python objects, so that it can run without the GIL. */
static void compare_pair_memory(PairJob *job, PairResult *r)
{
    FpEnv env;
    fp_enter(&env);
    memset(r, 0, sizeof *r);
    job->scaled = 0;
    pair_pass(job, &r->p);
    if (left_the_range(r->p.sumsq_a, r->p.max_a) || left_the_range(r->p.sumsq_b, r->p.max_b)
        || left_the_range(r->p.sumsq_diff, r->p.max_abs)) {
        PairPartial again;
        r->exp_a = scale_exponent(r->p.max_a);
        r->exp_b = scale_exponent(r->p.max_b);
        r->exp_d = scale_exponent(r->p.max_abs);
        job->scaled = 1;
        job->scale_a = ldexp(1.0, -r->exp_a);
        job->scale_b = ldexp(1.0, -r->exp_b);
        job->scale_d = ldexp(1.0, -r->exp_d);
        pair_pass(job, &again);
        r->p.dot = again.dot;
        r->p.sumsq_a = again.sumsq_a;
        r->p.sumsq_b = again.sumsq_b;
        r->p.sumsq_diff = again.sumsq_diff;
        r->p.max_rel = again.max_rel;
        r->p.within_1e3 = again.within_1e3;
        r->p.within_5e3 = again.within_5e3;
    }
    fp_leave(&env);
}

#endif
