/* @@network, for configuration @@hash; made by dovetail @@version. */
#include "inference.h"

#include <string.h>

#include "dovetail_kernels.h"
#include "dovetail_weights.h"
@@data
#define WEIGHTS_CRC @@{crc}u
#define MEMORY(offset) ((void *)(memory + (offset)))
#define SCRATCH(offset) ((void *)(scratch + (offset)))

int inference_init(struct inference *inference, const struct dovetail_platform *platform,
                   const struct dovetail_memory *memory, void *scratch, size_t scratch_bytes, const void *weights,
                   size_t weights_bytes)
{
    const size_t needed = INFERENCE_SCRATCH_BYTES;
    int status;
    if (memory->bytes < INFERENCE_MEMORY_BYTES)
        return INFERENCE_ERROR_MEMORY;
    if (scratch_bytes < needed || (uintptr_t)scratch % @@align)
        return INFERENCE_ERROR_SCRATCH;
    inference->memory = *memory;
    inference->scratch = scratch;
    inference->timeout = DOVETAIL_FOREVER;
    inference->cycles = 0;
    status = dovetail_open(&inference->device, platform, INFERENCE_CONFIG_HASH);
    if (!status)
        status = dovetail_weights_load(weights, weights_bytes, INFERENCE_CONFIG_HASH, WEIGHTS_CRC, memory->address,
                                       memory->bytes);
    if (!status)
        status = dovetail_flush(&inference->device, memory, 0, INFERENCE_MEMORY_BYTES);
    return status;
}
@@run_segment
int inference_run(struct inference *inference, const struct inference_inputs *inputs,
                  const struct inference_outputs *outputs)
{
@@statements
    return DOVETAIL_OK;
}

const char *inference_status_text(int status)
{
    const char *text = dovetail_weights_status_text(status);
    if (status == INFERENCE_ERROR_MEMORY)
        return "shared memory must have INFERENCE_MEMORY_BYTES";
    if (status == INFERENCE_ERROR_SCRATCH)
        return "scratch memory must have INFERENCE_SCRATCH_BYTES and begin at a multiple of @@align";
    return text && status ? text : dovetail_status_text(status);
}
