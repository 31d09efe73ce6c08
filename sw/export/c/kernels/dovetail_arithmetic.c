#include "dovetail_arithmetic.h"

#define ADD_LEFT_SHIFT 20 /* headroom of TFLite's sums */
#define ADD_FRACTION 40   /* fraction bits in which the ONNX sum is exact */
#define ONNX_MULT_MASK 0xffffff

int32_t dovetail_wrap(uint32_t value)
{
    return value & 0x80000000u ? -(int32_t)(~value) - 1 : (int32_t)value;
}

int32_t dovetail_clamp(int64_t value, int32_t lo, int32_t hi)
{
    int64_t low = value < hi ? value : hi;
    return (int32_t)(low > lo ? low : lo);
}

/* magnitude / 2^shift, ties to even. */
static uint64_t even_shift(uint64_t magnitude, int32_t shift)
{
    uint64_t quotient = magnitude >> shift;
    uint64_t rest = magnitude - (quotient << shift);
    uint64_t half = ((uint64_t)1 << shift) >> 1;
    return quotient + (rest > half || (rest == half && shift > 0 && (quotient & 1)));
}

/* The nearest number of at most 24 bits, ties to even. */
static uint64_t round_to_24(uint64_t magnitude)
{
    int32_t excess = 0;
    for (int32_t step = 32; step; step /= 2)
        if (magnitude >> 24 >> excess >> (step - 1))
            excess += step;
    return even_shift(magnitude, excess) << excess;
}

static uint64_t magnitude_of(int64_t value)
{
    return value < 0 ? 0 - (uint64_t)value : (uint64_t)value;
}

static int64_t with_sign(uint64_t magnitude, int64_t sign)
{
    return sign < 0 ? -(int64_t)magnitude : (int64_t)magnitude;
}

static int64_t scale_tflite(int32_t value, int32_t mult, int32_t shift)
{
    int32_t left = shift > 0 ? shift : 0, right = shift < 0 ? -shift : 0;
    int32_t lifted = dovetail_wrap((uint32_t)value << left);
    int64_t half = ((int64_t)1 << right) >> 1;
    int64_t bias = half * ((int64_t)1 << 31) + ((int64_t)1 << 30);
    if (lifted < 0 && right)
        bias -= (int64_t)1 << 31;
    /* Two floors, of 31 bits and of `right`, are one. */
    return dovetail_floor_shift(dovetail_floor_shift((int64_t)lifted * mult + bias, 31), right);
}

static int64_t scale_onnx(int32_t value, int32_t mult, int32_t shift)
{
    int32_t left = shift > 0 ? shift : 0, right = shift < 0 ? -shift : 0;
    int64_t lifted = dovetail_clamp(value * ((int64_t)1 << left), INT32_MIN, INT32_MAX);
    uint64_t product = round_to_24(magnitude_of(lifted)) * ((uint32_t)mult & ONNX_MULT_MASK);
    return with_sign(even_shift(round_to_24(product), right + 24), lifted);
}

int64_t dovetail_scale(int32_t value, int32_t mult, int32_t shift, int rounding)
{
    return rounding == DOVETAIL_ROUND_TFLITE ? scale_tflite(value, mult, shift) : scale_onnx(value, mult, shift);
}

int8_t dovetail_requantise(const struct dovetail_requant *requant, size_t channel, int32_t value)
{
    size_t index = channel * requant->step;
    int64_t scaled = dovetail_scale(value, requant->mult[index], requant->shift[index], requant->rounding);
    return (int8_t)dovetail_clamp(scaled + requant->zero_out, requant->lo, requant->hi);
}

void dovetail_put(const struct dovetail_requant *requant, uint8_t sums, size_t channel, int32_t value, void *out,
                  size_t index)
{
    if (sums)
        ((int32_t *)out)[index] = value;
    else
        ((int8_t *)out)[index] = dovetail_requantise(requant, channel, value);
}

static int64_t combine(int combination, int64_t a, int64_t b)
{
    switch (combination) {
    case DOVETAIL_ADD:
        return a + b;
    case DOVETAIL_SUBTRACT:
        return a - b;
    case DOVETAIL_MINIMUM:
        return a < b ? a : b;
    default:
        return a > b ? a : b;
    }
}

static int64_t tflite_operand(int32_t difference, int32_t mult, int32_t shift)
{
    return scale_tflite(difference * ((int32_t)1 << ADD_LEFT_SHIFT), mult, shift < 0 ? shift : 0);
}

static int64_t onnx_operand(int32_t difference, int32_t mult, int32_t shift)
{
    uint64_t product = round_to_24(magnitude_of(difference) * ((uint32_t)mult & ONNX_MULT_MASK));
    return with_sign(product << (dovetail_clamp(shift, -16, 7) + ADD_FRACTION - 24), difference);
}

int8_t dovetail_sum_one(const struct dovetail_sum_rule *rule, int32_t a, int32_t b)
{
    int32_t left = a - rule->zero_a, right = b - rule->zero_b;
    int64_t total, scaled;
    if (rule->rounding == DOVETAIL_ROUND_TFLITE) {
        total = combine(rule->combination, tflite_operand(left, rule->mult_a, rule->shift_a),
                        tflite_operand(right, rule->mult_b, rule->shift_b));
        scaled = scale_tflite((int32_t)total, rule->mult_out, rule->shift_out < 0 ? rule->shift_out : 0);
    } else {
        total = combine(rule->combination, onnx_operand(left, rule->mult_a, rule->shift_a),
                        onnx_operand(right, rule->mult_b, rule->shift_b));
        scaled = with_sign(even_shift(round_to_24(magnitude_of(total)), ADD_FRACTION), total);
    }
    return (int8_t)dovetail_clamp(scaled + rule->zero_out, rule->lo, rule->hi);
}

int32_t dovetail_divide(int64_t total, int32_t count, int rounding)
{
    if (count == 0)
        return 0;
    uint64_t divisor = 2 * (uint64_t)count, twice = 2 * magnitude_of(total) + (uint64_t)count;
    uint64_t quotient = twice / divisor;
    if (rounding == DOVETAIL_ROUND_ONNX && quotient * divisor == twice && (quotient & 1))
        quotient--;
    return (int32_t)with_sign(quotient, total);
}
