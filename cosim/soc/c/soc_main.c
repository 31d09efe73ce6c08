/* One inference, from the weights file and the inputs that lie in memory to outputs in memory. */
#include "dovetail_host.h"
#include "inference.h"
#include "soc.h"

#define TELL(address, value) (*(volatile uint32_t *)(address) = (value))

static uint64_t scratch[INFERENCE_SCRATCH_BYTES / 8 + 1];

static void print(const char *text)
{
    while (*text)
        TELL(SOC_CONSOLE, (uint8_t)*text++);
    TELL(SOC_CONSOLE, '\n');
}

int main(void)
{
    static struct inference inference;
    static const struct inference_inputs inputs = {SOC_INPUTS};
    static const struct inference_outputs outputs = {SOC_OUTPUTS};
    struct dovetail_host host;
    int status;
    TELL(SOC_MARK, SOC_MARK_MAIN);
    (void)dovetail_host_open(&host, NULL, INFERENCE_MEMORY_BYTES);
    status = inference_init(&inference, &host.platform, &host.memory, scratch, sizeof scratch,
                            (const void *)SOC_WEIGHTS, INFERENCE_WEIGHTS_BYTES);
    if (!status)
        status = inference_run(&inference, &inputs, &outputs);
    if (status) {
        print(inference_status_text(status));
        if (status == DOVETAIL_ERROR_FAULT)
            print(dovetail_cause_text(inference.result.cause));
    }
    return status != 0;
}
