#include "dovetail_kernels.h"

/* What a window holds of one channel. */
struct taps {
    int64_t total;
    int32_t inside; /* taps inside the image */
    int32_t largest;
};

static struct taps look(const struct dovetail_window *window, const int8_t *in, int32_t c, int32_t top, int32_t left)
{
    struct taps taps = {0, 0, INT8_MIN};
    for (int32_t y = top; y < top + window->kernel_y; y++)
        for (int32_t x = left; x < left + window->kernel_x; x++)
            if (y >= 0 && y < window->height && x >= 0 && x < window->width) {
                int32_t value = in[((ptrdiff_t)y * window->width + x) * window->channels + c];
                taps.total += value;
                taps.inside++;
                taps.largest = value > taps.largest ? value : taps.largest;
            }
    return taps;
}

static int32_t average(const struct dovetail_average *node, struct taps taps)
{
    int32_t count = taps.inside;
    if (node->counts_padding) {
        count = node->window.kernel_y * node->window.kernel_x;
        taps.total += (int64_t)(count - taps.inside) * node->fill;
    }
    int64_t above = taps.total - (int64_t)node->origin * count;
    return dovetail_clamp((int64_t)dovetail_divide(above, count, node->rounding) + node->origin, node->lo, node->hi);
}

void dovetail_pool_average(const struct dovetail_average *node, const int8_t *in, int8_t *out)
{
    const struct dovetail_window *window = &node->window;
    for (int32_t y = 0; y < window->out_height; y++)
        for (int32_t x = 0; x < window->out_width; x++)
            for (int32_t c = 0; c < window->channels; c++)
                *out++ = (int8_t)average(node, look(window, in, c, y * window->stride_y - window->top,
                                                    x * window->stride_x - window->left));
}

void dovetail_pool_maximum(const struct dovetail_window *window, int32_t lo, int32_t hi, const int8_t *in, int8_t *out)
{
    for (int32_t y = 0; y < window->out_height; y++)
        for (int32_t x = 0; x < window->out_width; x++)
            for (int32_t c = 0; c < window->channels; c++) {
                struct taps taps = look(window, in, c, y * window->stride_y - window->top,
                                        x * window->stride_x - window->left);
                *out++ = (int8_t)dovetail_clamp(taps.largest, lo, hi);
            }
}

void dovetail_mean(const struct dovetail_requant *requant, size_t pixels, size_t channels, const int8_t *in,
                   int8_t *out)
{
    for (size_t c = 0; c < channels; c++) {
        int32_t total = 0;
        for (size_t i = 0; i < pixels; i++)
            total += in[i * channels + c] - requant->zero_in;
        out[c] = dovetail_requantise(requant, c, total);
    }
}
