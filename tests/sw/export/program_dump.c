/* Reads program files, each behind its size (8 bytes, little-endian), and shows what the driver makes of them. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "dovetail_program.h"

static void show(struct dovetail_tensor *tensor, int status)
{
    printf("tensor %d", status);
    if (!status)
        printf(" %.*s %" PRIu32 " %zu %zu %zu", (int)tensor->name.bytes, tensor->name.data, tensor->offset, tensor->bytes,
               tensor->run, tensor->step);
    putchar('\n');
}

static uint32_t never_busy(void *context, uint32_t offset)
{
    (void)context;
    (void)offset;
    return 0;
}

static void show_write(void *context, uint32_t offset, uint32_t value)
{
    (void)context;
    printf("write %#" PRIx32 " %" PRIu32 "\n", offset, value);
}

/* Its run inputs, and what the parameters are for the least and the greatest of each, and beyond. */
static void show_parameters(const struct dovetail_program *program)
{
    const struct dovetail_platform platform = {NULL, never_busy, show_write, NULL, NULL, NULL, NULL, NULL};
    struct dovetail device = {platform, 0, NULL};
    struct dovetail_run_input input;
    uint32_t *values = calloc(program->run_input_count + 1, sizeof *values);
    uint32_t i;
    int round;
    for (round = 0; values && round < 3; ++round) {
        for (i = 0; i < program->run_input_count; ++i) {
            const int status = dovetail_program_run_input(program, i, &input);
            if (!round) {
                printf("input %d", status);
                if (!status)
                    printf(" %.*s %" PRIu32 " %" PRIu32, (int)input.name.bytes, input.name.data, input.low, input.high);
                putchar('\n');
            }
            values[i] = status ? 0 : round ? input.high + (round == 2) : input.low;
        }
        if (program->parameter_count) {
            printf("set %d\n", dovetail_program_set(&device, program, values));
            printf("run %d\n", device.parameters == program->stream.data);
        }
    }
    free(values);
}

static void dump(const uint8_t *file, size_t bytes)
{
    struct dovetail_program program;
    struct dovetail_segment segment;
    struct dovetail_tensor tensor;
    uint32_t i;
    int status = dovetail_program_open(&program, file, bytes);
    printf("file %d\n", status);
    if (status)
        return;
    printf("program %016" PRIx64 " %" PRIu32 " %" PRIu32 "\n", program.config_hash, program.memory_bytes,
           program.host_steps);
    printf("image %" PRIu32 " %zu %td\n", program.stream.offset, program.stream.bytes, program.stream.data - file);
    printf("image %" PRIu32 " %zu %td\n", program.constants.offset, program.constants.bytes,
           program.constants.data - file);
    for (i = 0; i < program.segment_count; ++i) {
        status = dovetail_program_segment(&program, i, &segment);
        printf("segment %d", status);
        if (!status)
            printf(" %" PRIu32 " %" PRIu32 " %" PRIu64, segment.address, segment.pages, segment.bound);
        putchar('\n');
    }
    for (i = 0; i < program.input_count; ++i)
        show(&tensor, dovetail_program_input(&program, i, &tensor));
    for (i = 0; i <= program.output_count; ++i)
        show(&tensor, dovetail_program_output(&program, i, &tensor));
    show_parameters(&program);
}

int main(void)
{
    uint8_t size[8];
    while (fread(size, 1, sizeof size, stdin) == sizeof size) {
        size_t bytes = 0, i;
        uint8_t *file;
        for (i = sizeof size; i-- > 0;)
            bytes = bytes << 8 | size[i];
        file = malloc(bytes ? bytes : 1);
        if (!file || fread(file, 1, bytes, stdin) != bytes)
            return 1;
        dump(file, bytes);
        free(file);
    }
    return 0;
}
