/* A network that runs on the accelerator as a whole, from a program file in memory. Freestanding C99. */
#ifndef NETWORK_H
#define NETWORK_H

#include "dovetail_host.h"
#include "dovetail_program.h"

struct network {
    struct dovetail device;
    struct dovetail_program program;
    struct dovetail_memory memory;
    size_t input_bytes, output_bytes; /* of all inputs, or outputs, one behind the other */
    uint64_t bound;                   /* cycles that no segment exceeds */
};

/* Look at a program file; `file` stays where it is as long as the network is used. A dovetail_status. */
int network_read(struct network *network, const void *file, size_t bytes);

/* Check that the host's accelerator is the right one, and put instructions and constants into its memory. */
int network_load(struct network *network, const struct dovetail_host *host);

/* One inference; `result` may be NULL. Each segment may take `timeout` microseconds. */
int network_run(struct network *network, const uint8_t *inputs, uint8_t *outputs, uint64_t timeout,
                struct dovetail_result *result);

#endif
