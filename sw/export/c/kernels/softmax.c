#include "dovetail_kernels.h"

#define SUM_BITS 19 /* fraction bits of a row's sum of exponentials */
#define ONE INT32_MAX

/* a * b of numbers with 31 fraction bits, rounded; the product of two -1 does not occur. */
static int32_t high_product(int32_t a, int32_t b)
{
    int64_t product = (int64_t)a * b;
    int64_t nudge = product < 0 ? 1 - ((int64_t)1 << 30) : (int64_t)1 << 30;
    return (int32_t)((product + nudge) / ((int64_t)1 << 31));
}

static int32_t saturated(int64_t value)
{
    return dovetail_clamp(value, INT32_MIN, INT32_MAX);
}

/* value / 2^shift, ties away from zero. */
static int32_t rounding_shift(int32_t value, int32_t shift)
{
    int64_t half = ((int64_t)1 << shift) >> 1;
    int64_t magnitude = ((value < 0 ? -(int64_t)value : value) + half) >> shift;
    return (int32_t)(value < 0 ? -magnitude : magnitude);
}

/* 1 / (1 + x) for x of 0 to 1, both with 31 fraction bits: three steps of Newton's method, 29 fraction bits within. */
static int32_t reciprocal(int32_t x)
{
    int32_t half = (int32_t)(((int64_t)x + ONE + 1) / 2);
    int32_t value = saturated((int64_t)1515870810 + high_product(half, -1010580540)); /* 48 / 17, -32 / 17 */
    for (int step = 0; step < 3; step++) {
        int32_t error = ((int32_t)1 << 29) - high_product(half, value);
        value += saturated((int64_t)high_product(value, error) * 4);
    }
    return saturated((int64_t)value * 2);
}

static void softmax_row(const int32_t exps[256], size_t columns, const int8_t *in, int8_t *out)
{
    int32_t largest = INT8_MIN;
    for (size_t i = 0; i < columns; i++)
        largest = in[i] > largest ? in[i] : largest;
    uint32_t sum = 0;
    for (size_t i = 0; i < columns; i++)
        sum += (uint32_t)rounding_shift(exps[largest - in[i]], 31 - SUM_BITS);
    int32_t zeros = 0;
    while (!(sum << zeros & 0x80000000u))
        zeros++;
    int32_t scale = reciprocal(dovetail_wrap((sum << zeros) - 0x80000000u));
    int32_t shift = 31 - SUM_BITS - zeros + 31 - 8;
    for (size_t i = 0; i < columns; i++) {
        int32_t share = rounding_shift(high_product(scale, exps[largest - in[i]]), shift);
        out[i] = (int8_t)dovetail_clamp((int64_t)share + INT8_MIN, INT8_MIN, INT8_MAX);
    }
}

void dovetail_softmax(const int32_t exps[256], size_t rows, size_t columns, const int8_t *in, int8_t *out)
{
    for (size_t row = 0; row < rows; row++)
        softmax_row(exps, columns, in + row * columns, out + row * columns);
}
