#include "dovetail_kernels.h"

/* The filter of an output channel: `tap` elements from one tap to the next, `term` from one array of a sum to the next,
   and the input channels that it reads. */
struct filter {
    const int8_t *weights;
    ptrdiff_t tap, term;
    int32_t channels;
};

/* One output channel at one place. `in`: the first channel that it reads of the first pixel. */
static int32_t accumulate(const struct dovetail_convolution *node, struct filter filter, const int8_t *in, int32_t bias,
                          int32_t top, int32_t left)
{
    const struct dovetail_window *window = &node->window;
    uint32_t total = (uint32_t)bias;
    for (int32_t ky = 0; ky < window->kernel_y; ky++) {
        int32_t y = top + ky * window->dilation_y;
        if (y < 0 || y >= window->height)
            continue;
        for (int32_t kx = 0; kx < window->kernel_x; kx++) {
            int32_t x = left + kx * window->dilation_x;
            if (x < 0 || x >= window->width)
                continue;
            const int8_t *pixel = in + ((ptrdiff_t)y * window->width + x) * window->channels;
            for (int32_t term = 0; term < node->terms; term++) {
                const int8_t *tap = filter.weights + term * filter.term + (ky * window->kernel_x + kx) * filter.tap;
                for (int32_t c = 0; c < filter.channels; c++)
                    total += (uint32_t)((pixel[c] - node->requant.zero_in) * tap[c]);
            }
        }
    }
    return dovetail_wrap(total);
}

/* `step`: elements from the filter of an output channel to the next one's; `share`: output channels that read the same
   input channels. */
static void convolve(const struct dovetail_convolution *node, struct filter filter, ptrdiff_t step, int32_t share,
                     const int8_t *in, void *out)
{
    const struct dovetail_window *window = &node->window;
    const int8_t *weights = filter.weights;
    size_t index = 0;
    for (int32_t y = 0; y < window->out_height; y++)
        for (int32_t x = 0; x < window->out_width; x++)
            for (int32_t k = 0; k < node->out_channels; k++) {
                filter.weights = weights + k * step;
                int32_t sum = accumulate(node, filter, in + k / share * filter.channels, node->bias[k],
                                         y * window->stride_y - window->top, x * window->stride_x - window->left);
                dovetail_put(&node->requant, node->sums, (size_t)k, sum, out, index++);
            }
}

void dovetail_convolve(const struct dovetail_convolution *node, const int8_t *in, void *out)
{
    const int32_t channels = node->window.channels / node->groups;
    const ptrdiff_t step = (ptrdiff_t)node->window.kernel_y * node->window.kernel_x * channels;
    const struct filter filter = {node->weights, channels, node->out_channels * step, channels};
    convolve(node, filter, step, node->out_channels / node->groups, in, out);
}

void dovetail_convolve_depthwise(const struct dovetail_convolution *node, const int8_t *in, void *out)
{
    const ptrdiff_t taps = (ptrdiff_t)node->window.kernel_y * node->window.kernel_x;
    const struct filter filter = {node->weights, node->out_channels, node->out_channels * taps, 1};
    convolve(node, filter, 1, node->out_channels / node->window.channels, in, out);
}
