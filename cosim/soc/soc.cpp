// Runs a program on the Verilated SoC: memory, what the program tells, and the accelerator's timeline.
#include "Vdut.h"
#include "axi_memory.h"
#include "clock.h"
#include "verilated.h"
#include "waves.h"

#include <cstdint>
#include <cstring>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#define UNLIKELY(x) __builtin_expect(!!(x), 0)

namespace {

constexpr unsigned IN_FLIGHT = 64;

enum Status { RUNNING = -1, ENDED = 0, PROTOCOL = 1, NO_ANSWER = 2 };

struct Mark {
    int64_t cycle, number;
};

// A run of the accelerator: its cycle 0, the cycle after its last one, and bursts of the processor meanwhile.
struct Run {
    int64_t origin, past, bursts;
};

// In cycles of its run.
struct Entry {
    int64_t run, unit, pc, fetch, start, end;
};

}  // namespace

struct Soc {
    VerilatedContext context;
    std::unique_ptr<Vdut> top;
    Clock clock;
    dovetail::AxiMemory<BUS_BYTES, IN_FLIGHT, true> memory;
    dovetail::AxiCycle bus;
    std::deque<unsigned> reads, writes;  // ids, in the order of acceptance
    std::string console;
    std::vector<Mark> marks;
    std::vector<Run> runs;
    std::vector<Entry> entries;
    size_t open[4] = {};  // entry that each unit works on, plus 1
    bool running = false, ended = false;
    uint32_t status = 0;
    uint64_t now = 0;
    Waves waves;

    Soc() {
        context.traceEverOn(VM_TRACE);
        top = std::make_unique<Vdut>(&context, "top");
        clock = Clock(top.get());
    }

    void reset() {
        top->rst = 1;
        for (int i = 0; i < 4; ++i) cycle();
        top->rst = 0;
        memory.reset();
        now = 0;
        memory.read_beats = memory.write_beats = {};
    }

    void cycle() {
        Vdut* const t = top.get();
        memory.begin(now, bus, &t->m_axi_rdata);
        t->m_axi_arready = bus.arready;
        t->m_axi_rvalid = bus.rvalid;
        t->m_axi_rlast = bus.rlast;
        t->m_axi_rresp = bus.rresp;
        t->m_axi_rid = reads.empty() ? 0 : reads.front();
        t->m_axi_awready = bus.awready;
        t->m_axi_wready = bus.wready;
        t->m_axi_bvalid = bus.bvalid;
        t->m_axi_bresp = bus.bresp;
        t->m_axi_bid = writes.empty() ? 0 : writes.front();
        clock.settle();
        if (t->m_axi_arvalid | t->m_axi_awvalid | t->m_axi_wvalid | bus.rvalid | bus.bvalid) handshakes();
        if (UNLIKELY(t->told)) listen();
        if (t->trace_busy) timeline();
        else if (UNLIKELY(running)) {
            running = false;
            runs.back().past = now;
        }
        if (UNLIKELY(waves.on())) waves.dump(10 * now);
        clock.edge();
        if (UNLIKELY(waves.on())) waves.dump(10 * now + 5);
        t->clk = 0;
        ++now;
    }

    void listen() {
        switch (top->topic) {
        case CONSOLE: console.push_back(char(top->value)); break;
        case EXIT: ended = true, status = top->value; break;
        case MARK: marks.push_back({int64_t(now), int64_t(top->value)}); break;
        }
    }

    void timeline() {
        Vdut* const t = top.get();
        if (UNLIKELY(!running)) {
            running = true;
            runs.push_back({int64_t(now), -1, 0});
            memset(open, 0, sizeof open);
        }
        const int64_t run = runs.size() - 1, cycle = now - runs.back().origin;
#define UNIT(number, name)                                                                                         \
    if (UNLIKELY(t->trace_##name##_end) && open[number]) {                                                         \
        entries[open[number] - 1].end = cycle;                                                                     \
        open[number] = 0;                                                                                          \
    }                                                                                                              \
    if (UNLIKELY(t->trace_##name##_start)) {                                                                       \
        entries.push_back({run, number, int64_t(t->trace_##name##_pc), t->trace_##name##_fetch, cycle, -1});       \
        open[number] = entries.size();                                                                             \
    }
        UNIT(0, load)
        UNIT(1, array)
        UNIT(2, vector)
        UNIT(3, store)
#undef UNIT
    }

    void handshakes() {
        Vdut* const t = top.get();
        bus.arvalid = t->m_axi_arvalid;
        bus.araddr = t->m_axi_araddr;
        bus.arlen = t->m_axi_arlen;
        bus.arsize = t->m_axi_arsize;
        bus.arburst = t->m_axi_arburst;
        bus.rready = t->m_axi_rready;
        bus.awvalid = t->m_axi_awvalid;
        bus.awaddr = t->m_axi_awaddr;
        bus.awlen = t->m_axi_awlen;
        bus.awsize = t->m_axi_awsize;
        bus.awburst = t->m_axi_awburst;
        bus.wvalid = t->m_axi_wvalid;
        bus.wlast = t->m_axi_wlast;
        bus.bready = t->m_axi_bready;
        if (bus.rvalid && bus.rready && bus.rlast) reads.pop_front();
        if (bus.bvalid && bus.bready) writes.pop_front();
        if (bus.arvalid && bus.arready) taken(reads, t->m_axi_arid);
        if (bus.awvalid && bus.awready) taken(writes, t->m_axi_awid);
        memory.end(now, bus, &t->m_axi_wdata, t->m_axi_wstrb);
    }

    void taken(std::deque<unsigned>& ids, unsigned id) {
        ids.push_back(id);
        if (running && id == PROCESSOR) ++runs.back().bursts;
    }
};

extern "C" {
#pragma GCC visibility push(default)

Soc* soc_new() { return new Soc; }
void soc_delete(Soc* s) { delete s; }

// Begins: memory of `size` bytes from address 0 on, the SoC out of its reset.
void soc_begin(Soc* s, uint8_t* data, uint64_t size, uint64_t read_latency, uint64_t write_latency,
               uint64_t beat_cycles) {
    s->memory.data = data;
    s->memory.size = size;
    s->memory.timing = {read_latency, write_latency, beat_cycles};
    s->reset();
}

// Goes on for so many cycles at most, until the program ends.
int soc_go(Soc* s, uint64_t cycles) {
    for (const uint64_t past = s->now + cycles; s->now < past;) {
        s->cycle();
        if (UNLIKELY(s->ended)) return ENDED;
        if (UNLIKELY(s->memory.violation)) return PROTOCOL;
        if (UNLIKELY(s->top->error)) return NO_ANSWER;
    }
    return RUNNING;
}

const char* soc_violation(Soc* s) { return s->memory.violation ? s->memory.violation : ""; }
const char* soc_console(Soc* s) { return s->console.c_str(); }
uint64_t soc_now(Soc* s) { return s->now; }
uint32_t soc_status(Soc* s) { return s->status; }

#define LIST(name, type, list)                                                               \
    uint64_t soc_##name(Soc* s, int64_t* out) {                                              \
        if (out && !s->list.empty()) memcpy(out, s->list.data(), s->list.size() * sizeof(type)); \
        return s->list.size();                                                               \
    }
LIST(marks, Mark, marks)
LIST(runs, Run, runs)
LIST(entries, Entry, entries)
#undef LIST

int soc_waves(Soc* s, const char* path) { return s->waves.open(s->top.get(), path); }

#pragma GCC visibility pop
}
