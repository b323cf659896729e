/* CRC-32 as zlib has it (polynomial 0xEDB88320, bits reflected) at the speed of the CPU's own instructions, and the algebra that puts
   the checksums of parts together.

   A polynomial over GF(2) modulo P is 32 bits, bit 31 the coefficient of x^0. The state after a message M, begun with 0 and not inverted,
   is M x^32 mod P: linear in M, so that the state of A followed by B is state(A) x^(bits of B) + state(B).
   Tables: Kounavis and Berry, "Novel Table Lookup-Based Algorithms for High-Performance CRC Generation", IEEE Trans. Computers 57 (2008).
   Folding: Gopal et al., "Fast CRC Computation for Generic Polynomials Using PCLMULQDQ Instruction", Intel white paper 323102 (2009).
   Arithmetic of reflected polynomials: Warren, "Hacker's Delight", 2nd edition, chapter 14. */
#ifndef MSPROBE_CRC32_H
#define MSPROBE_CRC32_H

#include "base.h"

#define CRC_POLY 0xEDB88320u
/* P is primitive: the powers of x repeat after this many. */
#define CRC_ORDER 0xFFFFFFFFull

typedef uint32_t (*CrcFn)(uint32_t state, const unsigned char *p, int64_t n);

static uint32_t crc_table[16][256];
static uint32_t crc_squares[32]; /* x^(2^k) */

static uint32_t crc_multiply(uint32_t a, uint32_t b)
{
    uint32_t product = 0;
    for (int k = 0; k < 32; k++) {
        product ^= b & (0u - (a >> 31));
        a <<= 1;
        b = (b >> 1) ^ (CRC_POLY & (0u - (b & 1)));
    }
    return product;
}

static uint32_t crc_power(uint64_t exponent)
{
    uint32_t power = 0x80000000u;
    exponent %= CRC_ORDER;
    for (int k = 0; exponent; k++, exponent >>= 1)
        if (exponent & 1) power = crc_multiply(power, crc_squares[k]);
    return power;
}

/* What a state is multiplied by when so many bytes follow. */
static inline uint32_t crc_shift(uint64_t bytes) { return crc_power(bytes % CRC_ORDER * 8); }

/* 1 + y + ... + y^(n - 1): what a state is multiplied by when its message is there n times; y is the shift of one. */
static inline uint32_t crc_series(uint32_t y, uint64_t n)
{
    uint32_t sum = 0, block = 0x80000000u; /* block: the sum of 2^k terms, y: y^(2^k) */
    for (; n; n >>= 1) {
        if (n & 1) sum = crc_multiply(sum, y) ^ block;
        block ^= crc_multiply(block, y);
        y = crc_multiply(y, y);
    }
    return sum;
}

