// Runs programs on a Verilated system: host port, memory, and for each accelerator its timeline and its handshakes.
//
// ACCELERATORS is ACCELERATOR(0) ACCELERATOR(1) ..., COUNT how many they are.
#include "Vdut__Syms.h"
#include "simulation.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <utility>
#include <vector>

namespace {

// The host's registers, and the bits of CONTROL (isa/host.py).
enum Register : uint32_t { CONTROL = 0x10, PROGRAM = 0x20, PAGES = 0x24, BASE = 0x28 };
constexpr uint32_t START = 3;  // with the interrupt

constexpr int64_t MANY = 1024;  // cycles that are worth a look at whether they may be passed over

enum Status { DONE = 0, TIMEOUT = 1, PROTOCOL = 3, FAILED = 4 };

// A handshake of a manager's port, or of memory's, where `manager` is the id and `memory` is 1. `value`: whether a beat
// is its burst's last, or an address.
struct Event {
    int64_t cycle, memory, manager, kind, value;
};

// A run of an accelerator: its cycle 0, and the cycle after its last one.
struct Run {
    uint64_t origin = 0, past = 0;
    bool faulted = false;
    Timeline timeline;
};

struct Part {
    bool running = false, shows_ar = false, shows_aw = false;
    std::vector<Run> runs;
};

// A program that waits for others: where its accelerator's registers are and its number, how many jobs it waits for. Or
// a layer that the host computes in `cycles`, with -1 for the accelerator.
struct Job {
    uint32_t registers, program, pages, base;
    int64_t part, earliest, waits, cycles;
};

// Does what a layer of the host does to memory; whether it could. Also gets its first cycle of the system, and the one
// behind its last.
using Work = int (*)(int job, int64_t first, int64_t past);

}  // namespace

struct System : Simulation {
    Part parts[COUNT];
    std::vector<Event> events;
    bool log = false;
    uint32_t irq = 0;  // in the cycle that has passed

    System() {
        top->s_axil_bready = 1;
        top->s_axil_rready = 1;
        top->rst = 1;
        for (int i = 0; i < 4; ++i) cycle();
        top->rst = 0;
        memory.reset();
        cycle();
    }

