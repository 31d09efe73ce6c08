/* Keeps accesses to registers and to shared memory in order, for devices outside the processor's coherent domain too. */
#ifndef BARRIER_H
#define BARRIER_H

static inline void barrier(void)
{
#if defined(__aarch64__) || defined(__arm__)
    __asm__ volatile("dsb sy" : : : "memory");
#elif defined(__riscv)
    __asm__ volatile("fence iorw, iorw" : : : "memory");
#else
    __sync_synchronize();
#endif
}

#endif
