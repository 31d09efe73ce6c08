/* Places of elements, one after the other, with any steps. */
#ifndef DOVETAIL_WALK_H
#define DOVETAIL_WALK_H

#include "dovetail_kernels.h"

struct walk {
    size_t index[DOVETAIL_AXES];
};

/* To the next element; `a` and `b` go along. 0 after the last one. */
static inline int walk_on(struct walk *walk, int32_t axes, const size_t *sizes, const size_t *steps_a,
                          const size_t *steps_b, size_t *a, size_t *b)
{
    for (int32_t axis = axes - 1; axis >= 0; axis--) {
        *a += steps_a[axis];
        *b += steps_b[axis];
        if (++walk->index[axis] < sizes[axis])
            return 1;
        walk->index[axis] = 0;
        *a -= sizes[axis] * steps_a[axis];
        *b -= sizes[axis] * steps_b[axis];
    }
    return 0;
}

#endif
