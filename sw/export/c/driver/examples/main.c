/* Runs a program file on the accelerator, on any host with files and a console; see USAGE. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "network.h"

static const char USAGE[] =
    "usage: dovetail_run [-w WHERE] [-n RUNS] [-t MICROSECONDS] [-o OUTPUT] [-e EXPECTED] PROGRAM.dvt INPUT\n"
    "  INPUT     bytes of the network's inputs, one behind the other, as the program has them\n"
    "  WHERE     the accelerator, as this host names it\n"
    "  RUNS      inferences to run, all of the same input (1)\n"
    "  OUTPUT    file for the bytes of the last run's outputs\n"
    "  EXPECTED  file that the outputs of every run must equal; the exit code is 1 if they do not\n";

enum { EQUAL = 0, DIFFERENT = 1, FAILED = 2 };
enum { TIMEOUT = 10 * 1000 * 1000, SHOWN = 16 };

struct options {
    const char *program, *input, *where, *output, *expected;
    unsigned long runs;
    uint64_t timeout; /* 0: from the program's bound */
};

struct file {
    uint8_t *data;
    size_t bytes;
};

/* --- command line and files -------------------------------------------------------------------------------------- */

static int parse(int argc, char **argv, struct options *options)
{
    const struct options defaults = {NULL, NULL, NULL, NULL, NULL, 1, 0};
    int i;
    *options = defaults;
    for (i = 1; i + 1 < argc && argv[i][0] == '-' && argv[i][1] && !argv[i][2]; i += 2) {
        const char *value = argv[i + 1];
        switch (argv[i][1]) {
        case 'w': options->where = value; break;
        case 'n': options->runs = strtoul(value, NULL, 10); break;
        case 't': options->timeout = strtoul(value, NULL, 10); break;
        case 'o': options->output = value; break;
        case 'e': options->expected = value; break;
        default: return 0;
        }
    }
    if (i + 2 != argc)
        return 0;
    options->program = argv[i];
    options->input = argv[i + 1];
    return options->runs > 0;
}

static int fail(const char *what, const char *why)
{
    fprintf(stderr, "%s: %s\n", what, why);
    return FAILED;
}

/* The bytes of a file, to be freed; no data if it cannot be read. */
static struct file read_file(const char *path)
{
    struct file file = {NULL, 0};
    FILE *stream = fopen(path, "rb");
    long size;
    if (!stream)
        return file;
    if (!fseek(stream, 0, SEEK_END) && (size = ftell(stream)) >= 0 && !fseek(stream, 0, SEEK_SET)) {
        file.bytes = (size_t)size;
        file.data = malloc(file.bytes ? file.bytes : 1);
        if (file.data && fread(file.data, 1, file.bytes, stream) != file.bytes) {
            free(file.data);
            file.data = NULL;
        }
    }
    fclose(stream);
    return file;
}

static int write_file(const char *path, const uint8_t *data, size_t bytes)
{
    FILE *stream = fopen(path, "wb");
    const int written = stream && fwrite(data, 1, bytes, stream) == bytes;
    return stream && !fclose(stream) && written;
}

/* --- report ------------------------------------------------------------------------------------------------------ */

