/* See dovetail.h. */
#include "dovetail.h"

#define BUS_END ((uint64_t)1 << 32)
#define MICROSECONDS 1000000u

static uint32_t get(const struct dovetail *device, uint32_t offset)
{
    return device->platform.read(device->platform.context, offset);
}

static void set(const struct dovetail *device, uint32_t offset, uint32_t value)
{
    device->platform.write(device->platform.context, offset, value);
}

static uint64_t get_pair(const struct dovetail *device, uint32_t low, uint32_t high)
{
    const uint32_t bits = get(device, low);
    return (uint64_t)get(device, high) << 32 | bits;
}

static int is_busy(const struct dovetail *device)
{
    return (get(device, DOVETAIL_HOST_STATUS) & DOVETAIL_HOST_STATUS_BUSY_MASK) != 0;
}

static int is_inside(const struct dovetail_memory *memory, uint64_t offset, uint64_t bytes)
{
    return offset <= memory->bytes && bytes <= memory->bytes - offset;
}

/* --- one accelerator ------------------------------------------------------------------------------------------- */

int dovetail_open(struct dovetail *device, const struct dovetail_platform *platform, uint64_t config_hash)
{
    device->platform = *platform;
    device->config_hash = config_hash;
    device->parameters = NULL;
    if (get(device, DOVETAIL_HOST_ID) != DOVETAIL_HOST_ID_VALUE)
        return DOVETAIL_ERROR_ID;
    if (get(device, DOVETAIL_HOST_VERSION) != DOVETAIL_HOST_VERSION_VALUE)
        return DOVETAIL_ERROR_VERSION;
    if (dovetail_config_hash(device) != config_hash)
        return DOVETAIL_ERROR_CONFIG;
    if (is_busy(device))
        return DOVETAIL_ERROR_BUSY;
    set(device, DOVETAIL_HOST_CONTROL, 0);
    set(device, DOVETAIL_HOST_STATUS, DOVETAIL_HOST_STATUS_DONE_MASK);
    return DOVETAIL_OK;
}

uint64_t dovetail_config_hash(const struct dovetail *device)
{
    return get_pair(device, DOVETAIL_HOST_CONFIG_HASH_LO, DOVETAIL_HOST_CONFIG_HASH_HI);
}

/* --- one run --------------------------------------------------------------------------------------------------- */

int dovetail_run(struct dovetail *device, const struct dovetail_memory *memory, uint32_t program, uint32_t pages,
                 uint64_t timeout, struct dovetail_result *result)
{
    int status = dovetail_flush(device, memory, 0, memory->bytes);
    if (!status)
        status = dovetail_start(device, memory, program, pages);
    if (status)
        return status;
    status = dovetail_wait(device, timeout, result);
    if (status == DOVETAIL_OK || status == DOVETAIL_ERROR_FAULT)
        (void)dovetail_invalidate(device, memory, 0, memory->bytes);
    return status;
}

int dovetail_set_parameter(struct dovetail *device, uint32_t number, uint32_t value)
{
    if (!number || number > DOVETAIL_PARAMETERS)
        return DOVETAIL_ERROR_INDEX;
    if (is_busy(device))
        return DOVETAIL_ERROR_BUSY;
    set(device, DOVETAIL_HOST_PARAM1 + 4 * (number - 1), value);
    device->parameters = NULL;
    return DOVETAIL_OK;
}

int dovetail_start(struct dovetail *device, const struct dovetail_memory *memory, uint32_t program, uint32_t pages)
{
    const uint32_t irq = device->platform.wait ? DOVETAIL_HOST_CONTROL_IRQ_ENABLE_MASK : 0;
    if (memory->bus % DOVETAIL_BASE_BYTES || program % DOVETAIL_PAGE_BYTES)
        return DOVETAIL_ERROR_ALIGNMENT;
    if (memory->bus >= BUS_END || memory->bytes > BUS_END - memory->bus)
        return DOVETAIL_ERROR_ADDRESS;
    if (!is_inside(memory, program, (uint64_t)pages * DOVETAIL_PAGE_BYTES))
        return DOVETAIL_ERROR_MEMORY;
    if (is_busy(device))
        return DOVETAIL_ERROR_BUSY;
    set(device, DOVETAIL_HOST_BASE, (uint32_t)memory->bus);
    set(device, DOVETAIL_HOST_PROGRAM, (uint32_t)memory->bus + program);
    set(device, DOVETAIL_HOST_PAGES, pages);
    set(device, DOVETAIL_HOST_CONTROL, DOVETAIL_HOST_CONTROL_START_MASK | irq);
    return DOVETAIL_OK;
}

int dovetail_poll(const struct dovetail *device)
{
    return (get(device, DOVETAIL_HOST_STATUS) & DOVETAIL_HOST_STATUS_DONE_MASK) != 0;
}

/* Let up to `left` microseconds pass: whether something woke the host before, below 0 when waiting failed. */
static int pause(const struct dovetail_platform *platform, uint64_t left)
{
    if (platform->wait)
        return platform->wait(platform->context, left);
    if (platform->relax)
        platform->relax(platform->context);
    return 1;
}

