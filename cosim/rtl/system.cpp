// Runs programs on a Verilated system: host port, memory, and for each accelerator its timeline and its handshakes.
//
// ACCELERATORS is ACCELERATOR(0) ACCELERATOR(1) ..., COUNT how many they are.
#include "Vdut.h"
#include "axi_memory.h"
#include "clock.h"
#include "dut_ports.h"
#include "verilated.h"
#include "waves.h"

#include <cstdint>
#include <cstring>
#include <deque>
#include <memory>
#include <vector>

namespace {

constexpr unsigned IN_FLIGHT = 256;

enum Status { DONE = 0, TIMEOUT = 1, PROTOCOL = 3 };

// What a handshake is; the numbers of `Handshake` in system_engine.py.
enum Kind : int64_t { AR_SHOWN, AR, R, AW_SHOWN, AW, W, B };

// A handshake of a manager's port, or of memory's, where `manager` is the id and `memory` is 1. `value`: whether a beat
// is its burst's last, or an address.
struct Event {
    int64_t cycle, memory, manager, kind, value;
};

struct Part {
    uint64_t origin = 0, past = 0;  // the run's cycle 0, and the cycle after its last one
    bool running = false, finished = false, shows_ar = false, shows_aw = false;
    Timeline timeline;
};

}  // namespace

struct System {
    VerilatedContext context;
    std::unique_ptr<Vdut> top;
    Clock clock;
    dovetail::AxiMemory<BUS_BYTES, IN_FLIGHT, true> memory;
    dovetail::AxiCycle bus;
    std::deque<unsigned> reads, writes;  // ids, in the order of acceptance
    Part parts[COUNT];
    std::vector<Event> events;
    bool log = false;
    uint64_t now = 0;
    Waves waves;

    System() {
        context.traceEverOn(VM_TRACE);
        top = std::make_unique<Vdut>(&context, "top");
        top->s_axil_bready = 1;
        top->s_axil_rready = 1;
        clock = Clock(top.get());
        top->rst = 1;
        for (int i = 0; i < 4; ++i) cycle();
        top->rst = 0;
        memory.reset();
        cycle();
    }

