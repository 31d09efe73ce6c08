#include <string.h>

#include "dovetail_kernels.h"

/* TFLite's sigmoid at i / 24, 16 fraction bits. */
static const int32_t SIGMOID[257] = {
    32768, 33451, 34133, 34813, 35493, 36169, 36843, 37513, 38180, 38841, 39498, 40149, 40794, 41432, 42064, 42688,
    43304, 43912, 44511, 45102, 45683, 46255, 46817, 47369, 47911, 48443, 48964, 49475, 49975, 50464, 50942, 51409,
    51865, 52311, 52745, 53169, 53581, 53983, 54374, 54755, 55125, 55485, 55834, 56174, 56503, 56823, 57133, 57433,
    57724, 58007, 58280, 58544, 58800, 59048, 59288, 59519, 59743, 59959, 60168, 60370, 60565, 60753, 60935, 61110,
    61279, 61441, 61599, 61750, 61896, 62036, 62172, 62302, 62428, 62549, 62666, 62778, 62886, 62990, 63090, 63186,
    63279, 63368, 63454, 63536, 63615, 63691, 63765, 63835, 63903, 63968, 64030, 64090, 64148, 64204, 64257, 64308,
    64357, 64405, 64450, 64494, 64536, 64576, 64614, 64652, 64687, 64721, 64754, 64786, 64816, 64845, 64873, 64900,
    64926, 64950, 64974, 64997, 65019, 65039, 65060, 65079, 65097, 65115, 65132, 65149, 65164, 65179, 65194, 65208,
    65221, 65234, 65246, 65258, 65269, 65280, 65291, 65301, 65310, 65319, 65328, 65337, 65345, 65352, 65360, 65367,
    65374, 65381, 65387, 65393, 65399, 65404, 65410, 65415, 65420, 65425, 65429, 65433, 65438, 65442, 65445, 65449,
    65453, 65456, 65459, 65462, 65465, 65468, 65471, 65474, 65476, 65479, 65481, 65483, 65485, 65488, 65489, 65491,
    65493, 65495, 65497, 65498, 65500, 65501, 65503, 65504, 65505, 65507, 65508, 65509, 65510, 65511, 65512, 65513,
    65514, 65515, 65516, 65517, 65517, 65518, 65519, 65520, 65520, 65521, 65522, 65522, 65523, 65523, 65524, 65524,
    65525, 65525, 65526, 65526, 65526, 65527, 65527, 65528, 65528, 65528, 65529, 65529, 65529, 65529, 65530, 65530,
    65530, 65530, 65531, 65531, 65531, 65531, 65531, 65532, 65532, 65532, 65532, 65532, 65532, 65533, 65533, 65533,
    65533, 65533, 65533, 65533, 65533, 65534, 65534, 65534, 65534, 65534, 65534, 65534, 65534, 65534, 65534, 65535,
    65534,
};

/* Arithmetic shift to the right. */
static int64_t shifted(int64_t value, int32_t bits)
{
    return value < 0 ? ~(~value >> bits) : value >> bits;
}

static int64_t magnitude_of(int64_t value)
{
    return value < 0 ? -value : value;
}

/* The sigmoid at magnitude / (24 * 2^bits), 16 + bits fraction bits; `most` from entry 255 on. */
static int64_t interpolated(int64_t magnitude, int32_t bits, int64_t most)
{
    int64_t place = magnitude >> bits, below = (int64_t)1 << bits;
    if (place >= 255)
        return most * below;
    return SIGMOID[place] * below + (magnitude & (below - 1)) * (SIGMOID[place + 1] - SIGMOID[place]);
}

int32_t dovetail_sigmoid(int32_t value)
{
    int64_t scaled = (int64_t)value * 3, above = interpolated(magnitude_of(scaled), 9, 0x7fff * 2);
    int64_t result = scaled >= 0 ? above + (1 << 9) : (1 << 25) - above + (1 << 9) - 1;
    return (int32_t)shifted(result, 10);
}

int32_t dovetail_tanh(int32_t value, int32_t power)
{
    int32_t left = 12 + power;
    int64_t scaled = (int64_t)value * 3;
    scaled = left >= 0 ? scaled * ((int64_t)1 << left) : shifted(scaled + ((int64_t)1 << (-left - 1)), -left);
    int64_t above = interpolated(magnitude_of(scaled), 8, 0xffff);
    int64_t result = scaled >= 0 ? above - (1 << 23) + (1 << 7) : -above + (1 << 23) + (1 << 7) - 1;
    return (int32_t)shifted(result, 8);
}

static int32_t times(const struct dovetail_factor *factor, int32_t value, int32_t bits)
{
    int64_t scaled = dovetail_scale(value, factor->mult, factor->shift, DOVETAIL_ROUND_TFLITE);
    return dovetail_clamp(scaled, -(1 << (bits - 1)), (1 << (bits - 1)) - 1);
}

/* The product of two rows less a zero point of the first one, and what is added, modulo 2^32. */
static int32_t product(const int8_t *a, int32_t zero, const int8_t *b, size_t count, int32_t bias)
{
    uint32_t sum = (uint32_t)bias;
    for (size_t i = 0; i < count; i++)
        sum += (uint32_t)((a[i] - zero) * b[i]);
    return dovetail_wrap(sum);
}

