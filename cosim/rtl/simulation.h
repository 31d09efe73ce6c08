// A Verilated design with one memory behind an AXI4 port with ids: what systems and SoCs have in common.
//
// A cycle is begin(), what the owner looks at and answer() in whichever order, edge().
#pragma once

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
#include <vector>

// What a handshake is; *_SHOWN: an address is presented, taken or not. The numbers of `Handshake` in system_engine.py.
enum Handshake : int64_t { AR_SHOWN, AR, R, AW_SHOWN, AW, W, B };

struct Simulation {
    static constexpr unsigned IN_FLIGHT = 256;  // bursts of a direction, of all managers

    VerilatedContext context;
    std::unique_ptr<Vdut> top;
    Clock clock;
    dovetail::AxiMemory<BUS_BYTES, IN_FLIGHT, true> memory;
    dovetail::AxiCycle bus;
    std::deque<unsigned> reads, writes;  // ids, in the order of acceptance
    uint64_t now = 0;
    Waves waves;

    Simulation() {
        context.traceEverOn(VM_TRACE);
        top = std::make_unique<Vdut>(&context, "top");
        clock = Clock(top.get());
    }

    void set_memory(uint8_t* data, uint64_t size, int kind, const int64_t* timing) {
        memory.data = data;
        memory.size = size;
        dovetail::set_timing(memory, kind, timing);
    }

    // What the first breach of the protocol was; empty if there was none.
    const char* violation() const { return memory.violation ? memory.violation : ""; }

    // What memory shows in this cycle, and what follows from it.
    void begin() {
        Vdut* const t = top.get();
        memory.begin(now, bus, &t->m_axi_rdata, t->m_axi_wvalid);
        show_memory(t, bus);
        t->m_axi_rid = reads.empty() ? 0 : reads.front();
        t->m_axi_bid = writes.empty() ? 0 : writes.front();
        clock.settle();
    }

    // Memory takes and gives what the bus shows. `each` is called with each handshake: its kind, its id (-1 of a beat to
    // write), and its address or whether the beat is its burst's last.
    template <typename Each>
    void answer(Each each) {
        Vdut* const t = top.get();
        if (LIKELY(!(t->m_axi_arvalid | t->m_axi_awvalid | t->m_axi_wvalid | bus.rvalid | bus.bvalid))) return;
        show_manager(t, bus);
        if (bus.rvalid && bus.rready) {
            each(R, reads.front(), bus.rlast);
            if (bus.rlast) reads.pop_front();
        }
        if (bus.arvalid && bus.arready) {
            each(AR, t->m_axi_arid, bus.araddr);
            reads.push_back(t->m_axi_arid);
        }
        if (bus.wvalid && bus.wready) each(W, -1, bus.wlast);
        if (bus.bvalid && bus.bready) {
            each(B, writes.front(), 1);
            writes.pop_front();
        }
        if (bus.awvalid && bus.awready) {
            each(AW, t->m_axi_awid, bus.awaddr);
            writes.push_back(t->m_axi_awid);
        }
        memory.end(now, bus, &t->m_axi_wdata, t->m_axi_wstrb);
    }

    // The end of the cycle: ten units of time in a file of waves.
    void edge() {
        if (UNLIKELY(waves.on())) waves.dump(10 * now);
        clock.edge();
        if (UNLIKELY(waves.on())) waves.dump(10 * now + 5);
        top->clk = 0;
        ++now;
    }
};

// The number of rows; `out`, which may be null, receives them.
template <typename Row>
uint64_t copied(const std::vector<Row>& rows, int64_t* out) {
    if (out && !rows.empty()) memcpy(out, rows.data(), rows.size() * sizeof(Row));
    return rows.size();
}
