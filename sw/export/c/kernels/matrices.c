#include "dovetail_kernels.h"

void dovetail_multiply_matrices(const struct dovetail_product *node, const int8_t *a, const int8_t *b, void *out)
{
    size_t along = node->transposed ? 1 : node->columns, across = node->transposed ? node->depth : 1;
    size_t index = 0;
    for (size_t matrix = 0; matrix < node->matrices; matrix++, b += node->depth * node->columns)
        for (size_t row = 0; row < node->rows; row++, a += node->depth)
            for (size_t column = 0; column < node->columns; column++) {
                uint32_t total = 0;
                for (size_t k = 0; k < node->depth; k++) {
                    int32_t right = b[column * across + k * along] - node->zero_b;
                    total += (uint32_t)((a[k] - node->requant.zero_in) * right);
                }
                dovetail_put(&node->requant, node->sums, 0, dovetail_wrap(total), out, index++);
            }
}
