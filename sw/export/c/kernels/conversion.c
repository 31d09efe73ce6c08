#include "dovetail_kernels.h"

/* Far outside of int8, whatever the zero point; halves below it are exact. */
#define FAR 1024.0f

static int32_t rounded(float value, int ties_even)
{
    if (value != value)
        return ties_even ? -(int32_t)FAR : 0;
    if (value >= FAR)
        return (int32_t)FAR;
    if (value < -FAR)
        return -(int32_t)FAR;
    int32_t whole = (int32_t)value;
    float rest = value - (float)whole;
    int32_t away = value < 0 ? -1 : 1;
    float size = rest < 0 ? -rest : rest;
    if (size > 0.5f || (size == 0.5f && (!ties_even || whole % 2)))
        return whole + away;
    return whole;
}

void dovetail_quantise(float scale, int32_t zero_point, int ties_even, size_t count, const float *in, int8_t *out)
{
    for (size_t i = 0; i < count; i++) {
        float ratio = in[i] / scale;
        out[i] = (int8_t)dovetail_clamp((int64_t)rounded(ratio, ties_even) + zero_point, INT8_MIN, INT8_MAX);
    }
}

void dovetail_dequantise(float scale, int32_t zero_point, size_t count, const int8_t *in, float *out)
{
    for (size_t i = 0; i < count; i++)
        out[i] = (float)(in[i] - zero_point) * scale;
}
