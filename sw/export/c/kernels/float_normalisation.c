#include <math.h>

#include "dovetail_kernels.h"

static void softmax_row(size_t count, size_t step, const float *in, float *out)
{
    float largest = in[0];
    double sum = 0;
    for (size_t i = 1; i < count; i++)
        largest = in[i * step] > largest ? in[i * step] : largest;
    for (size_t i = 0; i < count; i++)
        sum += exp((double)(float)(in[i * step] - largest));
    for (size_t i = 0; i < count; i++)
        out[i * step] = (float)(exp((double)(float)(in[i * step] - largest)) / sum);
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
        double deviation = sqrt(squares / (double)columns + epsilon);
        for (size_t i = 0; i < columns; i++)
            out[i] = (float)((in[i] - mean) / deviation * gain[i] + (offset ? offset[i] : 0));
    }
}
