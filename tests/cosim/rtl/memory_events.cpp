// The compiled memories of the timing core, to be driven from Python.
#include "dram.h"
#include "sdram.h"

#include <memory>

using namespace memories;
#define EXPORT extern "C" __attribute__((visibility("default")))

EXPORT Memory* memory_new(int kind, const i64* numbers) {
    if (kind == 1) return new Sdram(*reinterpret_cast<const SdramTiming*>(numbers));
    return new Dram(*reinterpret_cast<const DramTiming*>(numbers));
}
EXPORT void memory_delete(Memory* memory) { delete memory; }
EXPORT void memory_take(Memory* memory, const i64* burst) {
    memory->take({burst[0] != 0, 0, u64(burst[1]), burst[2], burst[3], burst[4], burst[5]});
}
EXPORT i64 memory_next(Memory* memory) { return memory->next; }
EXPORT void memory_serve(Memory* memory, i64 before) { memory->serve(before); }
// The reports since the last call, as pairs of kind and cycle: their number.
EXPORT i64 memory_reports(Memory* memory, i64* out) {
    i64 count = 0;
    for (const Report& report : memory->reports) out[2 * count] = report.kind, out[2 * count + 1] = report.cycle, ++count;
    memory->reports.clear();
    return count;
}
