// Runs a program on the Verilated SoC: memory, what the program tells, and the accelerator's timeline.
#include "Vdut.h"
#include "axi_memory.h"
#include "clock.h"
#include "dut_ports.h"
#include "memory_models.h"
#include "verilated.h"
#include "waves.h"

#include <cstdint>
#include <cstring>
#include <deque>
#include <memory>
#include <string>
#include <vector>

namespace {

constexpr unsigned IN_FLIGHT = 64;

enum Status { RUNNING = -1, ENDED = 0, PROTOCOL = 1, NO_ANSWER = 2 };

struct Mark {
    int64_t cycle, number;
};

// A run of the accelerator: its cycle 0, the cycle after its last one, and bursts of the processor meanwhile.
struct Run {
    int64_t origin, past = -1, bursts = 0;
    Timeline timeline;
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
        memory.begin(now, bus, &t->m_axi_rdata, t->m_axi_wvalid);
        show_memory(t, bus);
        t->m_axi_rid = reads.empty() ? 0 : reads.front();
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
            runs.push_back({int64_t(now)});
        }
        Run& run = runs.back();
#define UNIT(number, name) NOTE_UNIT(run.timeline, t, trace, number, name, now - run.origin)
        UNIT(0, load) UNIT(1, array) UNIT(2, vector) UNIT(3, store)
#undef UNIT
    }

    void handshakes() {
        Vdut* const t = top.get();
        show_manager(t, bus);
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
void soc_begin(Soc* s, uint8_t* data, uint64_t size, int kind, const int64_t* timing) {
    s->memory.data = data;
    s->memory.size = size;
    dovetail::set_timing(s->memory, kind, timing);
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

uint64_t soc_marks(Soc* s, int64_t* out) {
    if (out && !s->marks.empty()) memcpy(out, s->marks.data(), s->marks.size() * sizeof(Mark));
    return s->marks.size();
}

uint64_t soc_runs(Soc* s) { return s->runs.size(); }
int64_t soc_origin(Soc* s, uint64_t run) { return s->runs[run].origin; }
int64_t soc_past(Soc* s, uint64_t run) { return s->runs[run].past; }
int64_t soc_bursts(Soc* s, uint64_t run) { return s->runs[run].bursts; }
uint64_t soc_entries(Soc* s, uint64_t run, int64_t* out) { return s->runs[run].timeline.copy(out); }

int soc_waves(Soc* s, const char* path) { return s->waves.open(s->top.get(), path); }

#pragma GCC visibility pop
}
