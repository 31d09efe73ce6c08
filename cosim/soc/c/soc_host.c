/* dovetail_host.h for the SoC: registers at their addresses, and memory that both sides see at the same one. */
#include "dovetail_host.h"
#include "soc.h"

#define REGISTER(address) (*(volatile uint32_t *)(address))
#define BARRIER() __asm__ volatile("" ::: "memory")

static uint32_t read_register(void *context, uint32_t offset)
{
    const uint32_t value = REGISTER(SOC_ACCELERATOR + offset);
    (void)context;
    BARRIER();
    return value;
}

/* The bus lets no access to a register overtake a write to memory. */
static void write_register(void *context, uint32_t offset, uint32_t value)
{
    (void)context;
    BARRIER();
    REGISTER(SOC_ACCELERATOR + offset) = value;
}

/* The loop runs from the caches: memory is the accelerator's alone meanwhile. `wfi` does nothing on this processor. */
static int wait_for_interrupt(void *context, uint64_t timeout)
{
    uint32_t pending;
    (void)context;
    (void)timeout;
    do
        __asm__ volatile("wfi\n\tcsrr %0, 0xfc0" : "=r"(pending)::"memory");
    while (!pending);
    return 1;
}

/* The data cache writes through, so there is nothing to flush. It forgets as a whole. */
static void invalidate(void *context, void *address, size_t bytes)
{
    (void)context;
    (void)address;
    (void)bytes;
    __asm__ volatile(".word 0x500f" ::: "memory");
}

int dovetail_host_open(struct dovetail_host *host, const char *where, size_t bytes)
{
    const struct dovetail_platform platform = {NULL, read_register, write_register, wait_for_interrupt,
                                               NULL, NULL,          NULL,           invalidate};
    (void)where;
    host->platform = platform;
    host->memory.address = (uint8_t *)SOC_SHARED;
    host->memory.bus = SOC_SHARED;
    host->memory.bytes = bytes;
    host->clock_hz = 0;
    __asm__ volatile("csrw 0xbc0, %0" ::"r"(1)); /* the accelerator's interrupt may be pending */
    return 0;
}

int dovetail_host_close(struct dovetail_host *host)
{
    (void)host;
    return 0;
}
