#include "dovetail_kernels.h"

/* Output channel k at one place. */
static int32_t accumulate(const struct dovetail_convolution *node, int32_t k, const int8_t *in, int32_t top,
                          int32_t left)
{
    const struct dovetail_window *window = &node->window;
    ptrdiff_t size = (ptrdiff_t)window->kernel_y * window->kernel_x * node->out_channels;
    const int8_t *channel = in + k / (node->out_channels / window->channels);
    uint32_t total = (uint32_t)node->bias[k];
    for (int32_t ky = 0; ky < window->kernel_y; ky++) {
        int32_t y = top + ky * window->dilation_y;
        if (y < 0 || y >= window->height)
            continue;
        for (int32_t kx = 0; kx < window->kernel_x; kx++) {
            int32_t x = left + kx * window->dilation_x;
            if (x < 0 || x >= window->width)
                continue;
            int32_t value = channel[((ptrdiff_t)y * window->width + x) * window->channels] - node->requant.zero_in;
            const int8_t *tap = node->weights + ((ptrdiff_t)ky * window->kernel_x + kx) * node->out_channels + k;
            for (int32_t term = 0; term < node->terms; term++)
                total += (uint32_t)(value * tap[term * size]);
        }
    }
    return dovetail_wrap(total);
}

void dovetail_convolve_depthwise(const struct dovetail_convolution *node, const int8_t *in, int8_t *out)
{
    const struct dovetail_window *window = &node->window;
    for (int32_t y = 0; y < window->out_height; y++)
        for (int32_t x = 0; x < window->out_width; x++)
            for (int32_t k = 0; k < node->out_channels; k++) {
                int32_t sum = accumulate(node, k, in, y * window->stride_y - window->top,
                                         x * window->stride_x - window->left);
                *out++ = dovetail_requantise(&node->requant, (size_t)k, sum);
            }
}
