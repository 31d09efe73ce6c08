// Runs a program on the Verilated SoC: memory, what the program tells, and the accelerator's timeline.
#include "simulation.h"

#include <cstdint>
#include <string>
#include <vector>

namespace {

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

struct Soc : Simulation {
    std::string console;
    std::vector<Mark> marks;
    std::vector<Run> runs;
    bool running = false, ended = false;
    uint32_t status = 0;

    void reset() {
        top->rst = 1;
        for (int i = 0; i < 4; ++i) cycle();
        top->rst = 0;
        memory.reset();
        now = 0;
    }

    void cycle() {
        begin();
        answer([this](Handshake kind, int64_t id, int64_t) {
            if (running && (kind == AR || kind == AW) && id == PROCESSOR) ++runs.back().bursts;
        });
        if (UNLIKELY(top->told)) listen();
        if (top->trace_busy) timeline();
        else if (UNLIKELY(running)) {
            running = false;
            runs.back().past = now;
        }
        edge();
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
};

extern "C" {
#pragma GCC visibility push(default)

Soc* soc_new() { return new Soc; }
void soc_delete(Soc* s) { delete s; }

// Begins: memory of `size` bytes from address 0 on, the SoC out of its reset.
void soc_begin(Soc* s, uint8_t* data, uint64_t size, int kind, const int64_t* timing) {
    s->set_memory(data, size, kind, timing);
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

const char* soc_violation(Soc* s) { return s->violation(); }
const char* soc_console(Soc* s) { return s->console.c_str(); }
uint64_t soc_now(Soc* s) { return s->now; }
uint32_t soc_status(Soc* s) { return s->status; }

uint64_t soc_marks(Soc* s, int64_t* out) { return copied(s->marks, out); }

uint64_t soc_runs(Soc* s) { return s->runs.size(); }
int64_t soc_origin(Soc* s, uint64_t run) { return s->runs[run].origin; }
int64_t soc_past(Soc* s, uint64_t run) { return s->runs[run].past; }
int64_t soc_bursts(Soc* s, uint64_t run) { return s->runs[run].bursts; }
uint64_t soc_entries(Soc* s, uint64_t run, int64_t* out) { return s->runs[run].timeline.copy(out); }

int soc_waves(Soc* s, const char* path) { return s->waves.open(s->top.get(), path); }

#pragma GCC visibility pop
}
