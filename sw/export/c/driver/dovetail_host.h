/* Where an application runs: one implementation per kind of host, so that the same application runs on all of them.
 * examples/uio.c is Linux, examples/baremetal.c a processor without an operating system; the simulation has its own. */
#ifndef DOVETAIL_HOST_H
#define DOVETAIL_HOST_H

#include "dovetail.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A way to one accelerator, and the memory that is shared with it. */
struct dovetail_host {
    struct dovetail_platform platform;
    struct dovetail_memory memory;
    uint32_t clock_hz; /* of the accelerator; 0 where the host does not know */
};

/* Reach the accelerator and share at least `bytes` bytes of memory with it. `where` is what the kind of host makes of
 * it, such as device names; NULL for its default. 0, or 1 after saying why on the host's console if it has one. */
int dovetail_host_open(struct dovetail_host *host, const char *where, size_t bytes);

/* Give everything back. 0, or 1 after saying what has gone wrong since. */
int dovetail_host_close(struct dovetail_host *host);

#ifdef __cplusplus
}
#endif

#endif
