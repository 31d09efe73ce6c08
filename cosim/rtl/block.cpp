// Drives one block: poke, peek, tick, and whole streams of inputs without a return to Python.
// `ports.inc`, generated per block, holds PORT(number, name) for every port but the clock.
#include "Vdut.h"
#include "verilated.h"
#include "waves.h"

#include <cstdint>
#include <cstring>
#include <memory>

#define EXPORT extern "C" __attribute__((visibility("default")))

namespace {

struct Block {
    VerilatedContext context;
    std::unique_ptr<Vdut> top;
    uint64_t time = 0;
    Waves waves;

    Block() {
        context.traceEverOn(VM_TRACE);
        top = std::make_unique<Vdut>(&context, "top");
        top->eval();
    }

    void dump() {
        if (waves.on()) waves.dump(time);
        ++time;
    }

    // Settles the outputs of the present cycle.
    void settle() { top->eval(); }

    // One cycle: the rising edge with the present inputs, then the outputs of the next one.
    void tick() {
        top->eval();
        dump();
#if HAS_CLOCK
        top->clk = 1;
        top->eval();
        dump();
        top->clk = 0;
        top->eval();
#endif
    }
};

char* at(Block* block, int index, size_t* size) {
    Vdut* top = block->top.get();
    switch (index) {
#define PORT(number, name)         \
    case number:                   \
        *size = sizeof(top->name); \
        return reinterpret_cast<char*>(&top->name);
#include "ports.inc"
#undef PORT
    }
    *size = 0;
    return nullptr;
}

struct Stream {
    char* port;
    size_t size;
    char* data;
};

}  // namespace

EXPORT Block* block_new() { return new Block; }
EXPORT void block_delete(Block* block) {
    block->waves.close();
    block->top->final();
    delete block;
}

EXPORT uint64_t block_size(Block* block, int port) {
    size_t size;
    at(block, port, &size);
    return size;
}
EXPORT void block_poke(Block* block, int port, const char* value) {
    size_t size;
    char* place = at(block, port, &size);
    memcpy(place, value, size);
}
EXPORT void block_peek(Block* block, int port, char* value) {
    size_t size;
    block->settle();
    char* place = at(block, port, &size);
    memcpy(value, place, size);
}
EXPORT void block_tick(Block* block, uint64_t cycles) {
    for (uint64_t i = 0; i < cycles; ++i) block->tick();
}

// `cycles` cycles: in each, pokes a row of every input array, settles, appends a row to every output array, ticks.
EXPORT void block_stream(Block* block, uint64_t cycles, int inputs, const int* in_ports, const char* const* in_data,
                         int outputs, const int* out_ports, char* const* out_data) {
    std::unique_ptr<Stream[]> in(new Stream[inputs]), out(new Stream[outputs]);
    for (int i = 0; i < inputs; ++i) {
        in[i].port = at(block, in_ports[i], &in[i].size);
        in[i].data = const_cast<char*>(in_data[i]);
    }
    for (int i = 0; i < outputs; ++i) {
        out[i].port = at(block, out_ports[i], &out[i].size);
        out[i].data = out_data[i];
    }
    for (uint64_t cycle = 0; cycle < cycles; ++cycle) {
        for (int i = 0; i < inputs; ++i) {
            memcpy(in[i].port, in[i].data, in[i].size);
            in[i].data += in[i].size;
        }
        block->settle();
        for (int i = 0; i < outputs; ++i) {
            memcpy(out[i].data, out[i].port, out[i].size);
            out[i].data += out[i].size;
        }
        block->tick();
    }
}

// Starts a wave dump to a file, or ends it with nullptr. False: the library was built without.
EXPORT int block_waves(Block* block, const char* path) { return block->waves.open(block->top.get(), path); }
