/* What an application sees of the driver, step by step, on the Verilated accelerator. Memory holds a program of one page
 * that copies a byte from COPY_FROM to COPY_TO. */
#include <stdio.h>
#include <string.h>

#include "dovetail_config.h"
#include "dovetail_host.h"

#define COPY_FROM 4096
#define COPY_TO 8192
#define SHOW(call) printf("%s %d\n", #call, (int)(call))

static const uint64_t words[] = {WORDS};

int main(void)
{
    struct dovetail_host host;
    struct dovetail device;
    struct dovetail_result result;
    struct dovetail_memory far = {NULL, 0x80000000u, (size_t)0x80000001u}, odd;
    uint8_t *memory;
    if (dovetail_host_open(&host, NULL, 16384))
        return 2;
    memory = host.memory.address;
    odd = host.memory;
    odd.bus += 1024;

    SHOW(dovetail_open(&device, &host.platform, 0));
    SHOW(dovetail_config_hash(&device) == DOVETAIL_CONFIG_HASH);
    SHOW(dovetail_open(&device, &host.platform, DOVETAIL_CONFIG_HASH));
    SHOW(dovetail_start(&device, &host.memory, 512, 1));
    SHOW(dovetail_start(&device, &odd, 0, 1));
    SHOW(dovetail_start(&device, &far, 0, 1));
    SHOW(dovetail_start(&device, &host.memory, 0, 17));
    SHOW(dovetail_flush(&device, &host.memory, 16384, 1));

    memcpy(memory, words, sizeof words);
    SHOW(dovetail_run(&device, &host.memory, 0, 0, 1000, &result));
    SHOW(result.cause == DOVETAIL_CAUSE_NO_END);

    memory[COPY_FROM] = 1;
    SHOW(dovetail_flush(&device, &host.memory, 0, 16384));
    memory[COPY_FROM] = 2; /* not flushed */
    SHOW(dovetail_start(&device, &host.memory, 0, 1));
    SHOW(dovetail_start(&device, &host.memory, 0, 1));
    SHOW(dovetail_open(&device, &host.platform, DOVETAIL_CONFIG_HASH));
    SHOW(dovetail_poll(&device));
    SHOW(dovetail_wait(&device, 2, NULL));
    SHOW(dovetail_wait(&device, DOVETAIL_FOREVER, &result));
    SHOW(dovetail_wait(&device, 2, NULL));
    printf("cycles %u\n", (unsigned)result.cycles);
    SHOW(memory[COPY_TO]); /* not invalidated */
    SHOW(dovetail_invalidate(&device, &host.memory, COPY_TO, 1));
    SHOW(memory[COPY_TO]);
    SHOW(dovetail_run(&device, &host.memory, 0, 1, 1000, NULL));
    SHOW(memory[COPY_TO]);
    return dovetail_host_close(&host);
}