int dovetail_wait(struct dovetail *device, uint64_t timeout, struct dovetail_result *result)
{
    const struct dovetail_platform *platform = &device->platform;
    const uint64_t begin = platform->now ? platform->now(platform->context) : 0;
    uint64_t spent = 0;
    while (!dovetail_poll(device)) {
        const uint64_t left = timeout == DOVETAIL_FOREVER ? timeout : timeout - spent;
        const int woken = pause(platform, left);
        if (woken < 0)
            return DOVETAIL_ERROR_INTERRUPT;
        spent = platform->now ? platform->now(platform->context) - begin : spent + (woken ? 1 : left);
        if (spent >= timeout && timeout != DOVETAIL_FOREVER) {
            if (dovetail_poll(device))
                break;
            return DOVETAIL_ERROR_TIMEOUT;
        }
    }
    set(device, DOVETAIL_HOST_STATUS, DOVETAIL_HOST_STATUS_DONE_MASK);
    if (result)
        dovetail_read_result(device, result);
    return get(device, DOVETAIL_HOST_CAUSE) == DOVETAIL_CAUSE_NONE ? DOVETAIL_OK : DOVETAIL_ERROR_FAULT;
}

void dovetail_read_result(const struct dovetail *device, struct dovetail_result *result)
{
    result->cycles = get_pair(device, DOVETAIL_HOST_CYCLES_LO, DOVETAIL_HOST_CYCLES_HI);
    result->cause = get(device, DOVETAIL_HOST_CAUSE);
    result->fault_pc = get(device, DOVETAIL_HOST_FAULT_PC);
#define STALLS(unit)                                                                  \
    result->stalls[DOVETAIL_UNIT_##unit].busy = get(device, DOVETAIL_HOST_##unit##_BUSY);     \
    result->stalls[DOVETAIL_UNIT_##unit].config = get(device, DOVETAIL_HOST_##unit##_CONFIG); \
    result->stalls[DOVETAIL_UNIT_##unit].token = get(device, DOVETAIL_HOST_##unit##_TOKEN);   \
    result->stalls[DOVETAIL_UNIT_##unit].idle = get(device, DOVETAIL_HOST_##unit##_IDLE);
    DOVETAIL_UNITS(STALLS)
#undef STALLS
}

/* --- memory ---------------------------------------------------------------------------------------------------- */

int dovetail_flush(const struct dovetail *device, const struct dovetail_memory *memory, uint32_t offset, size_t bytes)
{
    if (!is_inside(memory, offset, bytes))
        return DOVETAIL_ERROR_MEMORY;
    if (device->platform.flush)
        device->platform.flush(device->platform.context, memory->address + offset, bytes);
    return DOVETAIL_OK;
}

int dovetail_invalidate(const struct dovetail *device, const struct dovetail_memory *memory, uint32_t offset,
                        size_t bytes)
{
    if (!is_inside(memory, offset, bytes))
        return DOVETAIL_ERROR_MEMORY;
    if (device->platform.invalidate)
        device->platform.invalidate(device->platform.context, memory->address + offset, bytes);
    return DOVETAIL_OK;
}

/* --- words ----------------------------------------------------------------------------------------------------- */

uint64_t dovetail_microseconds(uint64_t cycles, uint32_t clock_hz)
{
    uint64_t seconds, rest;
    if (!clock_hz || cycles / clock_hz >= DOVETAIL_FOREVER / MICROSECONDS)
        return DOVETAIL_FOREVER;
    seconds = cycles / clock_hz;
    rest = cycles % clock_hz;
    return seconds * MICROSECONDS + (rest * MICROSECONDS + clock_hz - 1) / clock_hz;
}

const char *dovetail_status_text(int status)
{
    switch (status) {
    case DOVETAIL_OK:
        return "all is well";
    case DOVETAIL_ERROR_ID:
        return "there is no Dovetail accelerator at this address: check the address and the bitstream";
    case DOVETAIL_ERROR_VERSION:
        return "the accelerator has another version of the instruction set: build the bitstream and this driver again";
    case DOVETAIL_ERROR_CONFIG:
        return "the accelerator has another configuration than the program is for: compile the program for it";
    case DOVETAIL_ERROR_ALIGNMENT:
        return "shared memory must start at a multiple of 4 KiB of the bus, a program at a multiple of 1 KiB of it";
    case DOVETAIL_ERROR_ADDRESS:
        return "shared memory must lie below 4 GiB of bus addresses";
    case DOVETAIL_ERROR_MEMORY:
        return "shared memory is too small for the program";
    case DOVETAIL_ERROR_BUSY:
        return "the accelerator is busy: an earlier run has not ended";
    case DOVETAIL_ERROR_TIMEOUT:
        return "the run did not end within the time limit, and is still under way";
    case DOVETAIL_ERROR_INTERRUPT:
        return "waiting for the interrupt failed";
    case DOVETAIL_ERROR_FAULT:
        return "the accelerator stopped with a fault";
    case DOVETAIL_ERROR_FILE:
        return "the program must be a whole Dovetail program file";
    case DOVETAIL_ERROR_FORMAT:
        return "the program file has another version or a header that is not understood: compile the network again";
    case DOVETAIL_ERROR_CRC:
        return "the program file is damaged: its CRC does not match";
    case DOVETAIL_ERROR_INDEX:
        return "the program has no segment, input, output or parameter of this number";
    case DOVETAIL_ERROR_HOST:
        return "parts of the network run on the host, which this driver does not do: see `dovetail codegen`";
    case DOVETAIL_ERROR_RANGE:
        return "a number that a run is given, such as a position or a token, is outside its range";
    case DOVETAIL_ERROR_PARAMETERS:
        return "the program has parameters: give the run's inputs to dovetail_program_set() first";
    default:
        return "unknown status";
    }
}

const char *dovetail_cause_text(uint32_t cause)
{
    switch (cause) {
#define TEXT(name, text)         \
    case DOVETAIL_CAUSE_##name: \
        return text;
        DOVETAIL_CAUSES(TEXT)
#undef TEXT
    default:
        return "unknown cause";
    }
}
