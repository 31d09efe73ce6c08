// The host of a C application (dovetail_host.h) for which the accelerator is the Verilated one in this process.
//
// Host and accelerator share memory that lies at BUS for the accelerator. The host sees it through a cache that is as
// unforgiving as real ones are allowed to be: what is not flushed never reaches memory, what is not invalidated is never
// seen, and both work on whole lines. Time is the simulation's: a clock cycle takes a microsecond.
//
// `where` is "interrupt" (the default) or "poll". Defines: MEMORY_KIND and MEMORY_TIMING of the memory.
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "accelerator.h"
#include "dovetail_host.h"

enum { BUS = 0x10000, LINE = 64, CLOCK_HZ = 1000000, CYCLES_PER_RELAX = 16 };

struct simulation {
    Accelerator *accelerator;
    uint8_t *memory; // of the bus, from address 0 on
    uint8_t *cached; // what the host sees of it, from BUS on
    size_t bytes;    // from BUS on
    int unanswered;  // accesses to the host port without an answer
};

static struct simulation simulation;

static uint32_t read_register(void *context, uint32_t offset)
{
    struct simulation *self = context;
    uint32_t value = 0;
    if (!acc_read(self->accelerator, offset, &value))
        ++self->unanswered;
    return value;
}

static void write_register(void *context, uint32_t offset, uint32_t value)
{
    struct simulation *self = context;
    if (!acc_write(self->accelerator, offset, value))
        ++self->unanswered;
}

static int wait_for_interrupt(void *context, uint64_t timeout)
{
    struct simulation *self = context;
    return acc_wait(self->accelerator, timeout);
}

static uint64_t microseconds(void *context)
{
    struct simulation *self = context;
    return acc_now(self->accelerator);
}

static void relax(void *context)
{
    struct simulation *self = context;
    acc_advance(self->accelerator, CYCLES_PER_RELAX);
}

// The lines that `bytes` bytes at `address` touch, as offsets into the shared memory.
static size_t first_line(const struct simulation *self, const uint8_t *address)
{
    return (size_t)(address - self->cached) / LINE * LINE;
}

static size_t past_lines(const struct simulation *self, const uint8_t *address, size_t bytes)
{
    const size_t end = (size_t)(address - self->cached) + bytes;
    return (end + LINE - 1) / LINE * LINE;
}

static void flush(void *context, void *address, size_t bytes)
{
    struct simulation *self = context;
    const size_t first = first_line(self, address), past = past_lines(self, address, bytes);
    memcpy(self->memory + BUS + first, self->cached + first, past - first);
}

static void invalidate(void *context, void *address, size_t bytes)
{
    struct simulation *self = context;
    const size_t first = first_line(self, address), past = past_lines(self, address, bytes);
    memcpy(self->cached + first, self->memory + BUS + first, past - first);
}

int dovetail_host_open(struct dovetail_host *host, const char *where, size_t bytes)
{
    const struct dovetail_platform platform = {&simulation, read_register, write_register, wait_for_interrupt,
                                               microseconds, relax,        flush,          invalidate};
    const int polls = where && !strcmp(where, "poll");
    if (where && !polls && strcmp(where, "interrupt")) {
        fprintf(stderr, "host must be interrupt or poll, not %s\n", where);
        return 1;
    }
    simulation.bytes = (bytes + DOVETAIL_BASE_BYTES - 1) / DOVETAIL_BASE_BYTES * DOVETAIL_BASE_BYTES;
    simulation.memory = calloc(BUS + simulation.bytes, 1);
    simulation.cached = calloc(simulation.bytes + 1, 1);
    simulation.unanswered = 0;
    if (!simulation.memory || !simulation.cached) {
        fputs("no memory for the simulation\n", stderr);
        free(simulation.memory);
        free(simulation.cached);
        return 1;
    }
    simulation.accelerator = acc_new();
    static const int64_t timing[] = {MEMORY_TIMING};
    acc_memory(simulation.accelerator, simulation.memory, BUS + simulation.bytes, MEMORY_KIND, timing);
    host->platform = platform;
    if (polls)
        host->platform.wait = NULL;
    host->memory.address = simulation.cached;
    host->memory.bus = BUS;
    host->memory.bytes = simulation.bytes;
    host->clock_hz = CLOCK_HZ;
    return 0;
}

int dovetail_host_close(struct dovetail_host *host)
{
    const char *violation = acc_violation(simulation.accelerator);
    const int failed = violation || simulation.unanswered;
    (void)host;
    if (violation)
        fprintf(stderr, "the accelerator broke the bus protocol: %s\n", violation);
    if (simulation.unanswered)
        fprintf(stderr, "%d accesses to the host port had no answer\n", simulation.unanswered);
    acc_delete(simulation.accelerator);
    free(simulation.memory);
    free(simulation.cached);
    return failed;
}
