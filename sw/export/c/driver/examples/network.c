/* See network.h. */
#include "network.h"

int network_read(struct network *network, const void *file, size_t bytes)
{
    struct dovetail_tensor tensor;
    struct dovetail_segment segment;
    uint32_t i;
    int status = dovetail_program_open(&network->program, file, bytes);
    if (!status && network->program.host_steps)
        status = DOVETAIL_ERROR_HOST;
    network->input_bytes = network->output_bytes = 0;
    network->bound = 0;
    for (i = 0; !status && i < network->program.input_count; ++i) {
        status = dovetail_program_input(&network->program, i, &tensor);
        network->input_bytes += status ? 0 : tensor.bytes;
    }
    for (i = 0; !status && i < network->program.output_count; ++i) {
        status = dovetail_program_output(&network->program, i, &tensor);
        network->output_bytes += status ? 0 : tensor.bytes;
    }
    for (i = 0; !status && i < network->program.segment_count; ++i) {
        status = dovetail_program_segment(&network->program, i, &segment);
        if (!status && segment.bound > network->bound)
            network->bound = segment.bound;
    }
    return status;
}

int network_load(struct network *network, const struct dovetail_host *host)
{
    const int status = dovetail_open(&network->device, &host->platform, network->program.config_hash);
    network->memory = host->memory;
    return status ? status : dovetail_program_load(&network->device, &network->memory, &network->program);
}

int network_run(struct network *network, const uint8_t *inputs, uint8_t *outputs, uint64_t timeout,
                struct dovetail_result *result)
{
    struct dovetail_tensor tensor;
    uint32_t i;
    int status = DOVETAIL_OK;
    for (i = 0; !status && i < network->program.input_count; ++i, inputs += tensor.bytes) {
        status = dovetail_program_input(&network->program, i, &tensor);
        if (!status)
            status = dovetail_tensor_write(&network->device, &network->memory, &tensor, inputs);
    }
    if (!status)
        status = dovetail_program_run(&network->device, &network->memory, &network->program, timeout, result);
    for (i = 0; !status && i < network->program.output_count; ++i, outputs += tensor.bytes) {
        status = dovetail_program_output(&network->program, i, &tensor);
        if (!status)
            status = dovetail_tensor_read(&network->device, &network->memory, &tensor, outputs);
    }
    return status;
}
