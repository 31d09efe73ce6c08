/* @@network, for configuration @@hash; made by dovetail @@version. */
#include "@@{prefix}.h"

#include <string.h>

#include "dovetail_kernels.h"
#include "dovetail_weights.h"
@@data
#define WEIGHTS_CRC @@{crc}u
#define MEMORY(offset) ((void *)(memory + (offset)))
#define SCRATCH(offset) ((void *)(scratch + (offset)))

/* Called before every step of an inference with its number, and with their count at the end. Define it to see how long
 * each takes. */
#ifndef @@{macro}_STEP
#define @@{macro}_STEP(number) ((void)0)
#endif
#define STEP(number) @@{macro}_STEP(number)

@@{reset}int @@{prefix}_init(struct @@{prefix} *inference, const struct dovetail_platform *platform,
                   const struct dovetail_memory *memory, void *scratch, size_t scratch_bytes, const void *weights,
                   size_t weights_bytes)
{
    const size_t needed = @@{macro}_SCRATCH_BYTES;
    int status;
    if (memory->bytes < @@{macro}_MEMORY_BYTES)
        return @@{macro}_ERROR_MEMORY;
    if (scratch_bytes < needed || (uintptr_t)scratch % @@align)
        return @@{macro}_ERROR_SCRATCH;
    inference->memory = *memory;
    inference->scratch = scratch;
    inference->timeout = DOVETAIL_FOREVER;
    inference->cycles = 0;
    status = dovetail_open(&inference->device, platform, @@{macro}_CONFIG_HASH);
    if (!status)
        status = dovetail_weights_load(weights, weights_bytes, @@{macro}_CONFIG_HASH, WEIGHTS_CRC, memory->address,
                                       memory->bytes);
    if (!status)
        status = dovetail_flush(&inference->device, memory, 0, @@{macro}_MEMORY_BYTES);
@@{start}    return status;
}
@@run_segment
int @@{prefix}_run(struct @@{prefix} *inference, const struct @@{prefix}_inputs *inputs,
                  const struct @@{prefix}_outputs *outputs)
{
@@statements
    return DOVETAIL_OK;
}

const char *@@{prefix}_status_text(int status)
{
    const char *text = dovetail_weights_status_text(status);
    if (status == @@{macro}_ERROR_MEMORY)
        return "shared memory must have @@{macro}_MEMORY_BYTES";
    if (status == @@{macro}_ERROR_SCRATCH)
        return "scratch memory must have @@{macro}_SCRATCH_BYTES and begin at a multiple of @@align";
    return text && status ? text : dovetail_status_text(status);
}
