// The accelerator's AXI4 port as a memory behind it sees it: what the bus shows in a cycle, and when memory answers.
#pragma once

#include <cstdint>

namespace dovetail {

enum AxiResponse : uint8_t { AXI_OKAY = 0, AXI_SLVERR = 2, AXI_DECERR = 3 };

// What the bus shows in one cycle: the memory's side, filled by begin(), and the manager's, given to end().
struct AxiCycle {
    // from the memory
    bool arready = true, rvalid = false, rlast = false, awready = true, wready = true, bvalid = false;
    uint8_t rresp = AXI_OKAY, bresp = AXI_OKAY;
    // from the manager
    bool arvalid = false, rready = false, awvalid = false, wvalid = false, wlast = false, bready = false;
    uint64_t araddr = 0, awaddr = 0;
    unsigned arlen = 0, awlen = 0, arsize = 0, awsize = 0, arburst = 1, awburst = 1;
};

// When memory answers, in cycles. The same rule as `Direction` of isa/timing/memories/fixed.py.
struct MemoryTiming {
    uint64_t read_latency = 40, write_latency = 20, beat_cycles = 1;

    // From the address of a read burst to its last beat, unless others are in its way.
    uint64_t read(unsigned beats) const { return read_latency + (beats - 1) * beat_cycles; }

    // From the last beat of a write burst to its response.
    uint64_t write() const { return write_latency; }
};

// The beats of one direction: in order, and `beat_cycles` apart at least.
struct Beats {
    uint64_t next = 0;  // the first cycle in which there may be one

    bool may_come(uint64_t now) const { return now >= next; }

    // Of a burst whose last beat comes in cycle `end` at the earliest, and which has `left` beats left.
    bool may_come(uint64_t now, uint64_t beat_cycles, uint64_t end, uint64_t left) const {
        return now >= next && now + (left - 1) * beat_cycles >= end;
    }

    void came(uint64_t now, uint64_t beat_cycles) { next = now + beat_cycles; }
};

}  // namespace dovetail
