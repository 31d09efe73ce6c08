// A dump of waves, in the format that the library was built with. A library built without dumps none.
#pragma once

#include "Vdut.h"
#include "verilated.h"

#include <cstdint>
#include <memory>

#if VM_TRACE_FST
#include "verilated_fst_c.h"
typedef VerilatedFstC WaveFile;
#elif VM_TRACE
#include "verilated_vcd_c.h"
typedef VerilatedVcdC WaveFile;
#endif

#if VM_TRACE
struct Waves {
    std::unique_ptr<WaveFile> file;

    bool on() const { return bool(file); }
    void dump(uint64_t time) { file->dump(time); }

    // Begins a file, or only ends the one before if `path` is null. False: the library was built without waves.
    bool open(Vdut* top, const char* path) {
        close();
        if (path) {
            file = std::make_unique<WaveFile>();
            top->trace(file.get(), 99);
            file->open(path);
        }
        return true;
    }

    void close() {
        if (file) file->close();
        file.reset();
    }
};
#else
struct Waves {
    static constexpr bool on() { return false; }
    void dump(uint64_t) {}
    bool open(Vdut*, const char* path) { return !path; }
    void close() {}
};
#endif
