#include <string.h>

#include "dovetail_walk.h"

static int is_true(enum dovetail_comparison comparison, int below, int equal, int above)
{
    switch (comparison) {
    case DOVETAIL_EQUAL:
        return equal;
    case DOVETAIL_LESS:
        return below;
    case DOVETAIL_LESS_OR_EQUAL:
        return below || equal;
    case DOVETAIL_GREATER:
        return above;
    default:
        return above || equal;
    }
}

static int64_t integer_at(const void *values, size_t i, enum dovetail_number number)
{
    return number == DOVETAIL_INT32 ? ((const int32_t *)values)[i] : ((const int64_t *)values)[i];
}

void dovetail_compare(enum dovetail_comparison comparison, enum dovetail_number number,
                      const struct dovetail_pairs *pairs, const void *a, const void *b, uint8_t *out)
{
    struct walk walk = {{0}};
    size_t i = 0, j = 0;
    do {
        if (number == DOVETAIL_FLOAT32) {
            float left = ((const float *)a)[i], right = ((const float *)b)[j];
            *out++ = (uint8_t)is_true(comparison, left < right, left == right, left > right);
        } else {
            int64_t left = integer_at(a, i, number), right = integer_at(b, j, number);
            *out++ = (uint8_t)is_true(comparison, left < right, left == right, left > right);
        }
    } while (walk_on(&walk, pairs->axes, pairs->sizes, pairs->steps_a, pairs->steps_b, &i, &j));
}

void dovetail_choose(const struct dovetail_pairs *pairs, int wanted, size_t item_bytes, const uint8_t *condition,
                     const void *in, void *out)
{
    struct walk walk = {{0}};
    const uint8_t *from = in;
    uint8_t *to = out;
    size_t i = 0, j = 0;
    do {
        if (!condition[i] == !wanted)
            memcpy(to, from + j * item_bytes, item_bytes);
        to += item_bytes;
    } while (walk_on(&walk, pairs->axes, pairs->sizes, pairs->steps_a, pairs->steps_b, &i, &j));
}
