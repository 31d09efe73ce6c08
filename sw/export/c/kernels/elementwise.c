#include "dovetail_walk.h"

void dovetail_sum(const struct dovetail_pairs *pairs, const struct dovetail_sum_rule *rule, const int8_t *a,
                  const int8_t *b, int8_t *out)
{
    struct walk walk = {{0}};
    size_t i = 0, j = 0;
    do
        *out++ = dovetail_sum_one(rule, a[i], b[j]);
    while (walk_on(&walk, pairs->axes, pairs->sizes, pairs->steps_a, pairs->steps_b, &i, &j));
}

void dovetail_multiply(const struct dovetail_pairs *pairs, const struct dovetail_requant *requant, int32_t zero_b,
                       const int8_t *a, const int8_t *b, int8_t *out)
{
    struct walk walk = {{0}};
    size_t i = 0, j = 0;
    do
        *out++ = dovetail_requantise(requant, 0, (a[i] - requant->zero_in) * (b[j] - zero_b));
    while (walk_on(&walk, pairs->axes, pairs->sizes, pairs->steps_a, pairs->steps_b, &i, &j));
}

void dovetail_rescale(const struct dovetail_rescale *node, size_t count, const int8_t *in, int8_t *out)
{
    struct dovetail_requant below = node->requant;
    below.mult = &node->mult_below;
    below.shift = &node->shift_below;
    for (size_t i = 0; i < count; i++) {
        int32_t value = in[i] - node->requant.zero_in;
        if (node->absolute && value < 0)
            value = -value;
        out[i] = dovetail_requantise(value < 0 ? &below : &node->requant, 0, value);
    }
}

void dovetail_widen(const int32_t table[256], size_t count, const int8_t *in, int32_t *out)
{
    for (size_t i = 0; i < count; i++)
        out[i] = table[in[i] + 128];
}

void dovetail_narrow(const struct dovetail_requant *requant, size_t count, const int32_t *in, int8_t *out)
{
    for (size_t i = 0; i < count; i++)
        out[i] = dovetail_requantise(requant, 0, in[i]);
}

void dovetail_add_words(size_t count, const int32_t *a, const int32_t *b, int32_t *out)
{
    for (size_t i = 0; i < count; i++)
        out[i] = dovetail_wrap((uint32_t)a[i] + (uint32_t)b[i]);
}

void dovetail_look_up(const int8_t *table, size_t count, const int8_t *in, int8_t *out)
{
    for (size_t i = 0; i < count; i++)
        out[i] = table[in[i] + 128];
}

void dovetail_flip(size_t count, const void *in, void *out)
{
    const uint8_t *from = in;
    uint8_t *to = out;
    for (size_t i = 0; i < count; i++)
        to[i] = from[i] ^ 128u;
}
