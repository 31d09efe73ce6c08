/* The functions of <string.h> that generated C uses; the compiler's runtime has them. */
#ifndef SOC_STRING_H
#define SOC_STRING_H

#include <stddef.h>

void *memcpy(void *to, const void *from, size_t bytes);
void *memmove(void *to, const void *from, size_t bytes);
void *memset(void *to, int value, size_t bytes);
int memcmp(const void *left, const void *right, size_t bytes);

#endif
