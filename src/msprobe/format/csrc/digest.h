/* XXH3 of 128 bits, as xxhash.xxh3_128_digest has it (which offers C nothing), for what comes in pieces: what is copied is digested while it is in the cache, and
   without Python's lock. Only for more than 240 bytes; the algorithm for fewer is another one.
   Source: Collet, xxHash specification 0.2.0, "XXH3 algorithm for large inputs"; seed 0 and the default secret. Little-endian only. */
#ifndef MSPROBE_CONTENT_DIGEST_H
#define MSPROBE_CONTENT_DIGEST_H

#include <stdint.h>
#include <string.h>

#include "../../numerics/csrc/base.h"

enum { DIGEST_STRIPE = 64, DIGEST_BLOCK = 1024, DIGEST_MORE_THAN = 240, DIGEST_SIZE = 16 };

typedef struct {
    uint64_t lanes[8];
    uint64_t total, at;                /* bytes that are to come, and that have come */
    unsigned char last[DIGEST_STRIPE]; /* of what has come; what is digested last may lie in two pieces */
} Digest;

static const unsigned char digest_secret[192] = {
    0xb8, 0xfe, 0x6c, 0x39, 0x23, 0xa4, 0x4b, 0xbe, 0x7c, 0x01, 0x81, 0x2c, 0xf7, 0x21, 0xad, 0x1c, 0xde, 0xd4, 0x6d, 0xe9, 0x83, 0x90, 0x97, 0xdb,
    0x72, 0x40, 0xa4, 0xa4, 0xb7, 0xb3, 0x67, 0x1f, 0xcb, 0x79, 0xe6, 0x4e, 0xcc, 0xc0, 0xe5, 0x78, 0x82, 0x5a, 0xd0, 0x7d, 0xcc, 0xff, 0x72, 0x21,
    0xb8, 0x08, 0x46, 0x74, 0xf7, 0x43, 0x24, 0x8e, 0xe0, 0x35, 0x90, 0xe6, 0x81, 0x3a, 0x26, 0x4c, 0x3c, 0x28, 0x52, 0xbb, 0x91, 0xc3, 0x00, 0xcb,
    0x88, 0xd0, 0x65, 0x8b, 0x1b, 0x53, 0x2e, 0xa3, 0x71, 0x64, 0x48, 0x97, 0xa2, 0x0d, 0xf9, 0x4e, 0x38, 0x19, 0xef, 0x46, 0xa9, 0xde, 0xac, 0xd8,
    0xa8, 0xfa, 0x76, 0x3f, 0xe3, 0x9c, 0x34, 0x3f, 0xf9, 0xdc, 0xbb, 0xc7, 0xc7, 0x0b, 0x4f, 0x1d, 0x8a, 0x51, 0xe0, 0x4b, 0xcd, 0xb4, 0x59, 0x31,
    0xc8, 0x9f, 0x7e, 0xc9, 0xd9, 0x78, 0x73, 0x64, 0xea, 0xc5, 0xac, 0x83, 0x34, 0xd3, 0xeb, 0xc3, 0xc5, 0x81, 0xa0, 0xff, 0xfa, 0x13, 0x63, 0xeb,
    0x17, 0x0d, 0xdd, 0x51, 0xb7, 0xf0, 0xda, 0x49, 0xd3, 0x16, 0x55, 0x26, 0x29, 0xd4, 0x68, 0x9e, 0x2b, 0x16, 0xbe, 0x58, 0x7d, 0x47, 0xa1, 0xfc,
    0x8f, 0xf8, 0xb8, 0xd1, 0x7a, 0xd0, 0x31, 0xce, 0x45, 0xcb, 0x3a, 0x8f, 0x95, 0x16, 0x04, 0x28, 0xaf, 0xd7, 0xfb, 0xca, 0xbb, 0x4b, 0x40, 0x7e};

#define DIGEST_P32_1 0x9E3779B1u
#define DIGEST_P64_1 0x9E3779B185EBCA87ull
#define DIGEST_P64_2 0xC2B2AE3D27D4EB4Full

static inline uint64_t digest_load(const unsigned char *p)
{
    uint64_t value;
    memcpy(&value, p, sizeof value);
    return value;
}

/* `count` stripes, each with the secret 8 bytes further on. */
typedef void (*StripesFn)(uint64_t *lanes, const unsigned char *p, const unsigned char *secret, int count);

static void digest_stripes_portable(uint64_t *lanes, const unsigned char *p, const unsigned char *secret, int count)
{
    for (; count > 0; count--, p += DIGEST_STRIPE, secret += 8)
        for (int k = 0; k < 8; k++) {
            uint64_t value = digest_load(p + 8 * k), keyed = value ^ digest_load(secret + 8 * k);
            lanes[k ^ 1] += value;
            lanes[k] += (keyed & 0xFFFFFFFFu) * (keyed >> 32);
        }
}