static void print_result(const struct dovetail_result *result)
{
    printf("cycles %" PRIu64 "\n", result->cycles);
#define ROW(unit)                                                                                                    \
    printf("%-6s busy %" PRIu32 " config %" PRIu32 " token %" PRIu32 " idle %" PRIu32 "\n", #unit,                   \
           result->stalls[DOVETAIL_UNIT_##unit].busy, result->stalls[DOVETAIL_UNIT_##unit].config,                   \
           result->stalls[DOVETAIL_UNIT_##unit].token, result->stalls[DOVETAIL_UNIT_##unit].idle);
    DOVETAIL_UNITS(ROW)
#undef ROW
}

static void print_outputs(const struct network *network, const uint8_t *outputs)
{
    struct dovetail_tensor tensor;
    uint32_t i;
    size_t n;
    for (i = 0; !dovetail_program_output(&network->program, i, &tensor); ++i, outputs += tensor.bytes) {
        printf("output %.*s, %zu bytes:", (int)tensor.name.bytes, tensor.name.data, tensor.bytes);
        for (n = 0; n < tensor.bytes && n < SHOWN; ++n)
            printf(" %02x", outputs[n]);
        puts(n < tensor.bytes ? " ..." : "");
    }
}

/* What went wrong, with what the registers say about it. */
static int explain(const struct network *network, int status, const struct dovetail_result *result)
{
    if (status == DOVETAIL_ERROR_FAULT)
        fprintf(stderr, "fault %" PRIu32 " at word %" PRIu32 ": %s\n", result->cause, result->fault_pc,
                dovetail_cause_text(result->cause));
    if (status == DOVETAIL_ERROR_CONFIG)
        fprintf(stderr, "the accelerator's configuration is %016" PRIx64 ", the program's %016" PRIx64 "\n",
                dovetail_config_hash(&network->device), network->program.config_hash);
    return fail("accelerator", dovetail_status_text(status));
}

/* --- the run ----------------------------------------------------------------------------------------------------- */

static int run_all(struct network *network, const struct options *options, const struct dovetail_host *host,
                   const uint8_t *inputs, uint8_t *outputs, const struct file *expected)
{
    const uint64_t bound = dovetail_microseconds(network->bound, host->clock_hz);
    const uint64_t timeout = options->timeout ? options->timeout : host->clock_hz ? bound : TIMEOUT;
    struct dovetail_result result = {0, DOVETAIL_CAUSE_NONE, 0, {{0, 0, 0, 0}}};
    unsigned long run;
    int code = EQUAL, status = network_load(network, host);
    for (run = 0; run < options->runs && !status; ++run) {
        status = network_run(network, inputs, outputs, timeout, &result);
        if (!status)
            print_result(&result);
        if (!status && expected->data && memcmp(outputs, expected->data, network->output_bytes)) {
            fprintf(stderr, "run %lu: outputs differ from %s\n", run + 1, options->expected);
            code = DIFFERENT;
        }
    }
    if (status)
        return explain(network, status, &result);
    print_outputs(network, outputs);
    return code;
}

static int run_files(const struct options *options, const struct file *program, const struct file *input,
                     const struct file *expected)
{
    struct network network;
    struct dovetail_host host;
    uint8_t *outputs;
    int code, status = network_read(&network, program->data, program->bytes);
    if (status)
        return fail(options->program, dovetail_status_text(status));
    if (input->bytes != network.input_bytes) {
        fprintf(stderr, "%s: must be %zu bytes, not %zu\n", options->input, network.input_bytes, input->bytes);
        return FAILED;
    }
    if (expected->data && expected->bytes != network.output_bytes) {
        fprintf(stderr, "%s: must be %zu bytes, not %zu\n", options->expected, network.output_bytes, expected->bytes);
        return FAILED;
    }
    if (dovetail_host_open(&host, options->where, network.program.memory_bytes))
        return FAILED;
    outputs = malloc(network.output_bytes + 1);
    code = outputs ? run_all(&network, options, &host, input->data, outputs, expected) : fail("outputs", "no memory");
    if (code != FAILED && options->output && !write_file(options->output, outputs, network.output_bytes))
        code = fail(options->output, "cannot be written");
    free(outputs);
    return dovetail_host_close(&host) ? FAILED : code;
}

int main(int argc, char **argv)
{
    struct options options;
    struct file program, input, expected = {NULL, 0};
    int code;
    if (!parse(argc, argv, &options)) {
        fputs(USAGE, stderr);
        return FAILED;
    }
    program = read_file(options.program);
    input = read_file(options.input);
    if (options.expected)
        expected = read_file(options.expected);
    if (!program.data)
        code = fail(options.program, "cannot be read");
    else if (!input.data)
        code = fail(options.input, "cannot be read");
    else if (options.expected && !expected.data)
        code = fail(options.expected, "cannot be read");
    else
        code = run_files(&options, &program, &input, &expected);
    free(program.data);
    free(input.data);
    free(expected.data);
    return code;
}
