#include <math.h>

#include "dovetail_float.h"
#include "dovetail_kernels.h"

#define BIAS 127
#define ONE (UINT32_C(1) << 31)
#define SUM_BITS 40 /* fraction bits of a row's sum of exponentials */
#define LEAST 40    /* powers of two below which an exponential is no part of the sum */

/* 2^-x for x of 0 to 1 with 32 fraction bits: a polynomial whose results, with 31 fraction bits, are 2^-28 off. */
static uint32_t power(uint32_t x)
{
    static const uint32_t factors[] = {ONE, 1488522228, 515882323, 119192779, 20649271, 2851416, 316243};
    uint32_t sum = 23239;
    for (int i = 6; i >= 0; i--)
        sum = factors[i] - (uint32_t)((uint64_t)x * sum >> 32);
    return sum;
}

/* exp(value) * 2^down with 31 fraction bits; of a value of at most 0. */
static uint32_t exponential(float value, uint32_t *down)
{
    const union dovetail_float number = {value};
    uint32_t exponent = number.bits >> DOVETAIL_MANTISSA & 255;
    *down = 0;
    if (exponent >= BIAS + 7) /* below -128 */
        return 0;
    if (exponent < BIAS - 40)
        return ONE;
    uint64_t mantissa = (number.bits & ((UINT32_C(1) << DOVETAIL_MANTISSA) - 1)) | UINT32_C(1) << DOVETAIL_MANTISSA;
    uint64_t powers = mantissa * UINT64_C(6196328019) >> (BIAS + DOVETAIL_MANTISSA - exponent); /* times 2^32 / log(2) */
    *down = (uint32_t)(powers >> 32);
    return power((uint32_t)powers);
}

/* value * 2^exponent; `value` has its highest bit among the upper three. */
static float scaled(uint64_t value, int32_t exponent)
{
    union dovetail_float number;
    int32_t highest = 63;
    while (!(value >> highest))
        highest--;
    int32_t drop = highest - DOVETAIL_MANTISSA, place = highest + exponent + BIAS;
    if (place < 1) { /* below the normal numbers */
        drop += 1 - place;
        place = 1;
    }
    uint64_t mantissa = drop > 63 ? 0 : (value + (UINT64_C(1) << (drop - 1))) >> drop;
    number.bits = (uint32_t)mantissa + ((uint32_t)(place - 1) << DOVETAIL_MANTISSA);
    return number.value;
}

/* In integers, as a processor without a floating-point unit takes much longer for floats. */
static void softmax_row(size_t count, size_t step, const float *in, float *out)
{
    float largest = in[0];
    uint64_t sum = 0;
    uint32_t down, cut = 0;
    for (size_t i = 1; i < count; i++)
        largest = in[i * step] > largest ? in[i * step] : largest;
    for (size_t i = 0; i < count; i++) {
        float below = in[i * step] - largest;
        if (!(below <= 0)) { /* what is no number, or infinite */
            for (size_t j = 0; j < count; j++)
                out[j * step] = NAN;
            return;
        }
        uint32_t share = exponential(below, &down);
        sum += down < LEAST ? (uint64_t)share << (SUM_BITS - 31) >> down : 0;
    }
    while (sum >> cut > UINT32_MAX)
        cut++;
    uint64_t reciprocal = (UINT64_C(1) << 63) / (sum >> cut);
    for (size_t i = 0; i < count; i++) {
        uint32_t share = exponential(in[i * step] - largest, &down);
        int32_t exponent = SUM_BITS - 31 - 63 - (int32_t)(down + cut);
        out[i * step] = share ? scaled(share * reciprocal, exponent) : 0;
    }
}

void dovetail_softmax_float(size_t outer, size_t count, size_t inner, const float *in, float *out)
{
    for (size_t i = 0; i < outer; i++)
        for (size_t j = 0; j < inner; j++)
            softmax_row(count, inner, in + i * count * inner + j, out + i * count * inner + j);
}

void dovetail_layer_norm(float epsilon, const float *gain, const float *offset, size_t rows, size_t columns,
                         const float *in, float *out)
{
    for (size_t row = 0; row < rows; row++, in += columns, out += columns) {
        double sum = 0, squares = 0;
        for (size_t i = 0; i < columns; i++)
            sum += in[i];
        double mean = sum / (double)columns;
        for (size_t i = 0; i < columns; i++)
            squares += (in[i] - mean) * (in[i] - mean);
        double scale = 1 / sqrt(squares / (double)columns + epsilon);
        for (size_t i = 0; i < columns; i++)
            out[i] = (float)((in[i] - mean) * scale * gain[i] + (offset ? offset[i] : 0));
    }
}
