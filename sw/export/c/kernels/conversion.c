#include "dovetail_float.h"
#include "dovetail_kernels.h"

#define SIGN UINT32_C(0x80000000)
#define INFINITE UINT32_C(0x7f800000)

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

void dovetail_dequantise(const float table[256], size_t count, const int8_t *in, float *out)
{
    for (size_t i = 0; i < count; i++)
        out[i] = table[(uint8_t)in[i]];
}

void dovetail_dequantise_sums(const float *steps, size_t rows, size_t columns, const int32_t *in, float *out)
{
    for (size_t row = 0; row < rows; row++)
        for (size_t column = 0; column < columns; column++)
            *out++ = (float)*in++ * steps[column];
}
