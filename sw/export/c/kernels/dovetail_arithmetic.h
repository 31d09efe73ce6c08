/* The integer arithmetic behind int32 accumulators: multipliers, roundings, sums, averages. Every function is exact and
 * defined for all values of its operands.
 */
#ifndef DOVETAIL_ARITHMETIC_H
#define DOVETAIL_ARITHMETIC_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum {
    DOVETAIL_ROUND_TFLITE = 0, /* 31-bit multiplier, rounded twice, ties away from zero in the second step */
    DOVETAIL_ROUND_ONNX = 1    /* float32 multiplier, product rounded to 24 bits, then ties to even */
};

enum dovetail_combination { DOVETAIL_ADD, DOVETAIL_SUBTRACT, DOVETAIL_MINIMUM, DOVETAIL_MAXIMUM };

/* How accumulators become int8. `step`: 1 with a multiplier per channel, 0 with one for all. A multiplier is
 * mult * 2^(shift - 31), with ROUND_ONNX mult * 2^(shift - 24). */
struct dovetail_requant {
    const int32_t *mult;
    const int8_t *shift;
    uint8_t step;
    uint8_t rounding;
    int32_t zero_in, zero_out, lo, hi;
};

/* How two int8 values add up, or what else `combination` says. */
struct dovetail_sum_rule {
    uint8_t rounding;
    uint8_t combination;
    int32_t zero_a, zero_b, zero_out;
    int32_t mult_a, mult_b, mult_out;
    int32_t shift_a, shift_b, shift_out;
    int32_t lo, hi;
};

/* value / 2^shift, rounded down. */
static inline int64_t dovetail_floor_shift(int64_t value, int32_t shift)
{
    return value < 0 ? ~(~value >> shift) : value >> shift;
}

/* The low 32 bits as a signed integer. */
int32_t dovetail_wrap(uint32_t value);

int32_t dovetail_clamp(int64_t value, int32_t lo, int32_t hi);

/* value * mult * 2^(shift - 31), or - 24, rounded to an integer. */
int64_t dovetail_scale(int32_t value, int32_t mult, int32_t shift, int rounding);

/* An accumulator of a channel to int8. */
int8_t dovetail_requantise(const struct dovetail_requant *requant, size_t channel, int32_t value);

/* Put result `index` of `out`, an accumulator of a channel: as int8, or with `sums` as the int32 that it is. */
void dovetail_put(const struct dovetail_requant *requant, uint8_t sums, size_t channel, int32_t value, void *out,
                  size_t index);

/* Two int8 values to one. */
int8_t dovetail_sum_one(const struct dovetail_sum_rule *rule, int32_t a, int32_t b);

/* total / count, ties away from zero or to even; of nothing 0. */
int32_t dovetail_divide(int64_t total, int32_t count, int rounding);

#ifdef __cplusplus
}
#endif

#endif
