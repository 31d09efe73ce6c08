#include <math.h>

#include "dovetail_float.h"
#include "dovetail_kernels.h"

#define BIAS 127
#define WHOLE (BIAS + DOVETAIL_MANTISSA) /* the exponent of a float whose mantissa is its value */
#define DOUBLE_BIAS 1023
#define DOUBLE_MANTISSA 52
#define ONE (UINT32_C(1) << 31)
#define SUM_BITS 40 /* fraction bits of a row's sum of exponentials */
#define LEAST 40    /* powers of two below which an exponential is no part of the sum */
#define FINER 22    /* bits of a row's elements below those of the largest one */
#define MOST_UP 38  /* bits that an offset's mantissa has room to move up */

union dovetail_double {
    double value;
    uint64_t bits;
};

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

/* value * 2^exponent, of a value of 2^61 or more. */
static float scaled(uint64_t value, int32_t exponent)
{
    union dovetail_float number;
    int32_t highest = 63;
    while (!(value >> highest))
        highest--;
    int32_t drop = highest - DOVETAIL_MANTISSA, place = highest + exponent + BIAS;
    if (place > 254)
        return INFINITY;
    if (place < 1) { /* below the normal numbers */
        drop += 1 - place;
        place = 1;
    }
    uint64_t mantissa = drop > 63 ? 0 : (value >> (drop - 1)) - (value >> drop);
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

/* What a float's bits say: its sign and mantissa, of which one is 2^(exponent - WHOLE). */
static int32_t mantissa_of(union dovetail_float number, int32_t *exponent)
{
    const uint32_t hidden = UINT32_C(1) << DOVETAIL_MANTISSA;
    int32_t mantissa = (int32_t)(number.bits & (hidden - 1));
    *exponent = (int32_t)(number.bits >> DOVETAIL_MANTISSA & 255);
    if (*exponent)
        mantissa |= (int32_t)hidden;
    else
        *exponent = 1;
    return number.bits >> 31 ? -mantissa : mantissa;
}

/* A value in steps, of which the largest one with the exponent `largest` has 2^46, less `mean`. */
static int64_t distance_of(float value, int32_t largest, int64_t mean)
{
    const union dovetail_float number = {value};
    int32_t exponent, mantissa = mantissa_of(number, &exponent), down = largest - exponent;
    int64_t steps = down > 31 ? 0 : mantissa * (INT64_C(1) << FINER);
    return dovetail_floor_shift(steps, down > 31 ? 0 : down) - mean;
}

/* 2^exponent, among the normal numbers. */
static double power_of_two(int32_t exponent)
{
    const union dovetail_double number = {.bits = (uint64_t)(DOUBLE_BIAS + exponent) << DOUBLE_MANTISSA};
    return number.value;
}

/* value * 2^exponent + offset. */
static float with_offset(int64_t value, int32_t exponent, float offset)
{
    const union dovetail_float number = {offset};
    if (!value)
        return offset;
    int32_t place, mantissa = mantissa_of(number, &place), up = place - WHOLE - exponent;
    if (up > MOST_UP) { /* the offset is so large that bits of the value are lost */
        value = up - MOST_UP > 63 ? 0 : dovetail_floor_shift(value, up - MOST_UP);
        exponent += up - MOST_UP;
        up = MOST_UP;
    }
    value += up >= 0 ? mantissa * (INT64_C(1) << up) : up < -31 ? 0 : dovetail_floor_shift(mantissa, -up);
    uint64_t size = (uint64_t)(value < 0 ? -value : value);
    if (!size)
        return 0;
    for (int32_t shift = 32; shift; shift /= 2)
        if (!(size >> (64 - shift))) {
            size <<= shift;
            exponent -= shift;
        }
    float result = scaled(size, exponent);
    return value < 0 ? -result : result;
}

/* A row, whose mean is taken off if it is `centred`. What is done for each element is done in integers, as a processor
   without a floating-point unit takes much longer for floats. */
static void norm_row(int centred, float epsilon, const float *gain, const float *offset, size_t columns,
                     const float *in, float *out)
{
    int32_t largest = 1, exponent;
    for (size_t i = 0; i < columns; i++) {
        const union dovetail_float number = {in[i]};
        mantissa_of(number, &exponent);
        largest = exponent > largest ? exponent : largest;
    }
    if (largest == 255) { /* what is no number, or infinite */
        for (size_t i = 0; i < columns; i++)
            out[i] = NAN;
        return;
    }
    int64_t mean = 0;
    for (size_t i = 0; centred && i < columns; i++)
        mean += distance_of(in[i], largest, 0);
    mean /= (int64_t)columns;
    uint64_t wide = 0, squares = 0;
    for (size_t i = 0; i < columns; i++) {
        int64_t distance = distance_of(in[i], largest, mean);
        wide |= (uint64_t)(distance < 0 ? -distance : distance);
    }
    int32_t cut = 0, half = 63;
    while (wide >> cut > INT32_MAX)
        cut++;
    for (size_t n = columns; n; n >>= 1)
        half--;
    half = (half + 1) / 2; /* the bits of a distance for whose squares there is room */
    for (size_t i = 0; i < columns; i++) {
        int32_t distance = (int32_t)dovetail_floor_shift(distance_of(in[i], largest, mean), cut + 31 - half);
        squares += (uint64_t)((int64_t)distance * distance);
    }
    const double step = power_of_two(largest - WHOLE - FINER + cut);
    const double part = power_of_two(2 * (31 - half)) / (double)columns;
    const union dovetail_double factor = {step / sqrt((double)squares * step * step * part + (double)epsilon)};
    const int32_t unit = (int32_t)(factor.bits >> DOUBLE_MANTISSA) - DOUBLE_BIAS + 2 - WHOLE;
    const int32_t by = (int32_t)(factor.bits >> (DOUBLE_MANTISSA - 30) | 1 << 30) & INT32_MAX;
    for (size_t i = 0; i < columns; i++) {
        const union dovetail_float number = {gain[i]};
        int64_t distance = dovetail_floor_shift(distance_of(in[i], largest, mean), cut);
        int64_t product = dovetail_floor_shift(distance * by, 32) * mantissa_of(number, &exponent);
        out[i] = with_offset(product, unit + exponent, offset ? offset[i] : 0);
    }
}

void dovetail_layer_norm(float epsilon, const float *gain, const float *offset, size_t rows, size_t columns,
                         const float *in, float *out)
{
    for (size_t row = 0; row < rows; row++, in += columns, out += columns)
        norm_row(1, epsilon, gain, offset, columns, in, out);
}

void dovetail_rms_norm(float epsilon, const float *gain, size_t rows, size_t columns, const float *in, float *out)
{
    for (size_t row = 0; row < rows; row++, in += columns, out += columns)
        norm_row(0, epsilon, gain, NULL, columns, in, out);
}
