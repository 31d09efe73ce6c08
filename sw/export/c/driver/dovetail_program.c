/* See dovetail_program.h. The layout of the file is the one of isa/program.py. */
#include "dovetail_program.h"

/* Bytes of the fixed header, and where its fields are. */
enum { MAGIC = 0, VERSION = 8, JSON_BYTES = 12, CONFIG_HASH = 16, FILE_BYTES = 24, HEADER_BYTES = 32, CRC_BYTES = 4 };

static uint32_t word_at(const uint8_t *data)
{
    return data[0] | (uint32_t)data[1] << 8 | (uint32_t)data[2] << 16 | (uint32_t)data[3] << 24;
}

static uint64_t pair_at(const uint8_t *data)
{
    return word_at(data) | (uint64_t)word_at(data + 4) << 32;
}

/* CRC-32 of IEEE 802.3, half a byte at a time. */
static uint32_t crc32_of(const uint8_t *data, size_t bytes)
{
    static const uint32_t table[16] = {
        0x00000000u, 0x1db71064u, 0x3b6e20c8u, 0x26d930acu, 0x76dc4190u, 0x6b6b51f4u, 0x4db26158u, 0x5005713cu,
        0xedb88320u, 0xf00f9344u, 0xd6d6a3e8u, 0xcb61b38cu, 0x9b64c2b0u, 0x86d3d2d4u, 0xa00ae278u, 0xbdbdf21cu,
    };
    uint32_t crc = 0xffffffffu;
    size_t i;
    for (i = 0; i < bytes; ++i) {
        crc = crc >> 4 ^ table[(crc ^ data[i]) & 15u];
        crc = crc >> 4 ^ table[(crc ^ (uint32_t)(data[i] >> 4)) & 15u];
    }
    return ~crc;
}

static void copy(uint8_t *to, const uint8_t *from, size_t bytes)
{
    size_t i;
    for (i = 0; i < bytes; ++i)
        to[i] = from[i];
}

/* --- the file ---------------------------------------------------------------------------------------------------- */

/* Whether a value of an object is a whole number of 32 bits, and which. */
static int field(struct dovetail_text object, const char *name, uint32_t *value)
{
    return dovetail_json_word(dovetail_json_member(object, name), value);
}

/* An image of `left` bytes of sections at `data`, of which it takes its own: whether they are there. */
static int take_image(struct dovetail_text description, struct dovetail_image *image, const uint8_t **data,
                      size_t *left)
{
    uint64_t bytes;
    if (!field(description, "offset", &image->offset)
        || !dovetail_json_number(dovetail_json_member(description, "bytes"), *left, &bytes))
        return 0;
    image->data = *data;
    image->bytes = (size_t)bytes;
    *data += bytes;
    *left -= (size_t)bytes;
    return 1;
}

/* Steps without a segment and without a payload of their own are the host's. */
static uint32_t count_host_steps(struct dovetail_text steps)
{
    uint32_t count = 0;
    const char *at = steps.data;
    struct dovetail_text name, step;
    while (dovetail_json_next(&at, steps.data + steps.bytes, &name, &step)) {
        uint32_t segment, bytes;
        if (!field(step, "segment", &segment) && field(step, "bytes", &bytes) && !bytes)
            ++count;
    }
    return count;
}

