/* Every dtype brought to float, double or magnitude buffers, a chunk at a time. */
#ifndef MSPROBE_DECODE_H
#define MSPROBE_DECODE_H

#include "paths.h"

/* The value of every byte of the five eight-bit formats; filled once when the module is loaded. */
static float fp8_table[C_COUNT - C_E4M3FN][256];

/* Sources: OCP 8-bit Floating Point Specification (e4m3fn, e5m2), arXiv:2206.02915 (the fnuz forms: bias one larger, no
   infinity, NaN in place of -0), OCP Microscaling Formats (e8m0fnu: a bare exponent, 255 is NaN). */
static double fp8_value(int code, int byte)
{
    if (code == C_E8M0FNU) return byte == 255 ? NAN : ldexp(1.0, byte - 127);
    int fnuz = code == C_E4M3FNUZ || code == C_E5M2FNUZ;
    int mantissa_bits = code == C_E4M3FN || code == C_E4M3FNUZ ? 3 : 2;
    int bias = (mantissa_bits == 3 ? 7 : 15) + fnuz;
    int exponent = (byte & 0x7f) >> mantissa_bits, mantissa = byte & ((1 << mantissa_bits) - 1);
    double sign = byte & 0x80 ? -1.0 : 1.0;
    if (fnuz && byte == 0x80) return NAN;
    if (code == C_E4M3FN && (byte & 0x7f) == 0x7f) return NAN;
    if (code == C_E5M2 && exponent == 31) return mantissa ? NAN : sign * INFINITY;
    if (exponent == 0) return sign * ldexp(mantissa, 1 - bias - mantissa_bits);
    return sign * ldexp(mantissa + (1 << mantissa_bits), exponent - bias - mantissa_bits);
}

static void fill_fp8_tables(void)
{
    for (int code = C_E4M3FN; code < C_COUNT; code++)
        for (int byte = 0; byte < 256; byte++) fp8_table[code - C_E4M3FN][byte] = (float)fp8_value(code, byte);
}

/* Floating formats narrower than float32; n <= CHUNK. */
static inline void decode_narrow(int code, const void *data, int64_t n, float *out)
{
    if (code == C_BF16)
        path->bf16((const uint16_t *)data, n, out);
    else if (code == C_F16)
        path->f16((const uint16_t *)data, n, out);
    else {
        const float *table = fp8_table[code - C_E4M3FN];
        const uint8_t *x = (const uint8_t *)data;
        for (int64_t i = 0; i < n; i++) out[i] = table[x[i]];
    }
}

/* Real and imaginary parts, of complex128 times scale (a power of two); n <= CHUNK. */
static void decode_complex(int code, const void *data, int64_t n, double scale, double *re, double *im)
{
    if (code == C_C128) {
        const double *x = (const double *)data;
        for (int64_t i = 0; i < n; i++) {
            re[i] = x[2 * i] * scale;
            im[i] = x[2 * i + 1] * scale;
        }
    } else if (code == C_C64) {
        path->split_parts((const float *)data, n, re, im);
    } else {
        float parts[2 * CHUNK];
        path->f16((const uint16_t *)data, 2 * n, parts);
        path->split_parts(parts, n, re, im);
    }
}

/* Magnitudes and their squares; n <= CHUNK. Only complex128 can overflow or underflow on the way. */
static void decode_magnitudes(int code, const void *data, int64_t n, double scale, double *m, double *square)
{
    double re[CHUNK], im[CHUNK];
    decode_complex(code, data, n, scale, re, im);
    if (code != C_C128) path->narrow_magnitudes(re, im, n, m, square);
    else
        for (int64_t i = 0; i < n; i++) m[i] = magnitude(re[i], im[i], &square[i]);
}

#endif
