/* The accelerator on a processor without an operating system: fixed addresses, no C library.
 *
 * Change the five numbers, or give them to the compiler (-DREGISTERS=0x...). The network and a sample are linked in as
 * the files network.dvt, input.bin and expected.bin (see the Makefile), and `state` tells a debugger, or whoever goes on
 * from here, how it went. */
#include "barrier.h"
#include "dovetail_host.h"
#include "network.h"

#ifndef REGISTERS
#define REGISTERS 0x43c00000u /* of the accelerator */
#endif
#ifndef MEMORY
#define MEMORY 0x10000000u /* shared memory: a multiple of 4 KiB, for both sides at the same address */
#endif
#ifndef MEMORY_BYTES
#define MEMORY_BYTES 0x01000000u
#endif
#ifndef CACHE_LINE
#define CACHE_LINE 0u /* bytes of a line of the data cache; 0 where memory is coherent or not cached */
#endif
#ifndef OUTPUT_BYTES
#define OUTPUT_BYTES 4096u /* of the largest network's outputs */
#endif

/* --- registers --------------------------------------------------------------------------------------------------- */

static uint32_t read_register(void *context, uint32_t offset)
{
    const uint32_t value = *(volatile uint32_t *)((uintptr_t)REGISTERS + offset);
    (void)context;
    barrier();
    return value;
}

static void write_register(void *context, uint32_t offset, uint32_t value)
{
    (void)context;
    barrier();
    *(volatile uint32_t *)((uintptr_t)REGISTERS + offset) = value;
}

/* --- caches: the instruction for a line is the processor's; here that of 64-bit Arm -------------------------------- */

#if CACHE_LINE
static void clean_and_forget(void *context, void *address, size_t bytes)
{
    uintptr_t line = (uintptr_t)address / CACHE_LINE * CACHE_LINE;
    const uintptr_t end = (uintptr_t)address + bytes;
    (void)context;
    for (; line < end; line += CACHE_LINE) {
#if defined(__aarch64__)
        __asm__ volatile("dc civac, %0" : : "r"(line) : "memory");
#else
#error "write here how this processor cleans and invalidates the cache line at `line`"
#endif
    }
    barrier();
}
#define CACHE_HOOK clean_and_forget
#else
#define CACHE_HOOK NULL
#endif

int dovetail_host_open(struct dovetail_host *host, const char *where, size_t bytes)
{
    const struct dovetail_platform platform = {NULL, read_register, write_register, NULL,
                                               NULL, NULL,          CACHE_HOOK,     CACHE_HOOK};
    (void)where;
    host->platform = platform;
    host->memory.address = (uint8_t *)(uintptr_t)MEMORY;
    host->memory.bus = MEMORY;
    host->memory.bytes = MEMORY_BYTES;
    host->clock_hz = 0;
    return bytes > MEMORY_BYTES;
}

int dovetail_host_close(struct dovetail_host *host)
{
    (void)host;
    return 0;
}

/* --- application: one inference of what is linked in ------------------------------------------------------------- */

extern const uint8_t _binary_network_dvt_start[], _binary_network_dvt_end[];
extern const uint8_t _binary_input_bin_start[], _binary_input_bin_end[];
extern const uint8_t _binary_expected_bin_start[], _binary_expected_bin_end[];

enum { UNFINISHED = 1, DIFFERENT = 2, WRONG_SIZE = 3 };

/* `status`: 0 when the outputs are the expected ones, below 0 a dovetail_status, else one of the above. */
volatile struct {
    int status;
    uint32_t cycles, cause, fault_pc;
} state = {UNFINISHED, 0, 0, 0};

static uint8_t outputs[OUTPUT_BYTES];

static size_t between(const uint8_t *start, const uint8_t *end)
{
    return (size_t)((uintptr_t)end - (uintptr_t)start);
}

static int infer(void)
{
    static struct network network;
    static struct dovetail_result result;
    struct dovetail_host host;
    size_t i;
    int status = network_read(&network, _binary_network_dvt_start,
                              between(_binary_network_dvt_start, _binary_network_dvt_end));
    if (status)
        return status;
    if (network.input_bytes != between(_binary_input_bin_start, _binary_input_bin_end)
        || network.output_bytes != between(_binary_expected_bin_start, _binary_expected_bin_end)
        || network.output_bytes > OUTPUT_BYTES)
        return WRONG_SIZE;
    if (dovetail_host_open(&host, NULL, network.program.memory_bytes))
        return DOVETAIL_ERROR_MEMORY;
    status = network_load(&network, &host);
    if (!status)
        status = network_run(&network, _binary_input_bin_start, outputs, DOVETAIL_FOREVER, &result);
    state.cycles = (uint32_t)result.cycles;
    state.cause = result.cause;
    state.fault_pc = result.fault_pc;
    for (i = 0; !status && i < network.output_bytes; ++i)
        if (outputs[i] != _binary_expected_bin_start[i])
            status = DIFFERENT;
    return status;
}

int main(void)
{
    state.status = infer();
    return state.status;
}
