#include "dovetail_kernels.h"

/* One output channel at one place. `weights`: of the output channel, `size` in each term. */
static int32_t accumulate(const struct dovetail_convolution *node, const int8_t *weights, ptrdiff_t size,
                          const int8_t *in, int32_t bias, int32_t top, int32_t left)
{
    const struct dovetail_window *window = &node->window;
    int32_t depth = window->channels / node->groups;
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
                const int8_t *tap = weights + term * size + ((ptrdiff_t)ky * window->kernel_x + kx) * depth;
                for (int32_t c = 0; c < depth; c++)
                    total += (uint32_t)((pixel[c] - node->requant.zero_in) * tap[c]);
            }
        }
    }
    return dovetail_wrap(total);
}

void dovetail_convolve(const struct dovetail_convolution *node, const int8_t *in, int8_t *out)
{
    const struct dovetail_window *window = &node->window;
    int32_t depth = window->channels / node->groups, share = node->out_channels / node->groups;
    ptrdiff_t filter = (ptrdiff_t)window->kernel_y * window->kernel_x * depth;
    for (int32_t y = 0; y < window->out_height; y++)
        for (int32_t x = 0; x < window->out_width; x++)
            for (int32_t k = 0; k < node->out_channels; k++) {
                int32_t sum = accumulate(node, node->weights + k * filter, node->out_channels * filter,
                                         in + k / share * depth, node->bias[k], y * window->stride_y - window->top,
                                         x * window->stride_x - window->left);
                *out++ = dovetail_requantise(&node->requant, (size_t)k, sum);
            }
}
