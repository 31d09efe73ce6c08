// Runs programs on the Verilated accelerator: host port, memory and timeline in one C++ loop.
#include "Vdut.h"
#include "accelerator.h"
#include "axi_memory.h"
#include "clock.h"
#include "dut_ports.h"
#include "memory_models.h"
#include "verilated.h"
#include "waves.h"

#include <cstdint>
#include <memory>

#if VM_COVERAGE
#include "verilated_cov.h"
#endif

struct Accelerator {
    VerilatedContext context;
    std::unique_ptr<Vdut> top;
    Clock clock;
    dovetail::AxiMemory<BUS_BYTES> memory;
    dovetail::AxiCycle bus;
    uint64_t now = 0;     // cycles since the instance was made
    uint64_t origin = 0;  // `now` of the run's cycle 0
    bool running = false, finished = false;
    Timeline timeline;
    const char* message = "";
    Waves waves;
    bool windowed = false;  // only cycles `first` .. `past` - 1 of a run are dumped, from its cycle 0 on
    uint64_t first = 0, past = 0;

    Accelerator() {
        context.traceEverOn(VM_TRACE);
        top = std::make_unique<Vdut>(&context, "top");
        top->s_axil_bready = 1;
        top->s_axil_rready = 1;
        top->m_axi_arready = 1;
        top->m_axi_awready = 1;
        top->m_axi_wready = 1;
        clock = Clock(top.get());
        reset();
    }

    void reset() {
        top->rst = 1;
        for (int i = 0; i < 4; ++i) cycle();
        top->rst = 0;
        memory.reset();
        cycle();
    }

    // Ten units of time a cycle.
    void dump(uint64_t half) {
        if (LIKELY(!waves.on())) return;
        const uint64_t cycle = windowed ? now - origin : now;
        if (!windowed || (running && cycle >= first && cycle < past)) waves.dump(10 * cycle + 5 * half);
    }

    // One clock cycle: memory's side, settle, manager's side and timeline, edge. What the accelerator shows on its buses
    // comes from registers: it is there after the edge, whatever the other sides do in the cycle.
    void cycle() {
        Vdut* const t = top.get();
        memory.begin(now, bus, &t->m_axi_rdata, t->m_axi_wvalid);
        show_memory(t, bus);
        clock.settle();
        if (UNLIKELY(t->m_axi_arvalid | t->m_axi_awvalid | t->m_axi_wvalid | bus.rvalid | bus.bvalid)) manager();
        if (t->trace_busy) trace();
        else if (running) stop();
        dump(0);
        clock.edge();
        dump(1);
        t->clk = 0;
        ++now;
    }

    void manager() {
        Vdut* const t = top.get();
        show_manager(t, bus);
        memory.end(now, bus, &t->m_axi_wdata, t->m_axi_wstrb);
    }

    void trace() {
        Vdut* const t = top.get();
        if (UNLIKELY(!running)) {
            running = true;
            origin = now;
            timeline.clear();
            memory.start();
        }
#define UNIT(number, name) NOTE_UNIT(timeline, t, trace, number, name, now - origin)
        UNIT(0, load)
        UNIT(1, array)
#if HAS_VECTOR
        UNIT(2, vector)
#endif
        UNIT(3, store)
#undef UNIT
    }

    void stop() {
        running = false;
        finished = true;
    }

    bool write(uint32_t address, uint32_t value) {
        return host_write(top.get(), address, value, nullptr, [this] { cycle(); });
    }

    bool read(uint32_t address, uint32_t* value) {
        return host_read(top.get(), address, value, nullptr, [this] { cycle(); });
    }

    // At most HOST_LIMIT cycles from the write to busy.
    int start(uint32_t address, uint32_t value) {
        timeline.clear();
        running = finished = false;
        message = "";
        const uint64_t begin = now;
        if (!write(address, value)) return ACC_NOT_STARTED;
        while (!running && !finished) {
            if (now - begin > HOST_LIMIT) return ACC_NOT_STARTED;
            cycle();
        }
        return ACC_DONE;
    }

    int finish(uint64_t limit) {
        while (LIKELY(!finished)) {
            if (UNLIKELY(now - origin >= limit)) return ACC_TIMEOUT;
            cycle();
        }
        if (memory.violation) {
            message = memory.violation;
            return ACC_PROTOCOL;
        }
        return ACC_DONE;
    }
};

// Also in libraries that count nothing: g++ matches counts with functions by their order.
extern "C" __attribute__((weak, visibility("default"))) void __gcov_dump(void);
void acc_profile(void) {
    if (__gcov_dump) __gcov_dump();
}

int acc_direct(void) { return Clock::DIRECT; }
Accelerator* acc_new(void) { return new Accelerator; }
void acc_delete(Accelerator* a) {
    a->waves.close();
    a->top->final();
    delete a;
}
void acc_reset(Accelerator* a) { a->reset(); }

void acc_memory(Accelerator* a, uint8_t* data, uint64_t size, int kind, const int64_t* timing) {
    a->memory.data = data;
    a->memory.size = size;
    dovetail::set_timing(a->memory, kind, timing);
}

int acc_write(Accelerator* a, uint32_t address, uint32_t value) { return a->write(address, value); }
int acc_read(Accelerator* a, uint32_t address, uint32_t* value) { return a->read(address, value); }

void acc_broken(Accelerator* a, const uint64_t* parts, uint64_t count) {
    a->memory.broken.clear();
    for (uint64_t i = 0; i < count; ++i) a->memory.broken.push_back({parts[2 * i], parts[2 * i + 1]});
}

void acc_stalls(Accelerator* a, uint64_t seed, uint32_t one_in, uint32_t longest) {
    a->memory.stalls = {one_in, longest, seed | 1, 0};
}

uint64_t acc_stalled(Accelerator* a) { return a->memory.stalls.total; }

int acc_start(Accelerator* a, uint32_t address, uint32_t value) { return a->start(address, value); }

int acc_finish(Accelerator* a, uint64_t limit) { return a->finish(limit); }
const char* acc_message(Accelerator* a) { return a->message; }

uint64_t acc_cycles(Accelerator* a) { return a->now - a->origin; }
uint64_t acc_now(Accelerator* a) { return a->now; }
const char* acc_violation(Accelerator* a) { return a->memory.violation; }

uint64_t acc_entries(Accelerator* a, int64_t* out) { return a->timeline.copy(out); }
void acc_advance(Accelerator* a, uint64_t cycles) {
    while (cycles--) a->cycle();
}
int acc_wait(Accelerator* a, uint64_t limit) {
    for (uint64_t n = 0; n < limit && !a->top->irq; ++n) a->cycle();
    return a->top->irq;
}
int acc_irq(Accelerator* a) { return a->top->irq; }

int acc_window(Accelerator* a, const char* path, uint64_t first, uint64_t past) {
    const int built = acc_waves(a, path);
    a->windowed = true;
    a->first = first;
    a->past = past;
    return built;
}

int acc_waves(Accelerator* a, const char* path) {
    a->windowed = false;
    return a->waves.open(a->top.get(), path);
}

int acc_coverage(Accelerator* a, const char* path) {
#if VM_COVERAGE
    a->context.coveragep()->write(path);
    return 1;
#else
    (void)a;
    (void)path;
    return 0;
#endif
}
