// What a memory with a history of its own says in each cycle: see `docs/memory.md`. `fixed` needs none (axi_bus.h).
//
// The owner calls begin() once in every cycle, from cycle 0 on, then what was taken or given in it.
#pragma once

#include <cstdint>

namespace dovetail {

struct MemoryModel {
    static constexpr unsigned PLACES = 16;  // bursts of a direction

    virtual ~MemoryModel() = default;
    // As in the beginning; the next cycle is 0.
    virtual void restart() = 0;
    // A cycle: `write_waits` is whether a write beat is on the bus. The answers are about this cycle.
    virtual void begin(bool write_waits) = 0;

    bool takes[2] = {true, true};  // an address, of reads and of writes
    bool gives_beat = false, takes_beat = false, answers = false;

    // An address was taken: of a burst of `beats` of `size` bytes.
    virtual void address(bool write, uint64_t address, unsigned size, unsigned beats) = 0;
    virtual void beat_given(bool last) = 0;
    virtual void beat_taken(bool last) = 0;
    virtual void answered() = 0;
};

}  // namespace dovetail
