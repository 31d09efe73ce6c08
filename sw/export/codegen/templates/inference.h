/* @@network, for configuration @@hash; made by dovetail @@version.
 *
 *     struct @@{prefix} inference;
 *     int status = @@{prefix}_init(&inference, &platform, &memory, scratch, sizeof scratch, weights, weights_bytes);
 *     if (!status) status = @@{prefix}_run(&inference, &inputs, &outputs);
 *     if (status) puts(@@{prefix}_status_text(status));
 *
 * Nothing is allocated: the caller brings shared memory, scratch memory, inputs and outputs.
 */
#ifndef @@{macro}_H
#define @@{macro}_H

#include <stddef.h>
#include <stdint.h>

#include "dovetail.h"

#ifdef __cplusplus
extern "C" {
#endif

#define @@{macro}_CONFIG_HASH @@{hash}ull
#define @@{macro}_MEMORY_BYTES @@{memory_bytes}u /* memory that host and accelerator share, from an address of 4 KiB on */
#define @@{macro}_SCRATCH_BYTES @@{scratch_bytes}u /* memory of the host's own, from an address of @@{align} on@@{scratch_note} */
#define @@{macro}_WEIGHTS_BYTES @@{weights_bytes}u /* @@{prefix}_weights.bin */
#define @@{macro}_CYCLES @@{cycles}ull /* of the accelerator, where memory is as fast as the configuration says */
#define @@{macro}_SEGMENT_CYCLES @@{bound}ull /* that no segment exceeds then, for time limits */
@@embedded
/* Arrays are dense and in the order of the network's file; a real number is SCALE * (element - ZERO_POINT). */
@@ports
struct @@{prefix}_inputs {
@@inputs};

struct @@{prefix}_outputs {
@@outputs};

/* What the functions answer beside the codes of dovetail.h and dovetail_weights.h; @@{prefix}_status_text() says all of
 * them in words. */
enum @@{prefix}_status {
    @@{macro}_ERROR_MEMORY = -64, /* shared memory has less than @@{macro}_MEMORY_BYTES */
    @@{macro}_ERROR_SCRATCH = -65 /* scratch memory has less than @@{macro}_SCRATCH_BYTES, or is not aligned */
};

/* A network that is loaded. `timeout`: microseconds that a segment may take; @@{prefix}_init() sets DOVETAIL_FOREVER.
 * `cycles`: of the accelerator in the last inference; `result`: of the segment that ran last. */
struct @@{prefix} {
    struct dovetail device;
    struct dovetail_memory memory;
    uint8_t *scratch;
    uint64_t timeout;
    uint64_t cycles;
    struct dovetail_result result;
@@keeps};

/* Look for the accelerator, check it, the memory and the weights file, and fill shared memory. Everything stays the
 * caller's; the weights file is not needed afterwards. */
int @@{prefix}_init(struct @@{prefix} *inference, const struct dovetail_platform *platform,
                   const struct dovetail_memory *memory, void *scratch, size_t scratch_bytes, const void *weights,
                   size_t weights_bytes);

@@kept/* One inference. May be called again and again. */
int @@{prefix}_run(struct @@{prefix} *inference, const struct @@{prefix}_inputs *inputs,
                  const struct @@{prefix}_outputs *outputs);

/* A line that says what a status means. Never NULL. */
const char *@@{prefix}_status_text(int status);

#ifdef __cplusplus
}
#endif

#endif
