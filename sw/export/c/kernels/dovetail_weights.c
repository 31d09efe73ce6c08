#include "dovetail_weights.h"

#include <string.h>

#define MAGIC "DOVEWGTS"
#define VERSION 1
#define HEADER_BYTES 32
#define SECTION_BYTES 8
#define CRC_BYTES 4

static uint32_t word(const uint8_t *bytes)
{
    return (uint32_t)bytes[0] | (uint32_t)bytes[1] << 8 | (uint32_t)bytes[2] << 16 | (uint32_t)bytes[3] << 24;
}

static uint32_t crc32(const uint8_t *data, size_t bytes)
{
    uint32_t crc = 0xffffffffu;
    for (size_t i = 0; i < bytes; i++) {
        crc ^= data[i];
        for (int bit = 0; bit < 8; bit++)
            crc = crc & 1 ? crc >> 1 ^ 0xedb88320u : crc >> 1;
    }
    return ~crc;
}

/* Bytes of all sections, or SIZE_MAX if one does not lie inside memory. */
static size_t sections_bytes(const uint8_t *sections, uint32_t count, size_t memory_bytes)
{
    size_t total = 0;
    for (uint32_t i = 0; i < count; i++) {
        size_t offset = word(sections + i * SECTION_BYTES), size = word(sections + i * SECTION_BYTES + 4);
        if (offset > memory_bytes || size > memory_bytes - offset)
            return SIZE_MAX;
        total += size;
    }
    return total;
}

static int check(const uint8_t *file, size_t bytes, uint64_t config_hash, uint32_t crc, size_t memory_bytes)
{
    if (bytes < HEADER_BYTES + CRC_BYTES || memcmp(file, MAGIC, 8) || word(file + 8) != VERSION)
        return DOVETAIL_WEIGHTS_ERROR_FILE;
    size_t body = bytes - CRC_BYTES;
    uint32_t count = word(file + 12);
    if (word(file + 28) != bytes || count > (body - HEADER_BYTES) / SECTION_BYTES)
        return DOVETAIL_WEIGHTS_ERROR_FILE;
    if (crc32(file, body) != word(file + body))
        return DOVETAIL_WEIGHTS_ERROR_CRC;
    if (((uint64_t)word(file + 20) << 32 | word(file + 16)) != config_hash)
        return DOVETAIL_WEIGHTS_ERROR_CONFIG;
    if (word(file + body) != crc)
        return DOVETAIL_WEIGHTS_ERROR_NETWORK;
    if (word(file + 24) > memory_bytes)
        return DOVETAIL_WEIGHTS_ERROR_MEMORY;
    size_t header = HEADER_BYTES + (size_t)count * SECTION_BYTES;
    if (sections_bytes(file + HEADER_BYTES, count, memory_bytes) != body - header)
        return DOVETAIL_WEIGHTS_ERROR_FILE;
    return DOVETAIL_WEIGHTS_OK;
}

int dovetail_weights_load(const void *file, size_t bytes, uint64_t config_hash, uint32_t crc, uint8_t *memory,
                          size_t memory_bytes)
{
    const uint8_t *start = file;
    int status = check(start, bytes, config_hash, crc, memory_bytes);
    if (status)
        return status;
    uint32_t count = word(start + 12);
    const uint8_t *section = start + HEADER_BYTES, *data = section + (size_t)count * SECTION_BYTES;
    memset(memory, 0, word(start + 24));
    for (uint32_t i = 0; i < count; i++, section += SECTION_BYTES) {
        size_t size = word(section + 4);
        memcpy(memory + word(section), data, size);
        data += size;
    }
    return DOVETAIL_WEIGHTS_OK;
}

const char *dovetail_weights_status_text(int status)
{
    switch (status) {
    case DOVETAIL_WEIGHTS_OK:
        return "weights are loaded";
    case DOVETAIL_WEIGHTS_ERROR_FILE:
        return "weights must be a whole weights file of this version";
    case DOVETAIL_WEIGHTS_ERROR_CRC:
        return "weights file must be undamaged: its CRC does not hold";
    case DOVETAIL_WEIGHTS_ERROR_CONFIG:
        return "weights file must be for the configuration that the code was generated for";
    case DOVETAIL_WEIGHTS_ERROR_NETWORK:
        return "weights file must be the one that was written with the code";
    case DOVETAIL_WEIGHTS_ERROR_MEMORY:
        return "shared memory must have the bytes that the weights file asks for";
    default:
        return NULL;
    }
}
