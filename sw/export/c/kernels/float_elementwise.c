#include "dovetail_walk.h"

static float combined(enum dovetail_float_operation operation, float a, float b)
{
    switch (operation) {
    case DOVETAIL_FLOAT_ADD:
        return a + b;
    case DOVETAIL_FLOAT_SUB:
        return a - b;
    case DOVETAIL_FLOAT_MUL:
        return a * b;
    default:
        return a / b;
    }
}

void dovetail_float_pairs(enum dovetail_float_operation operation, const struct dovetail_pairs *pairs, const float *a,
                          const float *b, float *out)
{
    struct walk walk = {{0}};
    size_t i = 0, j = 0;
    do
        *out++ = combined(operation, a[i], b[j]);
    while (walk_on(&walk, pairs->axes, pairs->sizes, pairs->steps_a, pairs->steps_b, &i, &j));
}