static inline uint32_t load_little32(const unsigned char *p)
{
    return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

static uint32_t crc_portable(uint32_t state, const unsigned char *p, int64_t n)
{
#define FOUR(T, w) (crc_table[T + 3][w & 255] ^ crc_table[T + 2][w >> 8 & 255] ^ crc_table[T + 1][w >> 16 & 255] ^ crc_table[T][w >> 24])
    for (; n >= 16; n -= 16, p += 16) {
        uint32_t a = load_little32(p) ^ state, b = load_little32(p + 4), c = load_little32(p + 8), d = load_little32(p + 12);
        state = FOUR(12, a) ^ FOUR(8, b) ^ FOUR(4, c) ^ FOUR(0, d);
    }
    for (; n >= 4; n -= 4, p += 4) {
        uint32_t a = load_little32(p) ^ state;
        state = FOUR(0, a);
    }
#undef FOUR
    for (; n > 0; n--, p++) state = (state >> 8) ^ crc_table[0][(state ^ *p) & 255];
    return state;
}

#if X86_DISPATCH && (defined(__clang__) || __GNUC__ >= 8)
#define CRC_CLMUL 1

/* A register holds 128 bits of the message, the first bit the highest power. Moved on by D bits it is
   (first half) x^(D + 64) + (second half) x^D, and the product of two reflected 64-bit polynomials appears one bit short of its place:
   the factors are therefore x^(D + 63) and x^(D - 1), reduced by P and at the upper end of 64 bits. */
enum { FOLD_128, FOLD_256, FOLD_384, FOLD_512, FOLD_1024, FOLD_2048, FOLD_COUNT };
static uint64_t crc_fold[FOLD_COUNT][2];

static void crc_clmul_init(void)
{
    static const int distance[FOLD_COUNT] = {128, 256, 384, 512, 1024, 2048};
    for (int k = 0; k < FOLD_COUNT; k++) {
        crc_fold[k][0] = (uint64_t)crc_power((uint64_t)distance[k] + 63) << 32;
        crc_fold[k][1] = (uint64_t)crc_power((uint64_t)distance[k] - 1) << 32;
    }
}

#define TARGET_CLMUL __attribute__((target("pclmul,sse4.1")))
#define TARGET_CLMUL256 __attribute__((target("vpclmulqdq,avx2,pclmul,sse4.1")))
#define TARGET_VCLMUL __attribute__((target("vpclmulqdq,avx512f,avx512vl,pclmul,sse4.1")))

TARGET_CLMUL static inline __m128i load128(const void *p) { return _mm_loadu_si128((const __m128i *)p); }

TARGET_CLMUL static inline __m128i fold128(__m128i r, __m128i k, __m128i next)
{
    return _mm_xor_si128(_mm_xor_si128(_mm_clmulepi64_si128(r, k, 0x00), _mm_clmulepi64_si128(r, k, 0x11)), next);
}

/* The state after the 16 bytes that stand for all before p, and n more bytes. */
TARGET_CLMUL static inline uint32_t crc_finish(__m128i r, const unsigned char *p, int64_t n)
{
    unsigned char last[16];
    __m128i k = load128(crc_fold[FOLD_128]);
    for (; n >= 16; n -= 16, p += 16) r = fold128(r, k, load128(p));
    _mm_storeu_si128((__m128i *)last, r);
    return crc_portable(crc_portable(0, last, 16), p, n);
}

TARGET_CLMUL static uint32_t crc_clmul(uint32_t state, const unsigned char *p, int64_t n)
{
    if (n < 32) return crc_portable(state, p, n);
    __m128i a = _mm_xor_si128(load128(p), _mm_cvtsi32_si128((int)state));
    if (n < 128) return crc_finish(a, p + 16, n - 16);
    __m128i b = load128(p + 16), c = load128(p + 32), d = load128(p + 48), k = load128(crc_fold[FOLD_512]);
    for (p += 64, n -= 64; n >= 64; p += 64, n -= 64) {
        a = fold128(a, k, load128(p));
        b = fold128(b, k, load128(p + 16));
        c = fold128(c, k, load128(p + 32));
        d = fold128(d, k, load128(p + 48));
    }
    d = fold128(a, load128(crc_fold[FOLD_384]), d);
    d = fold128(b, load128(crc_fold[FOLD_256]), d);
    return crc_finish(fold128(c, load128(crc_fold[FOLD_128]), d), p, n);
}

TARGET_CLMUL256 static inline __m256i fold256(__m256i r, __m256i k, __m256i next)
{
    return _mm256_xor_si256(_mm256_xor_si256(_mm256_clmulepi64_epi128(r, k, 0x00), _mm256_clmulepi64_epi128(r, k, 0x11)), next);
}

TARGET_CLMUL256 static inline __m256i load256(const void *p) { return _mm256_loadu_si256((const __m256i *)p); }

TARGET_CLMUL256 static uint32_t crc_clmul256(uint32_t state, const unsigned char *p, int64_t n)
{
    if (n < 256) return crc_clmul(state, p, n);
    __m256i a = _mm256_xor_si256(load256(p), _mm256_zextsi128_si256(_mm_cvtsi32_si128((int)state)));
    __m256i b = load256(p + 32), c = load256(p + 64), d = load256(p + 96);
    __m256i far = _mm256_broadcastsi128_si256(load128(crc_fold[FOLD_1024])), near = _mm256_broadcastsi128_si256(load128(crc_fold[FOLD_256]));
    for (p += 128, n -= 128; n >= 128; p += 128, n -= 128) {
        a = fold256(a, far, load256(p));
        b = fold256(b, far, load256(p + 32));
        c = fold256(c, far, load256(p + 64));
        d = fold256(d, far, load256(p + 96));
    }
    a = fold256(fold256(fold256(a, near, b), near, c), near, d);
    for (; n >= 32; p += 32, n -= 32) a = fold256(a, near, load256(p));
    return crc_finish(fold128(_mm256_castsi256_si128(a), load128(crc_fold[FOLD_128]), _mm256_extracti128_si256(a, 1)), p, n);
}

TARGET_VCLMUL static inline __m512i fold512(__m512i r, __m512i k, __m512i next)
{
    return _mm512_ternarylogic_epi64(_mm512_clmulepi64_epi128(r, k, 0x00), _mm512_clmulepi64_epi128(r, k, 0x11), next, 0x96);
}

TARGET_VCLMUL static uint32_t crc_vclmul(uint32_t state, const unsigned char *p, int64_t n)
{
    if (n < 256) return crc_clmul(state, p, n);
    __m512i a = _mm512_xor_si512(_mm512_loadu_si512(p), _mm512_inserti32x4(_mm512_setzero_si512(), _mm_cvtsi32_si128((int)state), 0));
    __m512i k = _mm512_broadcast_i32x4(load128(crc_fold[FOLD_512]));
    if (n < 1024) {
        p += 64;
        n -= 64;
    } else {
        __m512i b = _mm512_loadu_si512(p + 64), c = _mm512_loadu_si512(p + 128), d = _mm512_loadu_si512(p + 192);
        __m512i far = _mm512_broadcast_i32x4(load128(crc_fold[FOLD_2048]));
        for (p += 256, n -= 256; n >= 256; p += 256, n -= 256) {
            a = fold512(a, far, _mm512_loadu_si512(p));
            b = fold512(b, far, _mm512_loadu_si512(p + 64));
            c = fold512(c, far, _mm512_loadu_si512(p + 128));
            d = fold512(d, far, _mm512_loadu_si512(p + 192));
        }
        a = fold512(fold512(fold512(a, k, b), k, c), k, d);
    }
    for (; n >= 64; p += 64, n -= 64) a = fold512(a, k, _mm512_loadu_si512(p));
    __m128i last = _mm512_extracti32x4_epi32(a, 3);
    last = fold128(_mm512_castsi512_si128(a), load128(crc_fold[FOLD_384]), last);
    last = fold128(_mm512_extracti32x4_epi32(a, 1), load128(crc_fold[FOLD_256]), last);
    return crc_finish(fold128(_mm512_extracti32x4_epi32(a, 2), load128(crc_fold[FOLD_128]), last), p, n);
}
#else
#define CRC_CLMUL 0
#endif

#ifndef CRC_ARM
#if defined(__aarch64__) && !defined(__AARCH64EB__) && (defined(__linux__) || defined(__APPLE__))
#define CRC_ARM 1
#if defined(__linux__)
#include <sys/auxv.h>
static int have_crc_arm(void) { return (getauxval(AT_HWCAP) >> 7 & 1) != 0; } /* HWCAP_CRC32 */
#else
static int have_crc_arm(void) { return 1; } /* every arm64 Mac */
#endif

static inline uint32_t crc_arm_step(uint32_t state, uint64_t eight)
{
    __asm__(".arch_extension crc\n\tcrc32x %w0, %w0, %x1" : "+r"(state) : "r"(eight));
    return state;
}
#else
#define CRC_ARM 0
#endif
#endif

#if CRC_ARM
/* The instruction takes several cycles, but one can start in each: three parts of the message at a time. */
static uint32_t crc_arm_parts[2][2]; /* shifts by one and by two parts */
static const int64_t crc_arm_size[2] = {8192, 512};

static void crc_arm_init(void)
{
    for (int k = 0; k < 2; k++)
        for (int parts = 0; parts < 2; parts++) crc_arm_parts[k][parts] = crc_shift((uint64_t)(crc_arm_size[k] * (parts + 1)));
}

static inline uint32_t crc_arm_at(uint32_t state, const unsigned char *p)
{
    uint64_t eight;
    memcpy(&eight, p, 8);
    return crc_arm_step(state, eight);
}

static uint32_t crc_arm(uint32_t state, const unsigned char *p, int64_t n)
{
    for (int k = 0; k < 2; k++)
        for (int64_t size = crc_arm_size[k]; n >= 3 * size; n -= 3 * size, p += 3 * size) {
            uint32_t b = 0, c = 0;
            for (int64_t i = 0; i < size; i += 8) {
                state = crc_arm_at(state, p + i);
                b = crc_arm_at(b, p + size + i);
                c = crc_arm_at(c, p + 2 * size + i);
            }
            state = crc_multiply(state, crc_arm_parts[k][1]) ^ crc_multiply(b, crc_arm_parts[k][0]) ^ c;
        }
    for (; n >= 8; n -= 8, p += 8) state = crc_arm_at(state, p);
    return crc_portable(state, p, n);
}
#endif

typedef struct {
    const char *name;
    CrcFn update;
} CrcPath;

#define MAX_CRC_PATHS 4

/* The ways that this CPU can go, best first. */
static int available_crc_paths(CrcPath *out)
{
    int n = 0;
#if CRC_CLMUL
    __builtin_cpu_init();
    int clmul = __builtin_cpu_supports("pclmul") && __builtin_cpu_supports("sse4.1");
    if (clmul && __builtin_cpu_supports("vpclmulqdq") && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl"))
        out[n++] = (CrcPath){"vpclmulqdq", crc_vclmul};
    if (clmul && __builtin_cpu_supports("vpclmulqdq") && __builtin_cpu_supports("avx2"))
        out[n++] = (CrcPath){"vpclmulqdq of 256 bits", crc_clmul256};
    if (clmul) out[n++] = (CrcPath){"pclmulqdq", crc_clmul};
#endif
#if CRC_ARM
    if (have_crc_arm()) out[n++] = (CrcPath){"crc32x", crc_arm};
#endif
    out[n++] = (CrcPath){"portable", crc_portable};
    return n;
}

static CrcPath crc_path = {"portable", crc_portable};

static void crc_init(void)
{
    CrcPath found[MAX_CRC_PATHS];
    for (int b = 0; b < 256; b++) {
        uint32_t state = (uint32_t)b;
        for (int k = 0; k < 8; k++) state = (state >> 1) ^ (CRC_POLY & (0u - (state & 1)));
        crc_table[0][b] = state;
    }
    for (int k = 1; k < 16; k++)
        for (int b = 0; b < 256; b++) crc_table[k][b] = (crc_table[k - 1][b] >> 8) ^ crc_table[0][crc_table[k - 1][b] & 255];
    crc_squares[0] = 0x40000000u;
    for (int k = 1; k < 32; k++) crc_squares[k] = crc_multiply(crc_squares[k - 1], crc_squares[k - 1]);
#if CRC_CLMUL
    crc_clmul_init();
#endif
#if CRC_ARM
    crc_arm_init();
#endif
    available_crc_paths(found);
    crc_path = found[0];
}

#endif
