/* Weights files: what lies in the shared memory of a network before it runs.
 *
 * Little-endian: magic "DOVEWGTS", version, number of sections, configuration hash (64 bits), bytes of shared memory,
 * bytes of the file; of each section its offset in memory and its bytes; the sections, one after the other; the CRC-32
 * (IEEE 802.3) of all that. Numbers have 32 bits where nothing else is said. Memory is 0 between the sections.
 */
#ifndef DOVETAIL_WEIGHTS_H
#define DOVETAIL_WEIGHTS_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum dovetail_weights_status {
    DOVETAIL_WEIGHTS_OK = 0,
    DOVETAIL_WEIGHTS_ERROR_FILE = -32,    /* not a weights file, of another version, or cut off */
    DOVETAIL_WEIGHTS_ERROR_CRC = -33,     /* damaged */
    DOVETAIL_WEIGHTS_ERROR_CONFIG = -34,  /* for another configuration */
    DOVETAIL_WEIGHTS_ERROR_NETWORK = -35, /* of another network */
    DOVETAIL_WEIGHTS_ERROR_MEMORY = -36   /* shared memory is too small */
};

/* Check a file and fill shared memory from it. `config_hash`, `crc`: what the file must have. Nothing is written when
 * something is wrong. */
int dovetail_weights_load(const void *file, size_t bytes, uint64_t config_hash, uint32_t crc, uint8_t *memory,
                          size_t memory_bytes);

/* A line that says what a status means; NULL if it is none of this file's. */
const char *dovetail_weights_status_text(int status);

#ifdef __cplusplus
}
#endif

#endif
