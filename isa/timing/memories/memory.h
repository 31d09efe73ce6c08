// What is behind the bus, event by event: bursts go in, the cycles of their answers come out. docs/memory.md says when.
#pragma once
#include <algorithm>
#include <cstdint>
#include <deque>
#include <vector>

namespace memories {

using i64 = int64_t;
using u64 = uint64_t;

constexpr i64 NEVER = i64(1) << 60, LONG_AGO = -(i64(1) << 40);

constexpr i64 PLACES = 16;  // bursts of a direction that `sdram` and `dram` hold

// Times are cycles of the accelerators. ``address``: of the first beat; ``bytes``: of a beat; ``accepted``: when memory
// takes the address; ``data``, of writes: the first cycle in which memory sees the first beat. Each further beat is
// there in the cycle after memory has taken the one before it.
struct Burst {
    bool write;
    i64 source;  // the number of the accelerator
    u64 address;
    i64 beats, bytes, accepted, data = 0;
};

// What the accelerators see: the last beat of the oldest read, the last beat of the oldest write being taken, the
// response of the oldest write.
enum Kind { R, W, B };
struct Report {
    Kind kind;
    i64 cycle;
};

// Whoever uses it keeps the order of time. Reads are taken in the order of their acceptance, and so are writes, each
// one when its data are known: after W of the one before it. All bursts of the same kind are answered in that order.
class Memory {
public:
    virtual ~Memory() = default;
    // A burst. Its address is accepted, or a write's data come, no earlier than in the cycle of the latest decision.
    virtual void take(const Burst& burst) = 0;
    // Bursts of a direction that it holds, from the acceptance of their addresses up to the cycle of their last answers;
    // further addresses wait. 0: any number.
    virtual i64 places() const { return 0; }
    // The cycle of the next decision; NEVER if there is nothing to decide until the next burst. A burst that is accepted
    // in that cycle or later has no part in it.
    i64 next = NEVER;
    // Carries out decisions of cycles before ``before``, at least the next one, up to one that makes a report.
    virtual void serve(i64 /*before*/) {}
    // Whoever uses it takes them out. No cycle is earlier than that of the decision which it follows from.
    std::vector<Report> reports;
};

// A latency: every address is accepted at once, and neither direction disturbs the other.
class Fixed final : public Memory {
public:
    Fixed(i64 read_latency, i64 write_latency, i64 beat_cycles)
        : read_latency(read_latency), write_latency(write_latency), beat_cycles(beat_cycles) {}

    void take(const Burst& burst) override {
        i64& last = burst.write ? write : read;
        const i64 first = burst.write ? burst.data : burst.accepted + read_latency;
        last = std::max(first, last + beat_cycles) + (burst.beats - 1) * beat_cycles;
        if (!burst.write) {
            reports.push_back({R, last});
        } else {
            reports.push_back({W, last});
            reports.push_back({B, last + write_latency});
        }
    }

private:
    const i64 read_latency, write_latency, beat_cycles;
    i64 read = LONG_AGO, write = LONG_AGO;  // the latest beats
};

}  // namespace memories
