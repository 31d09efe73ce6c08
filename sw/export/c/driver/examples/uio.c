/* The accelerator under Linux: registers and interrupt of a UIO device, shared memory of a u-dma-buf device.
 *
 * `where` is "uio0,udmabuf0", the default. In the device tree the accelerator is compatible with "generic-uio" (module
 * parameter uio_pdrv_genirq.of_id=generic-uio); u-dma-buf (github.com/ikwzm/udmabuf) reserves memory below 4 GiB and
 * keeps it cached; flush and invalidate go through its files sync_for_device and sync_for_cpu. */
#define _POSIX_C_SOURCE 200809L
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "barrier.h"
#include "dovetail_host.h"

#ifndef DEVICES
#define DEVICES "/dev"
#endif
#ifndef CLASSES
#define CLASSES "/sys/class"
#endif

enum { REGISTERS_BYTES = 4096, NAME_BYTES = 64, PATH_BYTES = 256 };

struct uio {
    int device;
    volatile uint32_t *registers;
    char folder[PATH_BYTES]; /* of the u-dma-buf device's attributes */
    uint8_t *buffer;
    size_t buffer_bytes;
    int failed; /* an attribute could not be written */
};

static struct uio uio;

/* --- registers and interrupt ------------------------------------------------------------------------------------- */

static uint32_t read_register(void *context, uint32_t offset)
{
    const struct uio *self = context;
    const uint32_t value = self->registers[offset / 4];
    barrier();
    return value;
}

static void write_register(void *context, uint32_t offset, uint32_t value)
{
    const struct uio *self = context;
    barrier();
    self->registers[offset / 4] = value;
}

/* The kernel masks the interrupt when it comes: writing 1 unmasks it, reading waits for it and takes its count. */
static int wait_for_interrupt(void *context, uint64_t timeout)
{
    const struct uio *self = context;
    struct pollfd poller = {self->device, POLLIN, 0};
    const uint64_t milliseconds = timeout / 1000 + 1;
    uint32_t value = 1;
    int ready;
    if (write(self->device, &value, sizeof value) != (ssize_t)sizeof value)
        return -1;
    ready = poll(&poller, 1, milliseconds < INT_MAX ? (int)milliseconds : INT_MAX);
    if (ready < 0 && errno == EINTR)
        return 1; /* a signal; the driver looks at the registers and comes back */
    if (ready > 0 && read(self->device, &value, sizeof value) != (ssize_t)sizeof value)
        return -1;
    return ready;
}

static uint64_t microseconds(void *context)
{
    struct timespec time;
    (void)context;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (uint64_t)time.tv_sec * 1000000u + (uint64_t)time.tv_nsec / 1000u;
}

/* --- shared memory ----------------------------------------------------------------------------------------------- */

static int read_attribute(const struct uio *self, const char *name, const char *format, uint64_t *value)
{
    char path[PATH_BYTES + NAME_BYTES];
    FILE *file;
    int found;
    snprintf(path, sizeof path, "%s/%s", self->folder, name);
    file = fopen(path, "r");
    found = file && fscanf(file, format, value) == 1;
    if (file)
        fclose(file);
    return found;
}

static void write_attribute(struct uio *self, const char *name, size_t value)
{
    char path[PATH_BYTES + NAME_BYTES];
    FILE *file;
    snprintf(path, sizeof path, "%s/%s", self->folder, name);
    file = fopen(path, "w");
    if (!file || fprintf(file, "%zu", value) < 0)
        self->failed = 1;
    if (file && fclose(file))
        self->failed = 1;
}

static void synchronise(struct uio *self, const char *attribute, const uint8_t *address, size_t bytes)
{
    write_attribute(self, "sync_offset", (size_t)(address - self->buffer));
    write_attribute(self, "sync_size", bytes);
    write_attribute(self, attribute, 1);
}

static void flush(void *context, void *address, size_t bytes)
{
    synchronise(context, "sync_for_device", address, bytes);
}

static void invalidate(void *context, void *address, size_t bytes)
{
    synchronise(context, "sync_for_cpu", address, bytes);
}

/* --- opening ----------------------------------------------------------------------------------------------------- */

static void *map(int device, size_t bytes)
{
    void *address = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, device, 0);
    return address == MAP_FAILED ? NULL : address;
}

static int open_registers(struct uio *self, const char *name)
{
    char path[PATH_BYTES];
    snprintf(path, sizeof path, DEVICES "/%s", name);
    self->device = open(path, O_RDWR | O_SYNC);
    if (self->device >= 0)
        self->registers = map(self->device, REGISTERS_BYTES);
    if (!self->registers)
        perror(path);
    return self->registers ? 0 : 1;
}

/* The folder of the attributes has another name in older versions of u-dma-buf. */
static int find_buffer(struct uio *self, const char *name, uint64_t *size)
{
    snprintf(self->folder, sizeof self->folder, CLASSES "/u-dma-buf/%s", name);
    if (read_attribute(self, "size", "%" SCNu64, size))
        return 1;
    snprintf(self->folder, sizeof self->folder, CLASSES "/udmabuf/%s", name);
    return read_attribute(self, "size", "%" SCNu64, size);
}

static int open_memory(struct uio *self, const char *name, size_t bytes, struct dovetail_memory *memory)
{
    char path[PATH_BYTES];
    uint64_t size;
    int device;
    snprintf(path, sizeof path, DEVICES "/%s", name);
    if (!find_buffer(self, name, &size) || !read_attribute(self, "phys_addr", "%" SCNx64, &memory->bus)) {
        fprintf(stderr, "%s: must be a u-dma-buf device with size and phys_addr in " CLASSES "\n", path);
        return 1;
    }
    if (size < bytes) {
        fprintf(stderr, "%s: must have %zu bytes, not %" PRIu64 "\n", path, bytes, size);
        return 1;
    }
    device = open(path, O_RDWR);
    if (device >= 0) {
        self->buffer = map(device, (size_t)size);
        close(device); /* the mapping stays */
    }
    if (!self->buffer) {
        perror(path);
        return 1;
    }
    memory->address = self->buffer;
    memory->bytes = self->buffer_bytes = (size_t)size;
    return 0;
}

int dovetail_host_open(struct dovetail_host *host, const char *where, size_t bytes)
{
    const struct dovetail_platform platform = {&uio, read_register, write_register, wait_for_interrupt, microseconds,
                                               NULL, flush,         invalidate};
    const struct uio closed = {-1, NULL, "", NULL, 0, 0};
    char registers[NAME_BYTES], buffer[NAME_BYTES];
    if (sscanf(where ? where : "uio0,udmabuf0", "%63[^,],%63[^,]", registers, buffer) != 2) {
        fprintf(stderr, "%s: must be two devices, such as uio0,udmabuf0\n", where);
        return 1;
    }
    uio = closed;
    host->platform = platform;
    host->clock_hz = 0;
    if (open_registers(&uio, registers) || open_memory(&uio, buffer, bytes, &host->memory)) {
        (void)dovetail_host_close(host);
        return 1;
    }
    return 0;
}

int dovetail_host_close(struct dovetail_host *host)
{
    (void)host;
    if (uio.buffer)
        munmap(uio.buffer, uio.buffer_bytes);
    if (uio.registers)
        munmap((void *)(uintptr_t)uio.registers, REGISTERS_BYTES);
    if (uio.device >= 0)
        close(uio.device);
    if (uio.failed)
        fprintf(stderr, "%s: sync_offset, sync_size, sync_for_device and sync_for_cpu must be writable\n", uio.folder);
    return uio.failed;
}
