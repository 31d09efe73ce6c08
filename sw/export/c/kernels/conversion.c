#include "dovetail_kernels.h"

#include <string.h>

#define SIGN UINT32_C(0x80000000)
#define INFINITE UINT32_C(0x7f800000)

/* Floats as integers in the same order: nothing here needs a floating-point unit. */
void dovetail_quantise(const int32_t edges[255], int8_t of_nan, size_t count, const float *in, int8_t *out)
{
    for (size_t i = 0; i < count; i++) {
        uint32_t bits;
        memcpy(&bits, &in[i], sizeof bits);
        if ((bits & ~SIGN) > INFINITE) {
            out[i] = of_nan;
            continue;
        }
        int32_t place = bits & SIGN ? -(int32_t)(bits & ~SIGN) - 1 : (int32_t)bits;
        int32_t level = 0; /* edges that are passed */
        for (int32_t step = 128; step; step /= 2)
            if (place >= edges[level + step - 1])
                level += step;
        out[i] = (int8_t)(level + INT8_MIN);
    }
}

void dovetail_dequantise(const float table[256], size_t count, const int8_t *in, float *out)
{
    for (size_t i = 0; i < count; i++)
        memcpy(&out[i], &table[(uint8_t)in[i]], sizeof *out);
}