int dovetail_program_open(struct dovetail_program *program, const void *data, size_t bytes)
{
    static const char magic[] = DOVETAIL_PROGRAM_MAGIC;
    const uint8_t *file = data;
    const uint8_t *sections;
    struct dovetail_text header, parameters;
    size_t i, left;
    if (bytes < HEADER_BYTES + CRC_BYTES)
        return DOVETAIL_ERROR_FILE;
    for (i = 0; magic[i]; ++i)
        if (file[MAGIC + i] != (uint8_t)magic[i])
            return DOVETAIL_ERROR_FILE;
    if (word_at(file + VERSION) != DOVETAIL_PROGRAM_VERSION)
        return DOVETAIL_ERROR_FORMAT;
    left = bytes - HEADER_BYTES - CRC_BYTES;
    if (pair_at(file + FILE_BYTES) != bytes || word_at(file + JSON_BYTES) > left)
        return DOVETAIL_ERROR_FILE;
    if (crc32_of(file, bytes - CRC_BYTES) != word_at(file + bytes - CRC_BYTES))
        return DOVETAIL_ERROR_CRC;

    header.data = (const char *)file + HEADER_BYTES;
    header.bytes = word_at(file + JSON_BYTES);
    sections = file + HEADER_BYTES + header.bytes;
    left -= header.bytes;
    program->config_hash = pair_at(file + CONFIG_HASH);
    program->segments = dovetail_json_member(header, "segments");
    program->inputs = dovetail_json_member(header, "inputs");
    program->outputs = dovetail_json_member(header, "outputs");
    program->segment_count = dovetail_json_length(program->segments);
    program->input_count = dovetail_json_length(program->inputs);
    program->output_count = dovetail_json_length(program->outputs);
    program->host_steps = count_host_steps(dovetail_json_member(header, "steps"));
    parameters = dovetail_json_member(header, "parameters");
    program->run_inputs = dovetail_json_member(parameters, "inputs");
    program->formulas = dovetail_json_member(parameters, "formulas");
    program->run_input_count = dovetail_json_length(program->run_inputs);
    program->parameter_count = dovetail_json_length(program->formulas);
    if (!field(header, "memory_bytes", &program->memory_bytes)
        || !take_image(dovetail_json_member(header, "stream"), &program->stream, &sections, &left)
        || !take_image(dovetail_json_member(header, "constants"), &program->constants, &sections, &left))
        return DOVETAIL_ERROR_FORMAT;
    return DOVETAIL_OK;
}

int dovetail_program_segment(const struct dovetail_program *program, uint32_t index, struct dovetail_segment *segment)
{
    const struct dovetail_text row = dovetail_json_element(program->segments, index);
    if (!row.bytes)
        return DOVETAIL_ERROR_INDEX;
    if (!field(row, "address", &segment->address) || !field(row, "pages", &segment->pages)
        || !dovetail_json_number(dovetail_json_member(row, "bound"), UINT64_MAX, &segment->bound))
        return DOVETAIL_ERROR_FORMAT;
    return DOVETAIL_OK;
}

/* Bytes of an element: the bits in the name of its type; a truth value is a byte. */
static uint32_t item_bytes(struct dovetail_text dtype)
{
    uint32_t bits = 0;
    size_t i;
    if (dovetail_json_is(dtype, "bool"))
        return 1;
    for (i = 0; i < dtype.bytes; ++i)
        if (dtype.data[i] >= '0' && dtype.data[i] <= '9')
            bits = bits * 10 + (uint32_t)(dtype.data[i] - '0');
    return bits / 8;
}

/* Runs of a tensor with strides: along its last axis, and one step apart along all others. */
static int find_runs(struct dovetail_text shape, struct dovetail_text strides, uint32_t item,
                     struct dovetail_tensor *tensor)
{
    const uint32_t axes = dovetail_json_length(shape);
    uint64_t expected = 0;
    uint32_t i;
    for (i = axes; i-- > 0;) {
        uint32_t size, stride;
        if (!dovetail_json_word(dovetail_json_element(shape, i), &size)
            || !dovetail_json_word(dovetail_json_element(strides, i), &stride))
            return 0;
        if (i == axes - 1) {
            if (stride != item)
                return 0;
            tensor->run = (size_t)size * item;
        } else if (i == axes - 2) {
            tensor->step = stride;
            expected = (uint64_t)stride * size;
        } else {
            if (stride != expected && size > 1)
                return 0;
            expected *= size;
        }
    }
    return axes >= 2;
}

static int find_tensor(struct dovetail_text tensors, uint32_t index, struct dovetail_tensor *tensor)
{
    const struct dovetail_text row = dovetail_json_element(tensors, index), shape = dovetail_json_member(row, "shape");
    const struct dovetail_text strides = dovetail_json_member(row, "strides");
    const uint32_t axes = dovetail_json_length(shape), item = item_bytes(dovetail_json_member(row, "dtype"));
    uint64_t bytes = item;
    uint32_t i, size;
    if (!row.bytes)
        return DOVETAIL_ERROR_INDEX;
    tensor->name = dovetail_json_member(row, "name");
    if (tensor->name.bytes < 2 || !item)
        return DOVETAIL_ERROR_FORMAT;
    ++tensor->name.data;
    tensor->name.bytes -= 2;
    if (!field(row, "offset", &tensor->offset))
        return DOVETAIL_ERROR_HOST;
    for (i = 0; i < axes; ++i) {
        if (!dovetail_json_word(dovetail_json_element(shape, i), &size) || bytes > UINT32_MAX)
            return DOVETAIL_ERROR_FORMAT;
        bytes *= size;
    }
    if (bytes > UINT32_MAX)
        return DOVETAIL_ERROR_FORMAT;
    tensor->bytes = tensor->run = tensor->step = (size_t)bytes;
    if (strides.data[0] == '[' && !find_runs(shape, strides, item, tensor))
        return DOVETAIL_ERROR_FORMAT;
    return DOVETAIL_OK;
}

