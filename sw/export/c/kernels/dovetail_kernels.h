/* Kernels for what a network runs on the host: C99, no allocation, no global state, no operating system.
 *
 * Tensors are dense, channels last, batch 1. Kernels on int8 tensors use integers only and give what the accelerator
 * gives for the same operator, byte for byte; their arithmetic is that of dovetail_arithmetic.h. Kernels on float
 * tensors are for operators that are float in the network's file. Element-wise kernels, softmax and norms may write
 * their result where an operand of its size lies; other results never overlap operands.
 */
#ifndef DOVETAIL_KERNELS_H
#define DOVETAIL_KERNELS_H

#include <stddef.h>
#include <stdint.h>

#include "dovetail_arithmetic.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The most axes of a copy or a float operator. */
#define DOVETAIL_AXES 8

/* --- windows on an image ---------------------------------------------------------------------------------------- */

/* An image, a window that moves over it, and the size of the result. `top`, `left`: pixels of padding. */
struct dovetail_window {
    int32_t height, width, channels;
    int32_t kernel_y, kernel_x;
    int32_t stride_y, stride_x;
    int32_t dilation_y, dilation_x;
    int32_t top, left;
    int32_t out_height, out_width;
};

/* A convolution. `weights`: `terms` arrays, one after the other, whose sum the weights are; each of them is
 * [out_channels][kernel_y][kernel_x][channels / groups], of a depthwise convolution [kernel_y][kernel_x][out_channels].
 * Accumulators wrap at 32 bits; with `sums` they are the results, int32 instead of int8. */
struct dovetail_convolution {
    struct dovetail_window window;
    int32_t out_channels;
    int32_t groups;
    int32_t terms;
    uint8_t sums;
    const int8_t *weights;
    const int32_t *bias;
    struct dovetail_requant requant;
};

/* [height][width][channels] to [out_height][out_width][out_channels]. */
void dovetail_convolve(const struct dovetail_convolution *node, const int8_t *in, void *out);

/* The same; output channel k sees input channel k * channels / out_channels. */
void dovetail_convolve_depthwise(const struct dovetail_convolution *node, const int8_t *in, void *out);

/* Average pooling. `counts_padding`: padding reads as `fill` and counts as taps. `origin`: the integer that ties are
 * rounded away from. */
struct dovetail_average {
    struct dovetail_window window;
    uint8_t rounding;
    uint8_t counts_padding;
    int32_t fill, origin, lo, hi;
};

void dovetail_pool_average(const struct dovetail_average *node, const int8_t *in, int8_t *out);

/* The largest tap inside the image, clamped to lo..hi. */
void dovetail_pool_maximum(const struct dovetail_window *window, int32_t lo, int32_t hi, const int8_t *in, int8_t *out);

/* The mean of all pixels, [pixels][channels] to [channels]; the multiplier holds the division. */
void dovetail_mean(const struct dovetail_requant *requant, size_t pixels, size_t channels, const int8_t *in,
                   int8_t *out);

/* --- matrices --------------------------------------------------------------------------------------------------- */

/* `matrices` products [rows][depth] x [depth][columns]; with `transposed` the second operand is [columns][depth]; `sums`
 * as of a convolution. */
struct dovetail_product {
    size_t matrices, rows, depth, columns;
    int32_t zero_b;
    uint8_t transposed;
    uint8_t sums;
    struct dovetail_requant requant;
};

void dovetail_multiply_matrices(const struct dovetail_product *node, const int8_t *a, const int8_t *b, void *out);

/* --- element by element ----------------------------------------------------------------------------------------- */

/* Result [sizes[0]]...[sizes[axes - 1]], dense, of two operands with these steps, in elements; 0 repeats. */
struct dovetail_pairs {
    int32_t axes;
    size_t sizes[DOVETAIL_AXES];
    size_t steps_a[DOVETAIL_AXES];
    size_t steps_b[DOVETAIL_AXES];
};

void dovetail_sum(const struct dovetail_pairs *pairs, const struct dovetail_sum_rule *rule, const int8_t *a,
                  const int8_t *b, int8_t *out);

/* requantise((a - zero_in) * (b - zero_b)), with no shift to the left. */
void dovetail_multiply(const struct dovetail_pairs *pairs, const struct dovetail_requant *requant, int32_t zero_b,
                       const int8_t *a, const int8_t *b, int8_t *out);

/* requantise(x - zero_in); `absolute`: of the magnitude; `mult_below`, `shift_below`: the multiplier where it is
 * negative. */
