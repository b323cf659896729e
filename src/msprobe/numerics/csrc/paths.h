/* One table of loops per instruction set; the widest that the CPU has is chosen when the module is loaded. */
#ifndef MSPROBE_PATHS_H
#define MSPROBE_PATHS_H

#include "base.h"

typedef void (*AccFn)(const void *RESTRICT, int64_t, Acc *RESTRICT);
typedef void (*DecodeFn)(const uint16_t *RESTRICT, int64_t, float *RESTRICT);

typedef struct {
    const char *name;
    AccFn f32, f64;
    void (*magnitudes)(const double *RESTRICT, const double *RESTRICT, int64_t, Acc *RESTRICT);
    void (*split_parts)(const float *RESTRICT, int64_t, double *RESTRICT, double *RESTRICT);
    void (*narrow_magnitudes)(const double *RESTRICT, const double *RESTRICT, int64_t, double *RESTRICT, double *RESTRICT);
    AccFn ints[C_I64 + 1]; /* by dtype code */
    DecodeFn bf16, f16;
    int (*all_finite)(const double *RESTRICT, const double *RESTRICT, int64_t);
    void (*pair_real)(const Side *RESTRICT, const Side *RESTRICT, int64_t, Terms *RESTRICT);
    void (*pair_narrow_complex)(const Side *RESTRICT, const Side *RESTRICT, int64_t, Terms *RESTRICT);
    void (*pair_relative)(Terms *RESTRICT, int64_t, double);
    void (*pair_sums)(const Terms *RESTRICT, int64_t, PairAcc *RESTRICT);
    void (*pair_distances)(const Terms *RESTRICT, int64_t, PairAcc *RESTRICT);
} Path;

/* IEEE half to single, exact: the exponent is moved by a multiplication, which also normalises subnormals. */
static inline float half_to_float(uint16_t h)
{
    uint32_t bits = (uint32_t)(h & 0x7fff) << 13;
    float f;
    memcpy(&f, &bits, 4);
    f *= 0x1p112f;
    memcpy(&bits, &f, 4);
    if (f >= 65536.0f) bits |= 0x7f800000u; /* exponent 31: infinity or NaN */
    bits |= (uint32_t)(h & 0x8000) << 16;
    memcpy(&f, &bits, 4);
    return f;
}

#define PATH_NAME "portable"
#define FN(name) name##_portable
#define TARGET
#define HAVE_FMA_F16C 0
#include "lanes.inc"
#undef PATH_NAME
#undef FN
#undef TARGET
#undef HAVE_FMA_F16C

#if X86_DISPATCH
#define HAVE_FMA_F16C 1

#define PATH_NAME "avx2"
#define FN(name) name##_avx2
#define TARGET __attribute__((target("avx2,fma,f16c")))
#include "lanes.inc"
#undef PATH_NAME
#undef FN
#undef TARGET

#define PATH_NAME "avx512"
#define FN(name) name##_avx512
#define TARGET __attribute__((target("avx512f,avx512dq,avx512bw,avx512vl,avx2,fma,f16c")))
#include "lanes.inc"
#undef PATH_NAME
#undef FN
#undef TARGET
#undef HAVE_FMA_F16C
#endif

#define MAX_PATHS 3

/* The tables that this CPU can run, best first. */
static int available_paths(const Path **out)
{
    int n = 0;
#if X86_DISPATCH
    __builtin_cpu_init();
    int avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c");
    if (avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512bw")
        && __builtin_cpu_supports("avx512vl"))
        out[n++] = &path_avx512;
    if (avx2) out[n++] = &path_avx2;
#endif
    out[n++] = &path_portable;
    return n;
}

static const Path *path = &path_portable;

#endif
