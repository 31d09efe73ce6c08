/* What the processor does first: stack, variables that are zero, main(). The status of main() ends the program. */
#include "soc.h"

    .section .text.start, "ax"
    .globl _start
_start:
    la sp, _stack
    la t0, trap
    csrw mtvec, t0
    la t0, _zero
    la t1, _zero_end
1:  bgeu t0, t1, 2f
    sw zero, 0(t0)
    addi t0, t0, 4
    j 1b
2:  call main
exit:
    li t0, SOC_EXIT
    sw a0, 0(t0)
3:  j 3b

    /* Nothing here is meant to trap. */
    .align 2
trap:
    csrr a0, mcause
    ori a0, a0, SOC_TRAP
    j exit
