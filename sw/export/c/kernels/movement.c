#include <string.h>

#include "dovetail_walk.h"

/* Most runs are one byte or one float, for which a call of memcpy takes longer than the copy. */
static inline void copy_run(uint8_t *to, const uint8_t *from, size_t run)
{
    if (run == 1)
        *to = *from;
    else if (run == 4)
        for (int i = 0; i < 4; i++)
            to[i] = from[i];
    else
        memcpy(to, from, run);
}

void dovetail_move(const struct dovetail_copy *copy, const void *in, void *out)
{
    struct walk walk = {{0}};
    size_t source = copy->source, target = copy->target;
    int32_t outer = copy->axes ? copy->axes - 1 : 0;
    size_t count = copy->axes ? copy->sizes[outer] : 1;
    size_t source_step = copy->source_steps[outer], target_step = copy->target_steps[outer];
    const uint8_t *from = in;
    uint8_t *to = out;
    do {
        for (size_t i = 0; i < count; i++)
            copy_run(to + target + i * target_step, from + source + i * source_step, copy->run);
    } while (walk_on(&walk, outer, copy->sizes, copy->source_steps, copy->target_steps, &source, &target));
}

void dovetail_gather(const uint32_t *places, size_t count, size_t item_bytes, const void *in, void *out)
{
    const uint8_t *from = in;
    uint8_t *to = out;
    for (size_t i = 0; i < count; i++)
        copy_run(to + i * item_bytes, from + places[i] * item_bytes, item_bytes);
}

/* A whole number of 4 or 8 bytes. */
static int64_t index_at(const void *indices, size_t i, uint8_t bytes)
{
    return bytes == 4 ? ((const int32_t *)indices)[i] : ((const int64_t *)indices)[i];
}

int dovetail_pick_rows(const struct dovetail_pick *node, const void *in, const void *indices, void *out)
{
    const uint8_t *from = in;
    uint8_t *to = out;
    for (size_t outer = 0; outer < node->outer; outer++, from += node->rows * node->run)
        for (size_t i = 0; i < node->count; i++, to += node->run) {
            int64_t index = index_at(indices, i, node->index_bytes);
            if (index < 0)
                index += (int64_t)node->rows;
            if (index < 0 || index >= (int64_t)node->rows)
                return 0;
            memcpy(to, from + (size_t)index * node->run, node->run);
        }
    return 1;
}

int dovetail_replace_rows(const struct dovetail_update *node, const void *place, const void *state, const void *rows,
                          void *out)
{
    int64_t index = index_at(place, 0, node->index_bytes);
    if (index < 0 || index >= (int64_t)node->places)
        return 0;
    if (out != state)
        memcpy(out, state, node->bytes);
    dovetail_move(node->copy, rows, (uint8_t *)out + (size_t)index * node->step);
    return 1;
}

void dovetail_pad(const struct dovetail_window *window, int8_t fill, const int8_t *in, int8_t *out)
{
    ptrdiff_t row = (ptrdiff_t)window->width * window->channels;
    ptrdiff_t out_row = (ptrdiff_t)window->out_width * window->channels;
    memset(out, fill, (size_t)(window->out_height * out_row));
    out += window->top * out_row + (ptrdiff_t)window->left * window->channels;
    for (int32_t y = 0; y < window->height; y++)
        memcpy(out + y * out_row, in + y * row, (size_t)row);
}
