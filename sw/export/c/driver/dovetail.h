/* Host driver of the Dovetail accelerator: C99, no allocation, no global state, no operating system.
 *
 * The caller brings a `dovetail_platform` (how to reach the registers, the clock, the interrupt, the caches) and a
 * `dovetail_memory` (bytes that both sides see). Programs lie in that memory; their addresses are relative to its first
 * byte, which becomes the accelerator's BASE. One device is used by one thread at a time.
 *
 *     struct dovetail device;
 *     struct dovetail_result result;
 *     int status = dovetail_open(&device, &platform, DOVETAIL_CONFIG_HASH);
 *     if (!status) status = dovetail_run(&device, &memory, program, pages, timeout, &result);
 *     if (status == DOVETAIL_ERROR_FAULT) puts(dovetail_cause_text(result.cause));
 *
 * All numbers of the hardware come from dovetail_isa.h. Program files are read by dovetail_program.h.
 */
#ifndef DOVETAIL_H
#define DOVETAIL_H

#include <stddef.h>
#include <stdint.h>

#include "dovetail_isa.h"

#ifdef __cplusplus
extern "C" {
#endif

/* What the functions answer; dovetail_status_text() says it in words. */
enum dovetail_status {
    DOVETAIL_OK = 0,
    DOVETAIL_ERROR_ID = -1,        /* no accelerator at this address */
    DOVETAIL_ERROR_VERSION = -2,   /* its instruction set has another version */
    DOVETAIL_ERROR_CONFIG = -3,    /* it has another configuration than the program is for */
    DOVETAIL_ERROR_ALIGNMENT = -4, /* memory must start at 4 KiB, a program at 1 KiB */
    DOVETAIL_ERROR_ADDRESS = -5,   /* memory does not lie below 4 GiB of bus addresses */
    DOVETAIL_ERROR_MEMORY = -6,    /* memory is too small for the program or the access */
    DOVETAIL_ERROR_BUSY = -7,      /* a run is under way */
    DOVETAIL_ERROR_TIMEOUT = -8,   /* the run did not end in time; it is still under way */
    DOVETAIL_ERROR_INTERRUPT = -9, /* the platform's wait() failed */
    DOVETAIL_ERROR_FAULT = -10,    /* the accelerator stopped with a fault */
    DOVETAIL_ERROR_FILE = -11,     /* not a program file, or one that is cut off */
    DOVETAIL_ERROR_FORMAT = -12,   /* a program file of another version, or with a header that is not understood */
    DOVETAIL_ERROR_CRC = -13,      /* a damaged program file */
    DOVETAIL_ERROR_INDEX = -14,    /* the program has no such segment, input or output */
    DOVETAIL_ERROR_HOST = -15,     /* the program has steps of the host */
    DOVETAIL_ERROR_RANGE = -16,    /* a number that a run is given is outside its range */
    DOVETAIL_ERROR_PARAMETERS = -17 /* the program's parameters have not been set */
};

/* A time limit that never comes. */
#define DOVETAIL_FOREVER UINT64_MAX

/* How to reach the accelerator. `context` is handed to every function. Only read and write are needed; the others may
 * be NULL. Accesses must be 32 bits wide and in the order in which they are made, also among accesses to shared memory:
 * on Arm and RISC-V that takes a barrier before a write and after a read (examples/barrier.h). */
struct dovetail_platform {
    void *context;
    /* Read and write a host register, by its byte offset (DOVETAIL_HOST_...). */
    uint32_t (*read)(void *context, uint32_t offset);
    void (*write)(void *context, uint32_t offset, uint32_t value);
    /* Sleep until the accelerator's interrupt or for `timeout` microseconds: above 0 after an interrupt, 0 when the
     * time is over, below 0 when it failed. May return early; the driver looks at the registers. NULL: the driver
     * polls and leaves the interrupt off. */
    int (*wait)(void *context, uint64_t timeout);
    /* Microseconds from any origin. NULL: every poll counts as a microsecond, and wait() is trusted with the whole
     * time limit. */
    uint64_t (*now)(void *context);
    /* Called between two polls: yield to others, or nothing (NULL). */
    void (*relax)(void *context);
    /* Caches that the accelerator does not see: write bytes back to memory; forget bytes that are clean. NULL where
     * memory is coherent or not cached. */
    void (*flush)(void *context, void *address, size_t bytes);
    void (*invalidate)(void *context, void *address, size_t bytes);
};

/* Memory that host and accelerator share: where the host sees it, and at which bus address the accelerator does.
 * `bus` must be a multiple of DOVETAIL_BASE_BYTES, and everything below 4 GiB. */
struct dovetail_memory {
    uint8_t *address;
    uint64_t bus;
    size_t bytes;
};

/* Where a unit's cycles of a run went; they add up to the run's cycles, modulo 2^32. */
struct dovetail_stalls {
    uint32_t busy;   /* with an operation or fetch */
    uint32_t config; /* taking a CFG or a satisfied SYNC from the queue */
    uint32_t token;  /* waiting for another unit */
    uint32_t idle;   /* empty queue, or halted */
};

/* What a run left in the registers. */
struct dovetail_result {
    uint64_t cycles;
    uint32_t cause;    /* DOVETAIL_CAUSE_...; NONE when the program ran to its END */
    uint32_t fault_pc; /* word of the program that faulted; for BUS_FETCH the page */
    struct dovetail_stalls stalls[DOVETAIL_UNIT_COUNT];
};

/* One accelerator. The members are the driver's own. */
struct dovetail {
    struct dovetail_platform platform;
    uint64_t config_hash;
    const void *parameters; /* the program whose parameters are set */
};

/* --- one accelerator ------------------------------------------------------------------------------------------- */

/* Look for an accelerator and check that it is the one that is expected. `config_hash`: of the configuration that the
 * programs were made for (DOVETAIL_CONFIG_HASH, or that of a program file). Clears what an earlier run left; the
 * platform is copied.
 * ERROR_ID, ERROR_VERSION, ERROR_CONFIG (dovetail_config_hash() tells which one it has), ERROR_BUSY. */
int dovetail_open(struct dovetail *device, const struct dovetail_platform *platform, uint64_t config_hash);

/* The hash of the configuration that was built, read from the device. */
uint64_t dovetail_config_hash(const struct dovetail *device);

/* --- one run --------------------------------------------------------------------------------------------------- */

/* Run a program to its end: dovetail_flush() of all memory, start, wait, dovetail_invalidate() of all memory.
 * `program`: offset of its first page in memory; `pages`: how many; `timeout`: microseconds, or DOVETAIL_FOREVER (see
 * dovetail_microseconds()); `result` (may be NULL) receives what the registers say after the end, also after a fault.
 * All errors of dovetail_start() and dovetail_wait(). */
int dovetail_run(struct dovetail *device, const struct dovetail_memory *memory, uint32_t program, uint32_t pages,
                 uint64_t timeout, struct dovetail_result *result);

/* Set the host register PARAM of a number, from 1 to DOVETAIL_PARAMETERS, whose value a program may add to its own. It
 * keeps it from run to run. The accelerator must have as many. dovetail_program_set() sets all that a program file needs.
 * ERROR_INDEX, ERROR_BUSY. */
int dovetail_set_parameter(struct dovetail *device, uint32_t number, uint32_t value);

/* Start a program and return at once. The caller has flushed what the program reads, and leaves memory alone until the
 * end.
 * ERROR_ALIGNMENT, ERROR_ADDRESS, ERROR_MEMORY, ERROR_BUSY. */
int dovetail_start(struct dovetail *device, const struct dovetail_memory *memory, uint32_t program, uint32_t pages);

/* Whether the run has ended: 1, or 0. Reads one register. */
int dovetail_poll(const struct dovetail *device);

/* Wait for the end of a run, by interrupt where the platform has one, else by polling; then clear done, and with it the
 * interrupt. `result` as in dovetail_run(). The caller invalidates what it reads.
 * ERROR_FAULT; ERROR_TIMEOUT (the run goes on: wait again, or reset the accelerator); ERROR_INTERRUPT. */
int dovetail_wait(struct dovetail *device, uint64_t timeout, struct dovetail_result *result);

/* Read cycles, cause and counters of the last run. */
void dovetail_read_result(const struct dovetail *device, struct dovetail_result *result);

/* --- memory ---------------------------------------------------------------------------------------------------- */

/* Make what the host wrote visible to the accelerator, before a start: bytes `offset` .. `offset + bytes - 1`.
 * ERROR_MEMORY. */
int dovetail_flush(const struct dovetail *device, const struct dovetail_memory *memory, uint32_t offset, size_t bytes);

/* Make what the accelerator wrote visible to the host, after the end. The host must not have written to the bytes, nor
 * to their cache lines, since they were flushed.
 * ERROR_MEMORY. */
int dovetail_invalidate(const struct dovetail *device, const struct dovetail_memory *memory, uint32_t offset,
                        size_t bytes);

/* --- words ----------------------------------------------------------------------------------------------------- */

/* Microseconds that `cycles` take at `clock_hz`, rounded up: from a program's bound of cycles to a time limit. The
 * bound holds for memory as fast as the configuration says; slower memory adds its lateness. */
uint64_t dovetail_microseconds(uint64_t cycles, uint32_t clock_hz);

/* A line that says what a status, or a cause, means. Never NULL. */
const char *dovetail_status_text(int status);
const char *dovetail_cause_text(uint32_t cause);

#ifdef __cplusplus
}
#endif

#endif
