/* @@network, for configuration @@hash; made by dovetail @@version.
 *
 *     struct inference inference;
 *     int status = inference_init(&inference, &platform, &memory, scratch, sizeof scratch, weights, weights_bytes);
 *     if (!status) status = inference_run(&inference, &inputs, &outputs);
 *     if (status) puts(inference_status_text(status));
 *
 * Nothing is allocated: the caller brings shared memory, scratch memory, inputs and outputs.
 */
#ifndef INFERENCE_H
#define INFERENCE_H

#include <stddef.h>
#include <stdint.h>

#include "dovetail.h"

#ifdef __cplusplus
extern "C" {
#endif

#define INFERENCE_CONFIG_HASH @@{hash}ull
#define INFERENCE_MEMORY_BYTES @@{memory_bytes}u /* memory that host and accelerator share, from an address of 4 KiB on */
#define INFERENCE_SCRATCH_BYTES @@{scratch_bytes}u /* memory of the host's own, from an address of @@{align} on */
#define INFERENCE_WEIGHTS_BYTES @@{weights_bytes}u /* weights.bin */
#define INFERENCE_CYCLES @@{cycles}ull /* of the accelerator, where memory is as fast as the configuration says */
#define INFERENCE_SEGMENT_CYCLES @@{bound}ull /* that no segment exceeds then, for time limits */
@@embedded
/* Arrays are dense and in the order of the network's file; a real number is SCALE * (element - ZERO_POINT). */
@@ports
struct inference_inputs {
@@inputs};

struct inference_outputs {
@@outputs};

/* What the functions answer beside the codes of dovetail.h and dovetail_weights.h; inference_status_text() says all of
 * them in words. */
enum inference_status {
    INFERENCE_ERROR_MEMORY = -64, /* shared memory has less than INFERENCE_MEMORY_BYTES */
    INFERENCE_ERROR_SCRATCH = -65 /* scratch memory has less than INFERENCE_SCRATCH_BYTES, or is not aligned */
};

/* A network that is loaded. `timeout`: microseconds that a segment may take; inference_init() sets DOVETAIL_FOREVER.
 * `cycles`: of the accelerator in the last inference; `result`: of the segment that ran last. */
struct inference {
    struct dovetail device;
    struct dovetail_memory memory;
    uint8_t *scratch;
    uint64_t timeout;
    uint64_t cycles;
    struct dovetail_result result;
};

/* Look for the accelerator, check it, the memory and the weights file, and fill shared memory. Everything stays the
 * caller's; the weights file is not needed afterwards. */
int inference_init(struct inference *inference, const struct dovetail_platform *platform,
                   const struct dovetail_memory *memory, void *scratch, size_t scratch_bytes, const void *weights,
                   size_t weights_bytes);

/* One inference. May be called again and again. */
int inference_run(struct inference *inference, const struct inference_inputs *inputs,
                  const struct inference_outputs *outputs);

/* A line that says what a status means. Never NULL. */
const char *inference_status_text(int status);

#ifdef __cplusplus
}
#endif

#endif
