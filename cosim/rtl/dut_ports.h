// The ports that Verilated accelerators, systems, SoCs and boards have in common: the host's AXI4-Lite port and the AXI4
// port to memory (not of SoCs and boards), and what an accelerator shows of its timeline.
#pragma once

#include "Vdut.h"
#include "axi_bus.h"

#include <cstdint>
#include <cstring>
#include <vector>

#define LIKELY(x) __builtin_expect(!!(x), 1)
#define UNLIKELY(x) __builtin_expect(!!(x), 0)

constexpr int HOST_LIMIT = 1000;  // cycles for one host access

// A write on the host's port; false when it does not answer. `cycle` lets a clock cycle pass, `response` may be null.
template <typename Dut, typename Cycle>
bool host_write(Dut* t, uint32_t address, uint32_t value, uint8_t* response, Cycle cycle) {
    t->s_axil_awaddr = address;
    t->s_axil_wdata = value;
    t->s_axil_wstrb = 15;
    t->s_axil_awvalid = t->s_axil_wvalid = 1;
    for (int i = 0; i < HOST_LIMIT; ++i) {
        const bool aw = t->s_axil_awvalid && t->s_axil_awready, w = t->s_axil_wvalid && t->s_axil_wready;
        const bool answered = t->s_axil_bvalid;
        if (answered && response) *response = t->s_axil_bresp;
        cycle();
        if (aw) t->s_axil_awvalid = 0;
        if (w) t->s_axil_wvalid = 0;
        if (answered) return true;
    }
    return false;
}

// A read on the host's port, likewise.
template <typename Dut, typename Cycle>
bool host_read(Dut* t, uint32_t address, uint32_t* value, uint8_t* response, Cycle cycle) {
    t->s_axil_araddr = address;
    t->s_axil_arvalid = 1;
    for (int i = 0; i < HOST_LIMIT; ++i) {
        const bool ar = t->s_axil_arvalid && t->s_axil_arready, answered = t->s_axil_rvalid;
        if (answered) {
            *value = t->s_axil_rdata;
            if (response) *response = t->s_axil_rresp;
        }
        cycle();
        if (ar) t->s_axil_arvalid = 0;
        if (answered) return true;
    }
    return false;
}

// What memory shows, given to the design. Ids are the caller's.
template <typename Dut>
void show_memory(Dut* t, const dovetail::AxiCycle& bus) {
    t->m_axi_arready = bus.arready;
    t->m_axi_rvalid = bus.rvalid;
    t->m_axi_rlast = bus.rlast;
    t->m_axi_rresp = bus.rresp;
    t->m_axi_awready = bus.awready;
    t->m_axi_wready = bus.wready;
    t->m_axi_bvalid = bus.bvalid;
    t->m_axi_bresp = bus.bresp;
}

// What the design shows, given to memory.
template <typename Dut>
void show_manager(const Dut* t, dovetail::AxiCycle& bus) {
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
}

struct Entry {
    int64_t unit, pc, fetch, start, end;  // cycles of the run
};

// What the units of an accelerator have done in its last run.
struct Timeline {
    std::vector<Entry> entries;
    size_t open[4] = {};  // entry that each unit works on, plus 1

    void clear() {
        entries.clear();
        memset(open, 0, sizeof open);
    }

    void begin(int64_t unit, int64_t pc, int64_t fetch, int64_t cycle) {
        entries.push_back({unit, pc, fetch, cycle, -1});
        open[unit] = entries.size();
    }

    void end(int64_t unit, int64_t cycle) {
        if (!open[unit]) return;
        entries[open[unit] - 1].end = cycle;
        open[unit] = 0;
    }

    // Their number; `out` may be null.
    uint64_t copy(int64_t* out) const {
        if (out && !entries.empty()) memcpy(out, entries.data(), entries.size() * sizeof(Entry));
        return entries.size();
    }
};

// Notes what a unit shows in a cycle of a run: `trace` begins the names of the accelerator's trace outputs.
#define NOTE_UNIT(timeline, top, trace, number, unit, cycle)                                     \
    if (UNLIKELY(top->trace##_##unit##_end)) timeline.end(number, int64_t(cycle));               \
    if (UNLIKELY(top->trace##_##unit##_start))                                                   \
        timeline.begin(number, int64_t(top->trace##_##unit##_pc), top->trace##_##unit##_fetch, int64_t(cycle));
