// The Verilated accelerator as plain C functions, for Python and for C programs. Made and freed by acc_new and
// acc_delete; a cycle is one of its clock.
#pragma once

#include <stdint.h>

typedef struct Accelerator Accelerator;

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

// What acc_start and acc_finish answer.
enum { ACC_DONE = 0, ACC_TIMEOUT = 1, ACC_NOT_STARTED = 2, ACC_PROTOCOL = 3 };

// Whether cycles are evaluated without Verilator's eval() around them (see clock.h).
int acc_direct(void);

Accelerator* acc_new(void);
void acc_delete(Accelerator* a);
void acc_reset(Accelerator* a);

// Attaches system memory: `size` bytes from address 0 on, and its timing: a kind and its numbers (memory_models.h).
void acc_memory(Accelerator* a, uint8_t* data, uint64_t size, int kind, const int64_t* timing);

// Host accesses; 0 when the port does not answer.
int acc_write(Accelerator* a, uint32_t address, uint32_t value);
int acc_read(Accelerator* a, uint32_t address, uint32_t* value);

// Parts of system memory that answer SLVERR: `count` pairs of address and bytes.
void acc_broken(Accelerator* a, const uint64_t* parts, uint64_t count);

// From now on one handshake in `one_in` puts off the next by up to `longest` cycles; none with 0.
void acc_stalls(Accelerator* a, uint64_t seed, uint32_t one_in, uint32_t longest);

// Cycles that stalls have added up to.
uint64_t acc_stalled(Accelerator* a);

// Writes the start register and waits until the engine is busy.
int acc_start(Accelerator* a, uint32_t address, uint32_t value);

// Goes on until the engine is idle again, or `limit` cycles after it became busy.
int acc_finish(Accelerator* a, uint64_t limit);
const char* acc_message(Accelerator* a);

// Lets some cycles pass; until the interrupt is high, `limit` at most: whether it is.
void acc_advance(Accelerator* a, uint64_t cycles);
int acc_wait(Accelerator* a, uint64_t limit);
int acc_irq(Accelerator* a);

// Cycles in which the engine was busy in the last run; cycles since the instance was made.
uint64_t acc_cycles(Accelerator* a);
uint64_t acc_now(Accelerator* a);

// The first breach of the bus protocol by the accelerator; null when there was none.
const char* acc_violation(Accelerator* a);

// Timeline of the last run: number of entries; `out` (may be null) receives unit, pc, fetch, start, end of each.
uint64_t acc_entries(Accelerator* a, int64_t* out);

// Starts a wave dump to a file, or ends it with nullptr; ten units of time are a cycle. 0: the library was built without.
int acc_waves(Accelerator* a, const char* path);
// The same for cycles `first` .. `past` - 1 of runs only, counted from the run's cycle 0.
int acc_window(Accelerator* a, const char* path, uint64_t first, uint64_t past);

// Writes what has been covered to a file. 0: the library was built without.
int acc_coverage(Accelerator* a, const char* path);

// Writes the counts of a library that was compiled to count what it executes.
void acc_profile(void);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif
