/* What all kernels share: dtype codes, accumulators, the floating-point environment. */
#ifndef MSPROBE_BASE_H
#define MSPROBE_BASE_H

#include <float.h>
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#if defined(__clang__)
#pragma STDC FP_CONTRACT OFF
#elif defined(_MSC_VER)
#pragma fp_contract(off)
#endif

#if defined(__x86_64__) || defined(_M_X64)
#define X86_64 1
#include <immintrin.h>
#else
#define X86_64 0
#include <fenv.h>
#endif
/* Functions for instruction sets beyond the one that is compiled for, chosen at run time. */
#if X86_64 && (defined(__GNUC__) || defined(__clang__))
#define X86_DISPATCH 1
#else
#define X86_DISPATCH 0
#endif

#if defined(_MSC_VER)
#define RESTRICT __restrict
#else
#define RESTRICT restrict
#endif

/* The same numbers as numerics/dtypes.py. */
enum {
    C_BOOL, C_U8, C_I8, C_U16, C_I16, C_U32, C_I32, C_U64, C_I64,
    C_F16, C_BF16, C_F32, C_F64, C_C32, C_C64, C_C128,
    C_E4M3FN, C_E5M2, C_E4M3FNUZ, C_E5M2FNUZ, C_E8M0FNU, C_COUNT
};

static const uint8_t ITEM_SIZE[C_COUNT] = {1, 1, 1, 2, 2, 4, 4, 8, 8, 2, 2, 4, 8, 4, 8, 16, 1, 1, 1, 1, 1};
/* Largest power of two that an element's address must be a multiple of to be read in place. */
static const uint8_t ITEM_ALIGN[C_COUNT] = {1, 1, 1, 2, 2, 4, 4, 8, 8, 2, 2, 4, 8, 2, 4, 8, 1, 1, 1, 1, 1};

static inline int is_complex(int code) { return code >= C_C32 && code <= C_C128; }
/* Types whose numbers float32 holds. */
static inline int narrow_float(int code) { return code >= C_F16 && code != C_F64 && code != C_C128; }
static inline int is_int(int code) { return code >= C_U8 && code <= C_I64; }

/* Element i of a run goes to lane i mod LANES on every CPU, so that SSE2, AVX2, AVX-512, NEON and plain C add in one order. */
#define LANES 16
/* Elements decoded at a time into buffers on the stack (threads may have little of it); a multiple of LANES. */
#define CHUNK 256
/* Elements of one partial result; the partition depends on the number of elements alone, never on the number of threads. */
#define BLOCK 16384

/* The running state of one block. */
typedef struct {
    double s[LANES], q[LANES]; /* sums and sums of squares, or of magnitudes */
    double max, min;
    int64_t sum_high, sum_low; /* integers: sums of x >> 32 and of x & 0xffffffff, exact */
    int64_t imax, imin;        /* bits of an uint64 where that is the type */
    int seen;
} Acc;

static inline void acc_init(Acc *a)
{
    memset(a, 0, sizeof *a);
    a->max = -INFINITY;
    a->min = INFINITY;
}

/* A chunk of one side of a pair: value = re + lo + i im. lo is what float64 cannot hold of a 64-bit integer. */
typedef struct {
    double re[CHUNK], im[CHUNK], lo[CHUNK];
    int has_im, has_lo;
} Side;

/* Of each position: conj(a) b, |a|, |b|, |a - b|, |a - b| / |b|. */
typedef struct {
    double product[CHUNK], a[CHUNK], b[CHUNK], d[CHUNK], rel[CHUNK];
} Terms;

#define PAIR_LANES 16
typedef struct {
    double dot[PAIR_LANES], qa[PAIR_LANES], qb[PAIR_LANES], qd[PAIR_LANES];
    double max_abs[PAIR_LANES], max_rel[PAIR_LANES], max_a[PAIR_LANES], max_b[PAIR_LANES];
    double equal[PAIR_LANES], within_1e3[PAIR_LANES], within_5e3[PAIR_LANES]; /* counts: as doubles the loop stays vector code */
} PairAcc;

/* One fixed tree, whatever the width of the registers that held the lanes. */
static inline double fold(const double *lanes, int n)
{
    double t[LANES];
    memcpy(t, lanes, (size_t)n * sizeof(double));
    for (int half = n / 2; half >= 1; half /= 2)
        for (int l = 0; l < half; l++) t[l] += t[l + half];
    return t[0];
}

/* A user may have switched on flush-to-zero, another rounding or traps (torch.set_flush_denormal does the first);
   sums must come out the same under all of them, and the user's setting must be as before afterwards. */
#if X86_64
typedef unsigned FpEnv;
static inline void fp_enter(FpEnv *e) { *e = _mm_getcsr(); _mm_setcsr(0x1f80); }
static inline void fp_leave(const FpEnv *e) { _mm_setcsr(*e); }
#else
typedef fenv_t FpEnv;
static inline void fp_enter(FpEnv *e) { fegetenv(e); fesetenv(FE_DFL_ENV); }
static inline void fp_leave(const FpEnv *e) { fesetenv(e); }
#endif

/* |re + i im| and its square, without overflow or underflow on the way; NaN if a part is NaN. */
static inline double magnitude(double re, double im, double *square)
{
    double q = re * re + im * im;
    *square = q;
    if ((q >= 0x1p-900 && q <= 0x1p1000) || q != q) return sqrt(q);
    double big = fabs(re) > fabs(im) ? fabs(re) : fabs(im);
    if (big == 0 || big > DBL_MAX) return big;
    int e;
    frexp(big, &e);
    e = e > 1000 ? 1000 : e < -1000 ? -1000 : e;
    double s = ldexp(1.0, -e);
    re *= s;
    im *= s;
    return ldexp(sqrt(re * re + im * im), e);
}

#endif