#if X86_DISPATCH
__attribute__((target("avx2")))
static void digest_stripes_avx2(uint64_t *lanes, const unsigned char *p, const unsigned char *secret, int count)
{
    __m256i sums[2] = {_mm256_loadu_si256((const __m256i *)lanes), _mm256_loadu_si256((const __m256i *)lanes + 1)};
    for (; count > 0; count--, p += DIGEST_STRIPE, secret += 8)
        for (int k = 0; k < 2; k++) {
            __m256i value = _mm256_loadu_si256((const __m256i *)p + k);
            __m256i keyed = _mm256_xor_si256(value, _mm256_loadu_si256((const __m256i *)secret + k));
            __m256i product = _mm256_mul_epu32(keyed, _mm256_srli_epi64(keyed, 32));
            sums[k] = _mm256_add_epi64(_mm256_add_epi64(sums[k], _mm256_shuffle_epi32(value, _MM_SHUFFLE(1, 0, 3, 2))), product);
        }
    _mm256_storeu_si256((__m256i *)lanes, sums[0]);
    _mm256_storeu_si256((__m256i *)lanes + 1, sums[1]);
}
#endif

static StripesFn digest_stripes(void)
{
#if X86_DISPATCH
    static StripesFn chosen;
    if (!chosen) {
        __builtin_cpu_init();
        chosen = __builtin_cpu_supports("avx2") ? digest_stripes_avx2 : digest_stripes_portable;
    }
    return chosen;
#else
    return digest_stripes_portable;
#endif
}

static void digest_begin(Digest *digest, uint64_t total)
{
    static const uint64_t lanes[8] = {0xC2B2AE3Du, DIGEST_P64_1, DIGEST_P64_2, 0x165667B19E3779F9ull,
                                      0x85EBCA77C2B2AE63ull, 0x85EBCA77u, 0x27D4EB2F165667C5ull, DIGEST_P32_1};
    memcpy(digest->lanes, lanes, sizeof lanes);
    digest->total = total;
    digest->at = 0;
}

/* The next piece: a multiple of DIGEST_BLOCK, but for the last one. */
static void digest_piece(Digest *digest, const unsigned char *p, size_t n)
{
    uint64_t lanes[8], left = digest->total - digest->at; /* of all that is to come, from p on */
    const unsigned char *piece = p, *end = p + n;
    StripesFn stripes = digest_stripes();
    memcpy(lanes, digest->lanes, sizeof lanes);
    for (; end - p >= DIGEST_BLOCK && left > DIGEST_BLOCK; p += DIGEST_BLOCK, left -= DIGEST_BLOCK) {
        stripes(lanes, p, digest_secret, DIGEST_BLOCK / DIGEST_STRIPE);
        for (int k = 0; k < 8; k++)
            lanes[k] = (lanes[k] ^ lanes[k] >> 47 ^ digest_load(digest_secret + 128 + 8 * k)) * DIGEST_P32_1;
    }
    for (int k = 0; end - p >= DIGEST_STRIPE && left > DIGEST_STRIPE; k++, p += DIGEST_STRIPE, left -= DIGEST_STRIPE)
        stripes(lanes, p, digest_secret + 8 * k, 1);
    memcpy(digest->lanes, lanes, sizeof lanes);
    digest->at += n;
    size_t kept = n < DIGEST_STRIPE ? DIGEST_STRIPE - n : 0;
    memmove(digest->last, digest->last + DIGEST_STRIPE - kept, kept);
    memcpy(digest->last + kept, piece + n - (DIGEST_STRIPE - kept), DIGEST_STRIPE - kept);
}

static inline uint64_t digest_folded(uint64_t a, uint64_t b)
{
    uint64_t low = (a & 0xFFFFFFFFu) * (b & 0xFFFFFFFFu), one = (a >> 32) * (b & 0xFFFFFFFFu);
    uint64_t other = (a & 0xFFFFFFFFu) * (b >> 32), high = (a >> 32) * (b >> 32);
    uint64_t cross = (low >> 32) + (one & 0xFFFFFFFFu) + other;
    return ((one >> 32) + (cross >> 32) + high) ^ (cross << 32 | (low & 0xFFFFFFFFu));
}

static uint64_t digest_merged(const uint64_t *lanes, const unsigned char *secret, uint64_t sum)
{
    for (int k = 0; k < 4; k++)
        sum += digest_folded(lanes[2 * k] ^ digest_load(secret + 16 * k), lanes[2 * k + 1] ^ digest_load(secret + 16 * k + 8));
    sum = (sum ^ sum >> 37) * 0x165667919E3779F9ull;
    return sum ^ sum >> 32;
}

/* All pieces have come. */
static inline void digest_end(Digest *digest, unsigned char *out)
{
    digest_stripes()(digest->lanes, digest->last, digest_secret + 121, 1);
    uint64_t low = digest_merged(digest->lanes, digest_secret + 11, digest->total * DIGEST_P64_1);
    uint64_t high = digest_merged(digest->lanes, digest_secret + 117, ~(digest->total * DIGEST_P64_2));
    for (int k = 0; k < 8; k++) {
        out[k] = (unsigned char)(high >> (56 - 8 * k));
        out[8 + k] = (unsigned char)(low >> (56 - 8 * k));
    }
}

#endif