/* A gate before its function: 12 fraction bits. */
static int32_t gate_of(const struct dovetail_lstm *node, const struct dovetail_gate *gate, size_t unit,
                       const int8_t *in, const int8_t *hidden)
{
    int32_t of_input = product(in, node->zero_in, gate->weights + unit * node->inputs, node->inputs, gate->bias[unit]);
    int32_t of_state = product(hidden, node->zero_hidden, gate->recurrent + unit * node->units, node->units, 0);
    return dovetail_clamp((int64_t)times(&gate->scale, of_input, 16) + times(&gate->recurrent_scale, of_state, 16),
                          INT16_MIN, INT16_MAX);
}

static void run_step(const struct dovetail_lstm *node, const int8_t *in, const int8_t *hidden, int16_t *cell,
                     int8_t *out)
{
    for (size_t unit = 0; unit < node->units; unit++) {
        int32_t enter = dovetail_sigmoid(gate_of(node, &node->enter, unit, in, hidden));
        int32_t forget = dovetail_sigmoid(gate_of(node, &node->forget, unit, in, hidden));
        int32_t candidate = dovetail_tanh(gate_of(node, &node->candidate, unit, in, hidden), -12);
        int32_t open = dovetail_sigmoid(gate_of(node, &node->open, unit, in, hidden));
        int32_t sum = times(&node->kept, forget * cell[unit], 16) + times(&node->added, enter * candidate, 16);
        cell[unit] = (int16_t)dovetail_clamp(sum, node->low, node->high);
        int64_t made = dovetail_scale(dovetail_tanh(cell[unit], node->power) * open, node->made.mult,
                                      node->made.shift, DOVETAIL_ROUND_TFLITE);
        out[unit] = (int8_t)dovetail_clamp(made + node->zero_hidden, INT8_MIN, INT8_MAX);
    }
}

void dovetail_run_lstm(const struct dovetail_lstm *node, const int8_t *in, const int8_t *hidden, const int16_t *cell,
                       int8_t *out, int8_t *hidden_out, int16_t *cell_out)
{
    memmove(cell_out, cell, node->batch * node->units * sizeof *cell);
    for (size_t b = 0; b < node->batch; b++) {
        const int8_t *before = hidden + b * node->units;
        for (size_t step = 0; step < node->steps; step++) {
            size_t row = node->time_major ? step * node->batch + b : b * node->steps + step;
            run_step(node, in + row * node->inputs, before, cell_out + b * node->units, out + row * node->units);
            before = out + row * node->units;
        }
        memmove(hidden_out + b * node->units, before, node->units);
    }
}

static int32_t item(const void *values, size_t i, uint8_t bytes)
{
    return bytes == 1 ? ((const int8_t *)values)[i] : ((const int16_t *)values)[i];
}

/* The newest result of a filter: with a zero point it wraps around. */
static void set_item(void *values, size_t i, uint8_t bytes, int32_t value)
{
    uint32_t low = (uint32_t)value << (32 - 8 * bytes);
    int32_t wrapped = (int32_t)shifted(dovetail_wrap(low), 32 - 8 * bytes);
    if (bytes == 1)
        ((int8_t *)values)[i] = (int8_t)wrapped;
    else
        ((int16_t *)values)[i] = (int16_t)wrapped;
}

/* A filter over the input and over its last results, which move on by one. */
static uint32_t run_filter(const struct dovetail_svdf *node, size_t filter, const int8_t *in, const uint8_t *state,
                           uint8_t *state_out)
{
    const uint8_t bytes = node->time_bytes;
    const size_t first = filter * node->memory, last = node->memory - 1;
    int32_t sum = product(in, node->zero_in, node->feature + filter * node->inputs, node->inputs, 0);
    uint32_t total = 0;
    memmove(state_out, state + bytes, last * bytes);
    set_item(state_out, last, bytes, times(&node->to_state, sum, 8 * bytes) + node->zero_state);
    for (size_t i = 0; i <= last; i++) {
        int64_t held = item(state_out, i, bytes) - node->zero_state;
        total += (uint32_t)(held * item(node->time, first + i, bytes));
    }
    return total;
}

void dovetail_run_svdf(const struct dovetail_svdf *node, const int8_t *in, const void *state, int8_t *out,
                       void *state_out)
{
    const size_t held = node->memory * node->time_bytes;
    const uint8_t *from = state;
    uint8_t *to = state_out;
    for (size_t b = 0; b < node->batch; b++, in += node->inputs)
        for (size_t unit = 0; unit < node->units; unit++) {
            uint32_t total = (uint32_t)node->bias[unit];
            for (size_t i = 0; i < node->rank; i++, from += held, to += held)
                total += run_filter(node, unit * node->rank + i, in, from, to);
            int64_t made = dovetail_scale(dovetail_wrap(total), node->to_out.mult, node->to_out.shift,
                                          DOVETAIL_ROUND_TFLITE);
            *out++ = (int8_t)dovetail_clamp(made + node->zero_out, INT8_MIN, INT8_MAX);
        }
}