int dovetail_program_input(const struct dovetail_program *program, uint32_t index, struct dovetail_tensor *tensor)
{
    return find_tensor(program->inputs, index, tensor);
}

int dovetail_program_output(const struct dovetail_program *program, uint32_t index, struct dovetail_tensor *tensor)
{
    return find_tensor(program->outputs, index, tensor);
}

/* --- parameters -------------------------------------------------------------------------------------------------- */

int dovetail_program_run_input(const struct dovetail_program *program, uint32_t index,
                               struct dovetail_run_input *input)
{
    const struct dovetail_text row = dovetail_json_element(program->run_inputs, index);
    if (!row.bytes)
        return DOVETAIL_ERROR_INDEX;
    input->name = dovetail_json_member(row, "name");
    if (input->name.bytes < 2 || !field(row, "low", &input->low) || !field(row, "high", &input->high))
        return DOVETAIL_ERROR_FORMAT;
    ++input->name.data;
    input->name.bytes -= 2;
    return DOVETAIL_OK;
}

/* The value of the run input that a term names: whether there is one. */
static int value_of(const struct dovetail_program *program, struct dovetail_text name, const uint32_t *values,
                    uint32_t *value)
{
    struct dovetail_run_input input;
    uint32_t index;
    for (index = 0; !dovetail_program_run_input(program, index, &input); ++index) {
        size_t i = 0;
        if (input.name.bytes + 2 != name.bytes)
            continue;
        while (i < input.name.bytes && input.name.data[i] == name.data[i + 1])
            ++i;
        if (i == input.name.bytes) {
            *value = values[index];
            return 1;
        }
    }
    return 0;
}

/* Adds a term of a formula, modulo 2^32, to `sum`: whether it is understood. */
static int add_term(const struct dovetail_program *program, struct dovetail_text term, const uint32_t *values,
                    uint32_t *sum)
{
    const struct dovetail_text rest = dovetail_json_member(term, "rest");
    uint32_t value, step, offset, divisor;
    uint64_t number;
    if (!value_of(program, dovetail_json_member(term, "input"), values, &value) || !field(term, "step", &step)
        || !field(term, "offset", &offset) || !field(term, "divisor", &divisor) || !divisor || !rest.bytes)
        return 0;
    number = (uint64_t)value + offset;
    if (rest.data[0] == 't')
        number = number ? (number - 1) % divisor + 1 : divisor;
    else
        number = (number + divisor - 1) / divisor;
    *sum += (uint32_t)(step * number);
    return 1;
}

int dovetail_program_set(struct dovetail *device, const struct dovetail_program *program, const uint32_t *values)
{
    uint32_t index;
    for (index = 0; index < program->run_input_count; ++index) {
        struct dovetail_run_input input;
        const int status = dovetail_program_run_input(program, index, &input);
        if (status)
            return status;
        if (values[index] < input.low || values[index] > input.high)
            return DOVETAIL_ERROR_RANGE;
    }
    for (index = 0; index < program->parameter_count; ++index) {
        const struct dovetail_text formula = dovetail_json_element(program->formulas, index);
        const struct dovetail_text terms = dovetail_json_member(formula, "terms");
        const uint32_t count = dovetail_json_length(terms);
        uint32_t value, term;
        int status;
        if (!field(formula, "base", &value))
            return DOVETAIL_ERROR_FORMAT;
        for (term = 0; term < count; ++term)
            if (!add_term(program, dovetail_json_element(terms, term), values, &value))
                return DOVETAIL_ERROR_FORMAT;
        status = dovetail_set_parameter(device, index + 1, value);
        if (status)
            return status;
    }
    device->parameters = program->stream.data;
    return DOVETAIL_OK;
}

