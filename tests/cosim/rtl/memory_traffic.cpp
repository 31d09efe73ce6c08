// Plays bursts against a memory of the RTL simulation: two channels of addresses, each with one burst after the other.
#include <deque>

#include "axi_memory.h"
#include "memory_models.h"

namespace {

struct Burst {
    int64_t write, address, beats, size, gap;  // gap: cycles from the previous address's acceptance to this one's offer
    int64_t late;                              // of a write, cycles from acceptance to the first beat's offer
};

struct Event {
    int64_t cycle, kind, last;  // 0: AR, 1: R, 2: AW, 3: W, 4: B
};

}  // namespace

extern "C" __attribute__((visibility("default"))) int64_t traffic(int kind, const int64_t* timing, const Burst* bursts, int64_t count,
                                                                  Event* out, int64_t limit) {
    static uint8_t data[1 << 20];
    dovetail::AxiMemory<16, 256, true> memory;
    memory.data = data;
    memory.size = sizeof data;
    dovetail::set_timing(memory, kind, timing);
    dovetail::AxiCycle bus;
    std::deque<Burst> ways[2];
    struct Sent { int64_t left, from; };
    std::deque<Sent> writes;
    for (int64_t n = 0; n < count; ++n) ways[bursts[n].write].push_back(bursts[n]);
    int64_t offer[2] = {ways[0].empty() ? 0 : ways[0][0].gap, ways[1].empty() ? 0 : ways[1][0].gap}, open = count, events = 0;
    for (int64_t now = 0; open && now < limit; ++now) {
        uint8_t rdata[16], wdata[16] = {};
        const bool waits = !writes.empty() && now >= writes.front().from;
        memory.begin(uint64_t(now), bus, rdata, waits);
        bus.rready = bus.bready = true;
        bus.arvalid = !ways[0].empty() && now >= offer[0];
        bus.awvalid = !ways[1].empty() && now >= offer[1];
        if (bus.arvalid) {
            const Burst& b = ways[0].front();
            bus.araddr = uint64_t(b.address), bus.arlen = unsigned(b.beats - 1), bus.arsize = unsigned(__builtin_ctzll(uint64_t(b.size)));
        }
        if (bus.awvalid) {
            const Burst& b = ways[1].front();
            bus.awaddr = uint64_t(b.address), bus.awlen = unsigned(b.beats - 1), bus.awsize = unsigned(__builtin_ctzll(uint64_t(b.size)));
        }
        bus.wvalid = waits;
        bus.wlast = waits && writes.front().left == 1;
        memory.end(uint64_t(now), bus, wdata, 0xffff);
        const auto note = [&](int64_t what, bool last) { out[events++] = {now, what, last}; };
        if (bus.rvalid) {
            note(1, bus.rlast);
            open -= bus.rlast;
        }
        if (bus.bvalid) {
            note(4, true);
            --open;
        }
        if (waits && bus.wready) {
            note(3, bus.wlast);
            if (!--writes.front().left) writes.pop_front();
        }
        for (int w = 0; w < 2; ++w)
            if (w ? bus.awvalid && bus.awready : bus.arvalid && bus.arready) {
                note(2 * w, false);
                if (w) writes.push_back({ways[1].front().beats, now + 1 + ways[1].front().late});
                ways[w].pop_front();
                if (!ways[w].empty()) offer[w] = now + 1 + ways[w].front().gap;
            }
        if (memory.violation) return -1;
    }
    return events;
}
