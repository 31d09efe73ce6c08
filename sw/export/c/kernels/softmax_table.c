#include "dovetail_float.h"
#include "dovetail_kernels.h"

#define LEVEL_BITS 13 /* of `levels`, and so of a quotient */

/* whole * 2^power of a positive float, up to a power that all have in common. */
struct parts {
    uint32_t whole;
    int32_t power;
};

static struct parts parts_of(float value)
{
    const union dovetail_float number = {value};
    const uint32_t one = UINT32_C(1) << DOVETAIL_MANTISSA;
    struct parts parts = {number.bits & (one - 1), (int32_t)(number.bits >> DOVETAIL_MANTISSA)};
    if (parts.power)
        parts.whole += one;
    else
        parts.power = 1;
    return parts;
}

/* exp * levels / sum, rounded once, ties to even; bit by bit, which takes a processor without a floating-point unit a
 * tenth of a division in double. */
static int32_t share_of(struct parts exp, int32_t levels, struct parts sum)
{
    int32_t lower = sum.power - exp.power;
    if (lower > LEVEL_BITS + 1)
        return 0;
    uint64_t rest = (uint64_t)exp.whole * (uint64_t)levels, divisor = (uint64_t)sum.whole << lower;
    int32_t quotient = 0;
    for (int32_t bit = LEVEL_BITS - 1; bit >= 0; bit--)
        if (rest >= divisor << bit) {
            rest -= divisor << bit;
            quotient += (int32_t)1 << bit;
        }
    return quotient + (2 * rest > divisor || (2 * rest == divisor && quotient % 2));
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
    struct parts whole = parts_of(sum);
    for (size_t i = 0; i < count; i++) {
        int32_t share = share_of(parts_of(rule->exps[largest - in[i * step]]), rule->levels, whole);
        out[i * step] = (int8_t)dovetail_clamp((int64_t)share + rule->zero_point, INT8_MIN, INT8_MAX);
    }
}

void dovetail_softmax_table(const struct dovetail_softmax_rule *rule, size_t outer, size_t count, size_t inner,
                            const int8_t *in, int8_t *out)
{
    for (size_t i = 0; i < outer; i++)
        for (size_t j = 0; j < inner; j++)
            softmax_row(rule, count, inner, in + i * count * inner + j, out + i * count * inner + j);
}
