// The model of a memory from numbers, as Python gives them.
#pragma once

#include <cstring>
#include <memory>

#include "dram_model.h"
#include "sdram_model.h"

namespace dovetail {

enum MemoryKind { FIXED, SDRAM, DRAM };

template <typename Model, typename Parameters>
std::unique_ptr<MemoryModel> modelled(const int64_t* numbers) {
    Parameters parameters;
    memcpy(&parameters, numbers, sizeof parameters);
    return std::make_unique<Model>(parameters);
}

// None for FIXED, whose numbers are those of MemoryTiming.
inline std::unique_ptr<MemoryModel> memory_model(int kind, const int64_t* numbers) {
    if (kind == SDRAM) return modelled<SdramModel, SdramParameters>(numbers);
    if (kind == DRAM) return modelled<DramModel, DramParameters>(numbers);
    return nullptr;
}

// Gives a memory its timing.
template <typename Memory>
void set_timing(Memory& memory, int kind, const int64_t* numbers) {
    memory.model = memory_model(kind, numbers);
    if (kind == FIXED) memory.timing = {uint64_t(numbers[0]), uint64_t(numbers[1]), uint64_t(numbers[2])};
}

}  // namespace dovetail
