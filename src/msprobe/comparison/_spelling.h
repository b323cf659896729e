/* Numbers of a JSON text spelled as Python's repr spells them: the same digits, other exponents. */
#include <string.h>

enum { SPELLED = 64, SIGNIFICANT = 32 }; /* more than the longest that there can be */

/* The finite number that stands between `at` and `end`, written to `out` (SPELLED bytes); where it ends there. */
static char *spelled(const char *at, const char *end, char *out)
{
    char digits[SIGNIFICANT];
    int count = 0, point = 0, behind = 0, exponent = 0; /* 0.digits * 10^point */
    if (at < end && *at == '-') *out++ = *at++;
    for (; at < end; at++) {
        if (*at == '.') {
            behind = 1;
        } else if (*at == 'e' || *at == 'E') {
            int negative = ++at < end && *at == '-';
            for (; at < end; at++) {
                if (*at >= '0' && *at <= '9' && exponent < 10000) exponent = 10 * exponent + (*at - '0');
            }
            point += negative ? -exponent : exponent;
            break;
        } else if (count || *at != '0') {
            if (!behind) point++;
            if (count < SIGNIFICANT) digits[count++] = *at;
        } else if (behind) {
            point--;
        }
    }
    while (count && digits[count - 1] == '0') count--;
    if (!count) {
        memcpy(out, "0.0", 3);
        return out + 3;
    }
    if (point > -4 && point <= 16) {
        if (point <= 0) {
            *out++ = '0';
            *out++ = '.';
            for (int i = point; i < 0; i++) *out++ = '0';
        }
        for (int i = 0; i < count || i < point; i++) {
            if (i == point && i) *out++ = '.';
            *out++ = i < count ? digits[i] : '0';
        }
        if (point >= count) {
            *out++ = '.';
            *out++ = '0';
        }
        return out;
    }
    *out++ = digits[0];
    if (count > 1) *out++ = '.';
    memcpy(out, digits + 1, (size_t)count - 1);
    out += count - 1;
    *out++ = 'e';
    exponent = point - 1;
    *out++ = exponent < 0 ? '-' : '+';
    if (exponent < 0) exponent = -exponent;
    if (exponent > 99) *out++ = (char)('0' + exponent / 100 % 10);
    *out++ = (char)('0' + exponent / 10 % 10);
    *out++ = (char)('0' + exponent % 10);
    return out;
}
