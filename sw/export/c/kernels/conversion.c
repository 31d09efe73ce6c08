#include "dovetail_float.h"
#include "dovetail_kernels.h"

#define SIGN UINT32_C(0x80000000)
#define INFINITE UINT32_C(0x7f800000)
#define BIAS 127 /* the exponent of 1 */
#define LARGEST 220 /* the exponent of a step, less 1, with which every product is a finite number */

/* Floats as integers in the same order: nothing here needs a floating-point unit. */
void dovetail_quantise(const int32_t edges[256], int8_t of_nan, size_t count, const float *in, int8_t *out)
{
    for (size_t i = 0; i < count; i++) {
        const union dovetail_float number = {in[i]};
        uint32_t size = number.bits & ~SIGN;
        int32_t place = number.bits == size ? (int32_t)size : -(int32_t)size - 1;
        const int32_t *edge = edges;
        for (uint32_t step = 128; step; step >>= 1)
            if (place >= edge[step])
                edge += step;
        out[i] = size > INFINITE ? of_nan : (int8_t)(edge - edges + INT8_MIN);
    }
}

void dovetail_quantise_wide(int32_t power, size_t count, const float *in, int32_t *out)
{
    for (size_t i = 0; i < count; i++) {
        const union dovetail_float number = {in[i]};
        uint32_t size = number.bits & ~SIGN, hidden = UINT32_C(1) << DOVETAIL_MANTISSA;
        int32_t exponent = (int32_t)(size >> DOVETAIL_MANTISSA) - BIAS - power; /* 2^exponent or more */
        int32_t value = (int32_t)(size & (hidden - 1)) + (int32_t)hidden;
        int32_t sign = number.bits == size ? 1 : -1;
        if (size > INFINITE) { /* no number */
            value = -INT16_MIN;
            sign = -1;
        } else if (exponent > 14) {
            value = sign > 0 ? INT16_MAX : -INT16_MIN;
        } else if (exponent < -1) {
            value = 0;
        } else { /* ties to even */
            uint32_t shift = (uint32_t)(DOVETAIL_MANTISSA - exponent);
            uint32_t half = UINT32_C(1) << (shift - 1), rest = (uint32_t)value & ((half << 1) - 1);
            value >>= shift;
            value += rest > half || (rest == half && (value & 1));
            value = sign > 0 && value > INT16_MAX ? INT16_MAX : value;
        }
        out[i] = sign * value;
    }
}

void dovetail_dequantise(const float table[256], size_t count, const int8_t *in, float *out)
{
    for (size_t i = 0; i < count; i++)
        out[i] = table[(uint8_t)in[i]];
}

/* (float)sum * step in integers, as a processor without a floating-point unit takes 1.6 times as long. */
static float product(int32_t sum, union dovetail_float step)
{
    const uint32_t hidden = UINT32_C(1) << DOVETAIL_MANTISSA;
    uint32_t size = sum < 0 ? 0u - (uint32_t)sum : (uint32_t)sum;
    uint32_t exponent = step.bits >> DOVETAIL_MANTISSA;
    if (!size || exponent - 1 > LARGEST)
        return (float)sum * step.value;
    while (size < SIGN >> 7) {
        size <<= 8;
        exponent -= 8;
    }
    while (size < SIGN) {
        size <<= 1;
        exponent--;
    }
    uint32_t whole = size >> 8;
    whole += (size & 255) + (whole & 1) > 128;
    uint64_t exact = (uint64_t)whole * ((step.bits & (hidden - 1)) | hidden);
    if (!(exact >> (2 * DOVETAIL_MANTISSA + 1))) {
        exact <<= 1;
        exponent--;
    }
    uint32_t mantissa = (uint32_t)(exact >> (DOVETAIL_MANTISSA + 1)), below = (uint32_t)exact & (2 * hidden - 1);
    mantissa += below + (mantissa & 1) > hidden;
    const union dovetail_float result = {
        .bits = ((uint32_t)sum & SIGN) + ((exponent + DOVETAIL_MANTISSA + 8) << DOVETAIL_MANTISSA) + mantissa};
    return result.value;
}

void dovetail_dequantise_sums(const float *steps, size_t rows, size_t columns, const int32_t *in, float *out)
{
    for (size_t row = 0; row < rows; row++)
        for (size_t column = 0; column < columns; column++) {
            const union dovetail_float step = {steps[column]};
            *out++ = product(*in++, step);
        }
}