/* --- memory and runs --------------------------------------------------------------------------------------------- */

static int load_image(const struct dovetail *device, const struct dovetail_memory *memory,
                      const struct dovetail_image *image)
{
    if (image->offset > memory->bytes || image->bytes > memory->bytes - image->offset)
        return DOVETAIL_ERROR_MEMORY;
    copy(memory->address + image->offset, image->data, image->bytes);
    return dovetail_flush(device, memory, image->offset, image->bytes);
}

int dovetail_program_load(const struct dovetail *device, const struct dovetail_memory *memory,
                          const struct dovetail_program *program)
{
    int status;
    if (program->config_hash != device->config_hash)
        return DOVETAIL_ERROR_CONFIG;
    if (program->memory_bytes > memory->bytes)
        return DOVETAIL_ERROR_MEMORY;
    status = load_image(device, memory, &program->stream);
    return status ? status : load_image(device, memory, &program->constants);
}

/* Bytes from a tensor's first to its last, gaps included; 0 if they are not in memory. */
static size_t span_in(const struct dovetail_memory *memory, const struct dovetail_tensor *tensor)
{
    const uint64_t runs = tensor->run ? tensor->bytes / tensor->run : 0;
    const uint64_t span = runs ? (runs - 1) * tensor->step + tensor->run : 0;
    return tensor->offset <= memory->bytes && span <= memory->bytes - tensor->offset ? (size_t)span : 0;
}

int dovetail_tensor_write(const struct dovetail *device, const struct dovetail_memory *memory,
                          const struct dovetail_tensor *tensor, const void *data)
{
    const size_t span = span_in(memory, tensor);
    const uint8_t *from = data;
    size_t done;
    uint8_t *to = memory->address + tensor->offset;
    if (!span)
        return DOVETAIL_ERROR_MEMORY;
    for (done = 0; done < tensor->bytes; done += tensor->run, to += tensor->step)
        copy(to, from + done, tensor->run);
    return dovetail_flush(device, memory, tensor->offset, span);
}

int dovetail_tensor_read(const struct dovetail *device, const struct dovetail_memory *memory,
                         const struct dovetail_tensor *tensor, void *data)
{
    const size_t span = span_in(memory, tensor);
    const uint8_t *from = memory->address + tensor->offset;
    uint8_t *to = data;
    size_t done;
    if (!span)
        return DOVETAIL_ERROR_MEMORY;
    (void)dovetail_invalidate(device, memory, tensor->offset, span);
    for (done = 0; done < tensor->bytes; done += tensor->run, from += tensor->step)
        copy(to + done, from, tensor->run);
    return DOVETAIL_OK;
}

static void add_result(struct dovetail_result *sum, const struct dovetail_result *more)
{
    uint32_t unit;
    sum->cycles += more->cycles;
    sum->cause = more->cause;
    sum->fault_pc = more->fault_pc;
    for (unit = 0; unit < DOVETAIL_UNIT_COUNT; ++unit) {
        sum->stalls[unit].busy += more->stalls[unit].busy;
        sum->stalls[unit].config += more->stalls[unit].config;
        sum->stalls[unit].token += more->stalls[unit].token;
        sum->stalls[unit].idle += more->stalls[unit].idle;
    }
}

int dovetail_program_run(struct dovetail *device, const struct dovetail_memory *memory,
                         const struct dovetail_program *program, uint64_t timeout, struct dovetail_result *result)
{
    const struct dovetail_result nothing = {0, DOVETAIL_CAUSE_NONE, 0, {{0, 0, 0, 0}}};
    struct dovetail_result sum = nothing;
    int status = program->host_steps ? DOVETAIL_ERROR_HOST : DOVETAIL_OK;
    uint32_t index;
    if (!status && program->parameter_count && device->parameters != program->stream.data)
        status = DOVETAIL_ERROR_PARAMETERS;
    for (index = 0; index < program->segment_count && !status; ++index) {
        struct dovetail_segment segment;
        struct dovetail_result one = nothing;
        status = dovetail_program_segment(program, index, &segment);
        if (!status)
            status = dovetail_start(device, memory, segment.address, segment.pages);
        if (!status)
            status = dovetail_wait(device, timeout, &one);
        add_result(&sum, &one);
    }
    if (result)
        *result = sum;
    return status;
}
