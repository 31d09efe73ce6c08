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