struct dovetail_rescale {
    struct dovetail_requant requant;
    uint8_t absolute;
    int32_t mult_below;
    int8_t shift_below;
};

void dovetail_rescale(const struct dovetail_rescale *node, size_t count, const int8_t *in, int8_t *out);

/* table[x + 128], of 16 bits. */
void dovetail_widen(const int32_t table[256], size_t count, const int8_t *in, int32_t *out);

/* requantise(x) of 16 bits. */
void dovetail_narrow(const struct dovetail_requant *requant, size_t count, const int32_t *in, int8_t *out);

void dovetail_add_words(size_t count, const int32_t *a, const int32_t *b, int32_t *out);

/* table[x + 128] */
void dovetail_look_up(const int8_t *table, size_t count, const int8_t *in, int8_t *out);

/* Every byte 128 higher, modulo 256: int8 from uint8, or the other way. */
void dovetail_flip(size_t count, const void *in, void *out);

/* --- movement --------------------------------------------------------------------------------------------------- */

/* `run` bytes go from `source` + i * source_steps[0] + j * source_steps[1] + ... to `target` + ..., for all i, j, ...
 * below `sizes`. All in bytes. */
struct dovetail_copy {
    size_t run;
    int32_t axes;
    size_t sizes[DOVETAIL_AXES];
    size_t source, source_steps[DOVETAIL_AXES];
    size_t target, target_steps[DOVETAIL_AXES];
};

void dovetail_move(const struct dovetail_copy *copy, const void *in, void *out);

/* Element i comes from `places[i]` of the operand. */
void dovetail_gather(const uint32_t *places, size_t count, size_t item_bytes, const void *in, void *out);

/* `rows` of `run` bytes each, `outer` times, of which a whole number chooses one; `index_bytes`: 4 or 8 of it. */
struct dovetail_pick {
    size_t outer, rows, run;
    size_t count;
    uint8_t index_bytes;
};

/* Of each of [outer][rows] the rows that `count` numbers choose, below 0 from the end on, to [outer][count]. 0, and
 * perhaps a part of the result, where a number chooses none; else 1. */
int dovetail_pick_rows(const struct dovetail_pick *node, const void *in, const void *indices, void *out);

/* `bytes` bytes in which rows are replaced: `copy` puts them to place 0, every other of `places` is `step` bytes on. */
struct dovetail_update {
    size_t bytes;
    const struct dovetail_copy *copy;
    size_t step, places;
    uint8_t index_bytes;
};

/* `state` with the rows at the place that a whole number says. 0, and nothing written, where there is none; else 1. */
int dovetail_replace_rows(const struct dovetail_update *node, const void *place, const void *state, const void *rows,
                          void *out);

/* An image in a frame of `fill`. Of the window, only sizes and padding count. */
void dovetail_pad(const struct dovetail_window *window, int8_t fill, const int8_t *in, int8_t *out);

/* --- between int8 and float ------------------------------------------------------------------------------------- */

/* The int8 whose range a number is in: `edges[n]` is the least number that gives n - 128 or more, as its bits, those
 * below the sign inverted if it is negative. `of_nan`: what is no number. */
void dovetail_quantise(const int32_t edges[256], int8_t of_nan, size_t count, const float *in, int8_t *out);

/* x / 2^power, ties to even, within 16 bits; what is no number gives the least. */
void dovetail_quantise_wide(int32_t power, size_t count, const float *in, int32_t *out);

/* `table`: what each byte becomes, by its bits. */
void dovetail_dequantise(const float table[256], size_t count, const int8_t *in, float *out);

/* Sums [rows][columns], each times the step of its column. */
void dovetail_dequantise_sums(const float *steps, size_t rows, size_t columns, const int32_t *in, float *out);

/* --- softmax and float ------------------------------------------------------------------------------------------ */

/* Softmax of each row of `columns`, in TFLite's fixed point. `exps[d]`: the exponential, 31 fraction bits, of an element
 * that is d below its row's maximum. Results have scale 1/256 and zero point -128. */
void dovetail_softmax(const int32_t exps[256], size_t rows, size_t columns, const int8_t *in, int8_t *out);

/* `exps[d]`: the exponential, times a factor, of an element that is d below the maximum; `levels` stand for 1, 8191 at
 * most. */
struct dovetail_softmax_rule {
    const float *exps;
    int32_t levels;
    int32_t zero_point;
};

