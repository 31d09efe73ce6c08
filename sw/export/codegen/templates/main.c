/* Runs @@network on a file of inputs, on any host with files and a console. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "dovetail_host.h"
#include "@@{prefix}.h"

static const char USAGE[] =
    "usage: @@prefix WEIGHTS INPUT OUTPUT [WHERE]\n"
    "  WEIGHTS  @@{prefix}_weights.bin, or - where the weights are linked in\n"
    "  INPUT    the inputs of an inference, one behind the other; then perhaps those of more inferences\n"
    "  OUTPUT   file for the outputs, likewise\n"
    "  WHERE    the accelerator, as this host names it\n";

@@arrays
static uint64_t scratch[@@{macro}_SCRATCH_BYTES / 8 + 1];

static int fail(const char *what, const char *why)
{
    fprintf(stderr, "%s: %s\n", what, why);
    return 1;
}

/* The next inference's inputs: 1, 0 at the end of the file, -1 in the middle. */
static int read_inputs(FILE *file)
{
    size_t bytes = 0;
@@reads
    return bytes == @@{macro}_INPUT_BYTES ? 1 : bytes ? -1 : 0;
}

static int write_outputs(FILE *file)
{
    size_t bytes = 0;
@@writes
    return bytes == @@{macro}_OUTPUT_BYTES;
}

static int run_all(struct @@{prefix} *inference, FILE *input, FILE *output)
{
    const struct @@{prefix}_inputs inputs = {@@input_names};
    const struct @@{prefix}_outputs outputs = {@@output_names};
    int more;
    while ((more = read_inputs(input)) > 0) {
        const int status = @@{prefix}_run(inference, &inputs, &outputs);
        if (status == DOVETAIL_ERROR_FAULT)
            return fail("accelerator", dovetail_cause_text(inference->result.cause));
        if (status)
            return fail("inference", @@{prefix}_status_text(status));
        if (!write_outputs(output))
            return fail("output", "must be written, not fail");
        printf("cycles %" PRIu64 "\n", inference->cycles);
    }
    return more ? fail("input", "must be whole inferences") : 0;
}

static int run_files(const struct dovetail_host *host, const void *weights, size_t bytes, char **names)
{
    static struct @@{prefix} inference;
    FILE *input, *output;
    int code = @@{prefix}_init(&inference, &host->platform, &host->memory, scratch, sizeof scratch, weights, bytes);
    if (code)
        return fail("inference", @@{prefix}_status_text(code));
    if (host->clock_hz)
        inference.timeout = dovetail_microseconds(@@{macro}_SEGMENT_CYCLES, host->clock_hz);
    input = fopen(names[0], "rb");
    output = fopen(names[1], "wb");
    if (!input || !output)
        code = fail(input ? names[1] : names[0], "must be a file that can be opened");
    else
        code = run_all(&inference, input, output);
    if (input)
        fclose(input);
    if (output && fclose(output))
        code = fail(names[1], "must be written, not fail");
    return code;
}

int main(int argc, char **argv)
{
    static uint8_t file[@@{macro}_WEIGHTS_BYTES + 1];
    const void *weights = file;
    size_t bytes = 0;
    struct dovetail_host host;
    FILE *stream;
    int code;
    if (argc < 4 || argc > 5) {
        fputs(USAGE, stderr);
        return 2;
    }
#ifdef @@{macro}_EMBEDDED
    weights = @@{prefix}_weights;
    bytes = sizeof @@{prefix}_weights;
#endif
    stream = bytes ? NULL : fopen(argv[1], "rb");
    if (stream) {
        bytes = fread(file, 1, sizeof file, stream);
        fclose(stream);
    } else if (!bytes)
        return fail(argv[1], "must be a file that can be opened");
    if (dovetail_host_open(&host, argc > 4 ? argv[4] : NULL, @@{macro}_MEMORY_BYTES))
        return 1;
    code = run_files(&host, weights, bytes, argv + 2);
    return dovetail_host_close(&host) ? 1 : code;
}