    void cycle() {
        Vdut* const t = top.get();
        memory.begin(now, bus, &t->m_axi_rdata);
        show_memory(t, bus);
        t->m_axi_rid = reads.empty() ? 0 : reads.front();
        t->m_axi_bid = writes.empty() ? 0 : writes.front();
        clock.settle();
        handshakes();
#define UNIT(trace, number, name) NOTE_UNIT(part.timeline, t, trace, number, name, now - part.origin)
#define ACCELERATOR(k)                                                                                               \
    {                                                                                                                \
        Part& part = parts[k];                                                                                       \
        if (t->a##k##_trace_busy) {                                                                                  \
            if (UNLIKELY(!part.running)) begin(part);                                                                \
            UNIT(a##k##_trace, 0, load)                                                                              \
            UNIT(a##k##_trace, 1, array)                                                                             \
            UNIT(a##k##_trace, 2, vector)                                                                            \
            UNIT(a##k##_trace, 3, store)                                                                             \
        } else if (part.running) {                                                                                   \
            part.running = false;                                                                                    \
            part.finished = true;                                                                                    \
            part.past = now;                                                                                         \
        }                                                                                                            \
        if (log) show(k, part, t->a##k##_trace_bus);                                                                 \
    }
        ACCELERATORS
#undef ACCELERATOR
#undef UNIT
        if (UNLIKELY(waves.on())) waves.dump(10 * now);
        clock.edge();
        if (UNLIKELY(waves.on())) waves.dump(10 * now + 5);
        t->clk = 0;
        ++now;
    }

    void begin(Part& part) {
        part.running = true;
        part.origin = now;
        part.timeline.clear();
    }

    void note(int64_t at_memory, int64_t manager, Kind kind, int64_t value) {
        if (log) events.push_back({int64_t(now), at_memory, manager, kind, value});
    }

    // A manager's port: the bits of `BusTrace`.
    void show(unsigned k, Part& part, unsigned bits) {
        const bool ar = bits & 1, arvalid = bits >> 1 & 1, aw = bits >> 4 & 1, awvalid = bits >> 5 & 1;
        if (arvalid && !part.shows_ar) note(0, k, AR_SHOWN, 0);
        if (ar) note(0, k, AR, 0);
        part.shows_ar = arvalid && !ar;
        if (bits >> 2 & 1) note(0, k, R, bits >> 3 & 1);
        if (awvalid && !part.shows_aw) note(0, k, AW_SHOWN, 0);
        if (aw) note(0, k, AW, 0);
        part.shows_aw = awvalid && !aw;
        if (bits >> 6 & 1) note(0, k, W, 0);
        if (bits >> 7 & 1) note(0, k, B, 1);
    }

    // Memory's side.
    void handshakes() {
        Vdut* const t = top.get();
        show_manager(t, bus);
        if (LIKELY(!(bus.arvalid | bus.awvalid | bus.wvalid | bus.rvalid | bus.bvalid))) return;
        if (bus.rvalid && bus.rready) {
            note(1, reads.front(), R, bus.rlast);
            if (bus.rlast) reads.pop_front();
        }
        if (bus.arvalid && bus.arready) {
            note(1, t->m_axi_arid, AR, bus.araddr);
            reads.push_back(t->m_axi_arid);
        }
        if (bus.wvalid && bus.wready) note(1, -1, W, bus.wlast);
        if (bus.bvalid && bus.bready) {
            note(1, writes.front(), B, 1);
            writes.pop_front();
        }
        if (bus.awvalid && bus.awready) {
            note(1, t->m_axi_awid, AW, bus.awaddr);
            writes.push_back(t->m_axi_awid);
        }
        memory.end(now, bus, &t->m_axi_wdata, t->m_axi_wstrb);
    }

    bool idle() const {
        for (const Part& part : parts)
            if (part.running) return false;
        return reads.empty() && writes.empty();
    }
};

extern "C" {
#pragma GCC visibility push(default)

System* sys_new() { return new System; }
void sys_delete(System* s) { delete s; }

void sys_memory(System* s, uint8_t* data, uint64_t size, uint64_t read_latency, uint64_t write_latency,
                uint64_t beat_cycles) {
    s->memory.data = data;
    s->memory.size = size;
    s->memory.timing = {read_latency, write_latency, beat_cycles};
}

int sys_write(System* s, uint32_t address, uint32_t value, uint8_t* response) {
    return host_write(s->top.get(), address, value, response, [s] { s->cycle(); });
}

int sys_read(System* s, uint32_t address, uint32_t* value, uint8_t* response) {
    return host_read(s->top.get(), address, value, response, [s] { s->cycle(); });
}

// Forgets the runs so far; handshakes are noted from now on, or no longer.
void sys_begin(System* s, int log) {
    for (Part& part : s->parts) part.finished = false;
    s->events.clear();
    s->log = log;
}

void sys_advance(System* s, uint64_t cycles) {
    while (cycles--) s->cycle();
}

// Goes on until the accelerators that have begun a run are idle, `started` runs have ended, and no burst is open.
int sys_finish(System* s, int started, uint64_t limit) {
    for (const uint64_t first = s->now; s->now - first < limit;) {
        if (s->memory.violation) return PROTOCOL;
        int ended = 0;
        for (const Part& part : s->parts) ended += part.finished;
        if (ended == started && s->idle()) return DONE;
        s->cycle();
    }
    return TIMEOUT;
}

const char* sys_violation(System* s) { return s->memory.violation ? s->memory.violation : ""; }
uint64_t sys_now(System* s) { return s->now; }
uint64_t sys_origin(System* s, int k) { return s->parts[k].origin; }
uint64_t sys_cycles(System* s, int k) { return s->parts[k].past - s->parts[k].origin; }
int sys_irq(System* s) { return s->top->irq; }

uint64_t sys_entries(System* s, int k, int64_t* out) { return s->parts[k].timeline.copy(out); }

uint64_t sys_events(System* s, int64_t* out) {
    if (out && !s->events.empty()) memcpy(out, s->events.data(), s->events.size() * sizeof(Event));
    return s->events.size();
}

int sys_waves(System* s, const char* path) { return s->waves.open(s->top.get(), path); }

#pragma GCC visibility pop
}