/* Softmax along the middle axis of [outer][count][inner], as ONNX Runtime's QLinearSoftmax computes it. */
void dovetail_softmax_table(const struct dovetail_softmax_rule *rule, size_t outer, size_t count, size_t inner,
                            const int8_t *in, int8_t *out);

/* Softmax along the middle axis of [outer][count][inner], within 2^-22 of each share; up to 2^23 elements in a row. */
void dovetail_softmax_float(size_t outer, size_t count, size_t inner, const float *in, float *out);

/* Layer normalisation of each row of `columns`, at most 2^17, within 2^-22 of the row's largest product or offset. `offset`
 * may be NULL. */
void dovetail_layer_norm(float epsilon, const float *gain, const float *offset, size_t rows, size_t columns,
                         const float *in, float *out);

/* The same with the mean left in, and without offsets. */
void dovetail_rms_norm(float epsilon, const float *gain, size_t rows, size_t columns, const float *in, float *out);

/* --- layers with a state ---------------------------------------------------------------------------------------- */

/* mult * 2^(shift - 31) */
struct dovetail_factor {
    int32_t mult;
    int8_t shift;
};

/* A gate: `weights` [units][inputs], `recurrent` [units][units]; its products become 12 fraction bits. */
struct dovetail_gate {
    const int8_t *weights, *recurrent;
    const int32_t *bias;
    struct dovetail_factor scale, recurrent_scale;
};

/* An LSTM layer. The cell state counts in 2^power, from `low` to `high`; `kept`, `added`: of the two products that
 * make it; `made`: of the one that makes the hidden state. `time_major`: sequences are [steps][batch][...], else
 * [batch][steps][...]. */
struct dovetail_lstm {
    size_t batch, steps, inputs, units;
    uint8_t time_major;
    struct dovetail_gate enter, forget, candidate, open;
    int32_t zero_in, zero_hidden, power, low, high;
    struct dovetail_factor kept, added, made;
};

/* As TFLite Micro computes it. New states may lie where the old ones do. */
void dovetail_run_lstm(const struct dovetail_lstm *node, const int8_t *in, const int8_t *hidden, const int16_t *cell,
                       int8_t *out, int8_t *hidden_out, int16_t *cell_out);

/* Of its gates: int16 with 12 fraction bits, or in 2^power, to 15 fraction bits. */
int32_t dovetail_sigmoid(int32_t value);
int32_t dovetail_tanh(int32_t value, int32_t power);

/* A layer of filters, `rank` for each unit: `feature` [filters][inputs], `time` [filters][memory]. The state holds the
 * last results of each filter and has the element type of `time`, of `time_bytes`. */
struct dovetail_svdf {
    size_t batch, inputs, units, rank, memory;
    const int8_t *feature;
    const void *time;
    uint8_t time_bytes;
    const int32_t *bias;
    int32_t zero_in, zero_state, zero_out;
    struct dovetail_factor to_state, to_out;
};

/* As TFLite Micro computes it. The new state may lie where the old one does. */
void dovetail_run_svdf(const struct dovetail_svdf *node, const int8_t *in, const void *state, int8_t *out,
                       void *state_out);

/* --- conditions ------------------------------------------------------------------------------------------------- */

enum dovetail_comparison {
    DOVETAIL_EQUAL,
    DOVETAIL_LESS,
    DOVETAIL_LESS_OR_EQUAL,
    DOVETAIL_GREATER,
    DOVETAIL_GREATER_OR_EQUAL
};

enum dovetail_number { DOVETAIL_INT32, DOVETAIL_INT64, DOVETAIL_FLOAT32 };

/* Whether it is true, 1 or 0, of two numbers. */
void dovetail_compare(enum dovetail_comparison comparison, enum dovetail_number number,
                      const struct dovetail_pairs *pairs, const void *a, const void *b, uint8_t *out);

/* Elements of `in` where the condition is `wanted`, 1 or 0; elsewhere the result stays as it is. `pairs`: condition and
 * `in`. */
void dovetail_choose(const struct dovetail_pairs *pairs, int wanted, size_t item_bytes, const uint8_t *condition,
                     const void *in, void *out);

enum dovetail_float_operation { DOVETAIL_FLOAT_ADD, DOVETAIL_FLOAT_SUB, DOVETAIL_FLOAT_MUL, DOVETAIL_FLOAT_DIV };

void dovetail_float_pairs(enum dovetail_float_operation operation, const struct dovetail_pairs *pairs, const float *a,
                          const float *b, float *out);

#ifdef __cplusplus
}
#endif

#endif
