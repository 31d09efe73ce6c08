/* Stands in for the interrupt of a UIO device whose file is an ordinary one: an interrupt every millisecond. */
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <time.h>

int shim_poll(struct pollfd *files, nfds_t count, int timeout);
ssize_t shim_read(int file, void *data, size_t bytes);
ssize_t shim_write(int file, const void *data, size_t bytes);

static int unmasked;

ssize_t shim_write(int file, const void *data, size_t bytes)
{
    const unsigned one = 1;
    (void)file;
    if (bytes != sizeof one || memcmp(data, &one, sizeof one))
        abort();
    unmasked = 1;
    return (ssize_t)bytes;
}

int shim_poll(struct pollfd *files, nfds_t count, int timeout)
{
    const struct timespec millisecond = {0, 1000000};
    if (!unmasked || count != 1 || files->events != POLLIN || timeout < 1)
        abort();
    nanosleep(&millisecond, NULL);
    return 1;
}

ssize_t shim_read(int file, void *data, size_t bytes)
{
    (void)file;
    (void)data;
    unmasked = 0;
    return (ssize_t)bytes;
}
