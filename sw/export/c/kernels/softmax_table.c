#include "dovetail_kernels.h"

/* Far outside of int8, whatever the zero point. */
#define FAR 1024.0

/* To the nearest integer, ties to even; what is not negative. */
static int32_t rounded(double value)
{
    if (!(value < FAR))
        return (int32_t)FAR;
    int32_t whole = (int32_t)value;
    double rest = value - whole;
    return whole + (rest > 0.5 || (rest == 0.5 && whole % 2));
}

static void softmax_row(const struct dovetail_softmax_rule *rule, size_t count, size_t step, const int8_t *in,
                        int8_t *out)
{
    int32_t largest = INT8_MIN;
    for (size_t i = 0; i < count; i++)
        largest = in[i * step] > largest ? in[i * step] : largest;
    float sum = 0;
    for (size_t i = 0; i < count; i++)
        sum += rule->exps[largest - in[i * step]];
    for (size_t i = 0; i < count; i++) {
        double share = (double)rule->exps[largest - in[i * step]] * rule->levels / sum;
        out[i * step] = (int8_t)dovetail_clamp((int64_t)rounded(share) + rule->zero_point, INT8_MIN, INT8_MAX);
    }
}

void dovetail_softmax_table(const struct dovetail_softmax_rule *rule, size_t outer, size_t count, size_t inner,
                            const int8_t *in, int8_t *out)
{
    for (size_t i = 0; i < outer; i++)
        for (size_t j = 0; j < inner; j++)
            softmax_row(rule, count, inner, in + i * count * inner + j, out + i * count * inner + j);
}