    void cycle() {
        Vdut* const t = top.get();
        Simulation::begin();
        irq = t->irq;
        answer([this](Handshake kind, int64_t id, int64_t value) { note(1, id, kind, value); });
#define UNIT(trace, number, name) \
    NOTE_UNIT(part.runs.back().timeline, t, trace, number, name, now - part.runs.back().origin)
#define ACCELERATOR(k)                                                                                               \
    {                                                                                                                \
        Part& part = parts[k];                                                                                       \
        if (t->a##k##_trace_busy) {                                                                                  \
            if (UNLIKELY(!part.running)) start(part);                                                                \
            UNIT(a##k##_trace, 0, load)                                                                              \
            UNIT(a##k##_trace, 1, array)                                                                             \
            UNIT(a##k##_trace, 2, vector)                                                                            \
            UNIT(a##k##_trace, 3, store)                                                                             \
        } else if (part.running) {                                                                                   \
            part.running = false;                                                                                    \
            part.runs.back().past = now;                                                                             \
            part.runs.back().faulted = t->a##k##_trace_faulted;                                                      \
        }                                                                                                            \
        if (log) show(k, part, t->a##k##_trace_bus);                                                                 \
    }
        ACCELERATORS
#undef ACCELERATOR
#undef UNIT
        edge();
    }

    void start(Part& part) {
        part.running = true;
        part.runs.emplace_back().origin = now;
    }

    void note(int64_t at_memory, int64_t manager, Handshake kind, int64_t value) {
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

    bool idle() const {
        for (const Part& part : parts)
            if (part.running) return false;
        return reads.empty() && writes.empty();
    }

    // A cycle; whether it has changed nothing in the design, so that none does until something comes from outside. A
    // memory with a history of its own goes on meanwhile.
    bool rests() {
        const auto* const state = reinterpret_cast<const uint8_t*>(top->rootp->vlSymsp);
        before.assign(state, state + sizeof(Vdut__Syms));
        cycle();
        return !memory.model && !waves.on() && !memcmp(before.data(), state, sizeof(Vdut__Syms));
    }

private:
    std::vector<uint8_t> before;
};

namespace {

// What the host knows of its jobs. It sees interrupts in each cycle, also while it writes.
struct Host {
    System* s;
    const Job* jobs;
    int count;
    const int32_t* waits;
    int32_t* runs;  // -1 until a job is started
    Work work;
    uint64_t zero;
    std::vector<int64_t> ready, missing;  // by job; how many it still waits for
    std::vector<std::vector<int>> readers;
    std::vector<int> under_way;  // the job of an accelerator, -1: none
    int open = 0;                // jobs that are under way
    int layer = -1;              // the host is at this one
    int64_t left, first;         // its cycles that are left, and its first one
    int64_t tried = 0;           // when it was last tried to pass over cycles in which nothing happens

    Host(System* s, const Job* jobs, int count, const int32_t* waits, int32_t* runs, Work work)
        : s(s), jobs(jobs), count(count), waits(waits), runs(runs), work(work), zero(s->now), readers(count),
          under_way(COUNT, -1) {
        for (int job = 0; job < count; ++job) {
            ready.push_back(jobs[job].earliest);
            missing.push_back(jobs[job].waits);
            for (int64_t n = 0; n < jobs[job].waits; ++n) readers[*waits++].push_back(job);
            runs[job] = -1;
        }
    }

    // A cycle passes; runs whose interrupts are seen in it have ended.
    void pass() {
        s->cycle();
        const int64_t cycle = s->now - 1 - zero;
        for (int k = 0; k < COUNT; ++k) {
            const int job = under_way[k];
            const std::vector<Run>& of = s->parts[k].runs;
            if (LIKELY(job < 0 || !(s->irq >> k & 1)) || int(of.size()) <= runs[job] || !of.back().past) continue;
            under_way[k] = -1;
            --open;
            if (!of.back().faulted) release(job, cycle);
        }
    }

    // What waits for a job waits no longer.
    void release(int job, int64_t cycle) {
        for (int other : readers[job]) {
            ready[other] = std::max(ready[other], cycle);
            --missing[other];
        }
    }

    // The cycle that has passed.
    int64_t cycle() const { return int64_t(s->now - 1 - zero); }

    // The program to be started now, or the layer to be computed; -1 if none is ready.
    int next(bool program) {
        int best = -1;
        for (int job = 0; job < count; ++job)
            if (runs[job] < 0 && !missing[job] && ready[job] <= cycle() && (jobs[job].part >= 0) == program &&
                (best < 0 || ready[job] < ready[best]))
                best = job;
        if (best < 0) return best;
        ++open;
        if (!program) return runs[best] = 0, best;
        runs[best] = int(s->parts[jobs[best].part].runs.size());
        return under_way[jobs[best].part] = best;
    }

    // The host works on a layer in the cycle that has passed; whether nothing failed.
    bool compute() {
        if (layer < 0) {
            layer = next(false);
            if (layer < 0) return true;
            left = jobs[layer].cycles, first = cycle();
        }
        if (--left) return true;
        const int job = layer;
        layer = -1;
        --open;
        release(job, cycle() + 1);
        return work(job, first, cycle() + 1);
    }

    // For how many cycles the host only works on its layer, or waits, and accelerators rest.
    int64_t quiet() const {
        if (!s->idle()) return 0;
        for (int job : under_way)
            if (job >= 0) return 0;
        int64_t cycles = layer < 0 ? INT64_MAX : left - 1;
        for (int job = 0; job < count; ++job)
            if (runs[job] < 0 && !missing[job] && (layer < 0 || jobs[job].part >= 0))
                cycles = std::min(cycles, ready[job] - cycle() - 1);
        return cycles < INT64_MAX ? cycles : 0;
    }

    // Passes over such cycles if there are many: the design is the same in all of them.
    void pass_over() {
        if (cycle() - tried < MANY) return;
        const int64_t cycles = quiet();
        if (cycles < MANY) return;
        tried = cycle();
        int64_t passed = 1;
        if (s->rests()) {
            passed = cycles;
            s->now += uint64_t(cycles - 1);
        }
        if (layer >= 0) left -= passed;
    }

    bool done() const {
        for (int job = 0; job < count; ++job)
            if (runs[job] < 0 && !missing[job]) return false;
        return !open && s->idle();
    }

    bool write(uint32_t address, uint32_t value) {
        uint8_t response;
        return host_write(s->top.get(), address, value, &response, [this] { pass(); }) && !response;
    }
};

}  // namespace

extern "C" {
#pragma GCC visibility push(default)

System* sys_new() { return new System; }
void sys_delete(System* s) { delete s; }

void sys_memory(System* s, uint8_t* data, uint64_t size, int kind, const int64_t* timing) {
    s->set_memory(data, size, kind, timing);
}

int sys_write(System* s, uint32_t address, uint32_t value, uint8_t* response) {
    return host_write(s->top.get(), address, value, response, [s] { s->cycle(); });
}

int sys_read(System* s, uint32_t address, uint32_t* value, uint8_t* response) {
    return host_read(s->top.get(), address, value, response, [s] { s->cycle(); });
}

// Forgets the runs so far; handshakes are noted from now on, or no longer.
void sys_begin(System* s, int log) {
    for (Part& part : s->parts) part.runs.clear();
    s->events.clear();
    s->log = log;
    if (s->memory.model) s->memory.model->restart();  // the next cycle is the system's cycle 0
}

void sys_advance(System* s, uint64_t cycles) {
    while (cycles--) s->cycle();
}

// Goes on until the accelerators that have begun a run are idle, `started` runs have ended, and no burst is open.
int sys_finish(System* s, int started, uint64_t limit) {
    for (const uint64_t first = s->now; s->now - first < limit;) {
        if (s->memory.violation) return PROTOCOL;
        int ended = 0;
        for (const Part& part : s->parts) ended += !part.running && !part.runs.empty();
        if (ended == started && s->idle()) return DONE;
        s->cycle();
    }
    return TIMEOUT;
}

// The host of docs/systems.md: starts jobs as they become ready, and computes its own, until all have ended that can.
// `waits`: the numbers of the jobs that each waits for, job by job; `runs`: of each job the number of its accelerator's
// run, -1 if it never started. Cycle 0 of the system is the first one.
int sys_jobs(System* s, int count, const Job* jobs, const int32_t* waits, uint64_t reaction, uint64_t limit,
             int32_t* runs, Work work) {
    Host host{s, jobs, count, waits, runs, work};
    while (!host.done()) {
        if (s->memory.violation) return PROTOCOL;
        if (s->now - host.zero >= limit) return TIMEOUT;
        host.pass();
        const int job = host.next(true);
        if (job < 0) {
            if (!host.compute()) return FAILED;
            host.pass_over();
            continue;
        }
        for (const uint64_t begins = s->now - 1 + reaction; s->now < begins;) host.pass();
        for (const auto& [offset, value] : {std::pair{PROGRAM, jobs[job].program}, std::pair{PAGES, jobs[job].pages},
                                            std::pair{BASE, jobs[job].base}, std::pair{CONTROL, START}})
            if (!host.write(jobs[job].registers + offset, value)) return TIMEOUT;
    }
    return DONE;
}

const char* sys_violation(System* s) { return s->violation(); }
uint64_t sys_now(System* s) { return s->now; }
int sys_irq(System* s) { return s->top->irq; }

// Of a run of an accelerator, by their numbers: cycle 0, cycles, whether it ended with a fault.
void sys_run(System* s, int k, int run, uint64_t* out) {
    const Run& found = s->parts[k].runs[run];
    out[0] = found.origin;
    out[1] = found.past - found.origin;
    out[2] = found.faulted;
}

uint64_t sys_entries(System* s, int k, int run, int64_t* out) {
    return s->parts[k].runs[run].timeline.copy(out);
}

uint64_t sys_events(System* s, int64_t* out) { return copied(s->events, out); }

int sys_waves(System* s, const char* path) { return s->waves.open(s->top.get(), path); }

#pragma GCC visibility pop
}
