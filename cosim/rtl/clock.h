// The two halves of a clock cycle of a Verilated design whose clock input is `clk`.
//
// Verilator's eval() evaluates at both edges whatever inputs reach, and takes a lock for messages between threads. Here
// inputs count while the clock is low, and what happens at the rising edge depends on registers only. That needs a design
// in which nothing else depends on `clk` than edges and latches that are open while it is low.
//
// DIRECT_PHASES: the generated code has the functions that are called here, and every trigger is the rising edge of
// something that is low while `clk` is low (see `verilate.py`); otherwise, and with waves, it is eval(). CLOCK_IS_LOW
// notes that all those have been low.
#pragma once

#include "Vdut.h"

#if DIRECT_PHASES && !VM_TRACE
#include "Vdut___024root.h"

void Vdut___024root___eval_ico(Vdut___024root*);
void Vdut___024root___eval_triggers_vec__act(Vdut___024root*);
void Vdut___024root___eval_nba(Vdut___024root*);

struct Clock {
    static constexpr bool DIRECT = true;
    Vdut___024root* root = nullptr;

    Clock() = default;
    explicit Clock(Vdut* top) : root(top->rootp) {
        top->eval();
        root->__VicoTriggered[0] = 1;
    }

    // While the clock is low: what inputs lead to.
    void settle() {
        Vdut___024root___eval_ico(root);
        CLOCK_IS_LOW(root);
    }

    // The rising edge, after settle() with the same inputs; and what registers lead to. `clk` stays high.
    void edge() {
        root->clk = 1;
        Vdut___024root___eval_triggers_vec__act(root);
        root->__VnbaTriggered = root->__VactTriggered;
        Vdut___024root___eval_nba(root);
    }
};
#else
struct Clock {
    static constexpr bool DIRECT = false;
    Vdut* top = nullptr;

    Clock() = default;
    explicit Clock(Vdut* design) : top(design) { top->eval(); }

    void settle() { top->eval(); }

    void edge() {
        top->clk = 1;
        top->eval();
    }
};
#endif
