/* Program files (.dvt) for the Dovetail driver: what they hold, how it gets into memory, and how it runs.
 *
 * A file is used where it lies; nothing is copied out of it but the images that go to shared memory. Every function
 * leaves the caches clean: what it writes it flushes, what it reads it has invalidated. Programs whose networks have
 * steps on the host are for `dovetail codegen`; their segments can be run one by one with dovetail_run().
 *
 *     dovetail_program_open(&program, file, bytes);
 *     dovetail_open(&device, &platform, program.config_hash);
 *     dovetail_program_load(&device, &memory, &program);
 *     dovetail_program_input(&program, 0, &tensor);
 *     dovetail_tensor_write(&device, &memory, &tensor, pixels);
 *     dovetail_program_run(&device, &memory, &program, timeout, &result);
 *     dovetail_program_output(&program, 0, &tensor);
 *     dovetail_tensor_read(&device, &memory, &tensor, scores);
 */
#ifndef DOVETAIL_PROGRAM_H
#define DOVETAIL_PROGRAM_H

#include "dovetail.h"
#include "dovetail_json.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Bytes that go to `offset` of shared memory before the first run. */
struct dovetail_image {
    const uint8_t *data;
    size_t bytes;
    uint32_t offset;
};

/* A program file; it points into the file's bytes. */
struct dovetail_program {
    uint64_t config_hash;
    uint32_t memory_bytes; /* shared memory that it needs */
    uint32_t segment_count, input_count, output_count;
    uint32_t host_steps; /* parts of the network that the accelerator does not run */
    struct dovetail_image stream, constants;
    struct dovetail_text segments, inputs, outputs; /* arrays of the header */
    uint32_t run_input_count, parameter_count;
    struct dovetail_text run_inputs, formulas; /* of its parameters */
};

/* A part of a program that the accelerator runs by itself: dovetail_run(..., address, pages, ...). */
struct dovetail_segment {
    uint32_t address; /* offset of its first page in shared memory */
    uint32_t pages;
    uint64_t bound; /* cycles that no run of it exceeds, where memory is as fast as the configuration says */
};

/* An input or output: `bytes` bytes in runs of `run` bytes that begin `step` bytes apart, the first at `offset` of
 * shared memory; a dense tensor is one run. Elements are those of the network as compiled, little-endian. */
struct dovetail_tensor {
    struct dovetail_text name;
    uint32_t offset;
    size_t bytes, run, step;
};

/* A whole number that each run is given, such as a position: `low` to `high`. */
struct dovetail_run_input {
    struct dovetail_text name;
    uint32_t low, high;
};

/* Look at a program file in memory and check its CRC. `data` must stay where it is as long as the program is used.
 * ERROR_FILE, ERROR_CRC, ERROR_FORMAT. */
int dovetail_program_open(struct dovetail_program *program, const void *data, size_t bytes);

/* Segment, input or output number `index`, from 0 on.
 * ERROR_INDEX, ERROR_FORMAT; ERROR_HOST for a tensor that the accelerator does not see. */
int dovetail_program_segment(const struct dovetail_program *program, uint32_t index, struct dovetail_segment *segment);
int dovetail_program_input(const struct dovetail_program *program, uint32_t index, struct dovetail_tensor *tensor);
int dovetail_program_output(const struct dovetail_program *program, uint32_t index, struct dovetail_tensor *tensor);

/* Run input number `index`, from 0 on.
 * ERROR_INDEX, ERROR_FORMAT. */
int dovetail_program_run_input(const struct dovetail_program *program, uint32_t index,
                               struct dovetail_run_input *input);

/* Set the program's parameters for the runs to come, from a value for each run input, in order.
 * ERROR_RANGE, ERROR_FORMAT; ERROR_BUSY. */
int dovetail_program_set(struct dovetail *device, const struct dovetail_program *program, const uint32_t *values);

/* Put instructions and constants into shared memory; they stay there from run to run.
 * ERROR_CONFIG (not the configuration that the device was opened for), ERROR_MEMORY. */
int dovetail_program_load(const struct dovetail *device, const struct dovetail_memory *memory,
                          const struct dovetail_program *program);

/* Copy a tensor's bytes into shared memory (before every run: tensors share their places), or out of it after one.
 * ERROR_MEMORY. */
int dovetail_tensor_write(const struct dovetail *device, const struct dovetail_memory *memory,
                          const struct dovetail_tensor *tensor, const void *data);
int dovetail_tensor_read(const struct dovetail *device, const struct dovetail_memory *memory,
                         const struct dovetail_tensor *tensor, void *data);

/* Run all segments, one after the other, each within `timeout` microseconds. `result` (may be NULL) receives the sums
 * of cycles and counters, and the last segment's cause and fault_pc.
 * ERROR_HOST if the network has steps on the host; ERROR_PARAMETERS if it has parameters and the last
 * dovetail_program_set() was not for it; all errors of dovetail_start() and dovetail_wait(). */
int dovetail_program_run(struct dovetail *device, const struct dovetail_memory *memory,
                         const struct dovetail_program *program, uint64_t timeout, struct dovetail_result *result);

#ifdef __cplusplus
}
#endif

#endif
