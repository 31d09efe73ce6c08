#include <string.h>

#include "dovetail_walk.h"

void dovetail_move(const struct dovetail_copy *copy, const void *in, void *out)
{
    struct walk walk = {{0}};
    size_t source = copy->source, target = copy->target;
    const uint8_t *from = in;
    uint8_t *to = out;
    do
        memcpy(to + target, from + source, copy->run);
    while (walk_on(&walk, copy->axes, copy->sizes, copy->source_steps, copy->target_steps, &source, &target));
}

void dovetail_gather(const uint32_t *places, size_t count, size_t item_bytes, const void *in, void *out)
{
    const uint8_t *from = in;
    uint8_t *to = out;
    for (size_t i = 0; i < count; i++)
        memcpy(to + i * item_bytes, from + places[i] * item_bytes, item_bytes);
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
