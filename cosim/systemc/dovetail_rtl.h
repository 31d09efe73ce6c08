// The accelerator's RTL, Verilated with --sc, behind TLM-2.0 sockets: exact to the cycle, as slow as RTL.
#pragma once

#include <cstdint>
#include <type_traits>

#include "Vdovetail.h"
#include "dovetail_accelerator.h"
#include "dovetail_bridge.h"
#include "dovetail_config.h"

namespace dovetail {

namespace detail {

// Bus data on the pins: an integer up to 64 bits, beyond that a bit vector.
inline void to_pins(const unsigned char* bytes, uint32_t& pins) { memcpy(&pins, bytes, sizeof pins); }
inline void to_pins(const unsigned char* bytes, uint64_t& pins) { memcpy(&pins, bytes, sizeof pins); }
inline void to_bytes(const uint32_t& pins, unsigned char* bytes) { memcpy(bytes, &pins, sizeof pins); }
inline void to_bytes(const uint64_t& pins, unsigned char* bytes) { memcpy(bytes, &pins, sizeof pins); }

template <int BITS>
void to_pins(const unsigned char* bytes, sc_dt::sc_bv<BITS>& pins) {
    for (int n = 0; n < BITS / 32; ++n) {
        uint32_t word;
        memcpy(&word, bytes + 4 * n, 4);
        pins.set_word(n, word);
    }
}

template <int BITS>
void to_bytes(const sc_dt::sc_bv<BITS>& pins, unsigned char* bytes) {
    for (int n = 0; n < BITS / 32; ++n) {
        const uint32_t word = uint32_t(pins.get_word(n));
        memcpy(bytes + 4 * n, &word, 4);
    }
}

// What a port of the Verilated module carries.
template <typename Port>
using Carried = typename std::remove_reference_t<Port>::data_type;

}  // namespace detail

class Rtl : public Accelerator {
public:
    SC_HAS_PROCESS(Rtl);

    // `beat_cycles`: the least cycles from one beat to the next on the memory port, in each direction.
    Rtl(const sc_core::sc_module_name& name, const sc_core::sc_time& period, unsigned beat_cycles)
        : Accelerator(name, period),
          top("top"),
          clock("clock", period),
          bridge(memory, period, beat_cycles) {
        top.clk(clock);
        top.rst(rst);
        top.irq(irq);
        top.s_axil_awvalid(lite_awvalid);
        top.s_axil_awaddr(lite_awaddr);
        top.s_axil_awready(lite_awready);
        top.s_axil_wvalid(lite_wvalid);
        top.s_axil_wdata(lite_wdata);
        top.s_axil_wstrb(lite_wstrb);
        top.s_axil_wready(lite_wready);
        top.s_axil_bvalid(lite_bvalid);
        top.s_axil_bresp(lite_bresp);
        top.s_axil_bready(high);
        top.s_axil_arvalid(lite_arvalid);
        top.s_axil_araddr(lite_araddr);
        top.s_axil_arready(lite_arready);
        top.s_axil_rvalid(lite_rvalid);
        top.s_axil_rdata(lite_rdata);
        top.s_axil_rresp(lite_rresp);
        top.s_axil_rready(high);
        top.m_axi_arvalid(arvalid);
        top.m_axi_araddr(araddr);
        top.m_axi_arlen(arlen);
        top.m_axi_arsize(arsize);
        top.m_axi_arburst(arburst);
        top.m_axi_arready(arready);
        top.m_axi_rvalid(rvalid);
        top.m_axi_rdata(rdata);
        top.m_axi_rresp(rresp);
        top.m_axi_rlast(rlast);
        top.m_axi_rready(rready);
        top.m_axi_awvalid(awvalid);
        top.m_axi_awaddr(awaddr);
        top.m_axi_awlen(awlen);
        top.m_axi_awsize(awsize);
        top.m_axi_awburst(awburst);
        top.m_axi_awready(awready);
        top.m_axi_wvalid(wvalid);
        top.m_axi_wdata(wdata);
        top.m_axi_wstrb(wstrb);
        top.m_axi_wlast(wlast);
        top.m_axi_wready(wready);
        top.m_axi_bvalid(bvalid);
        top.m_axi_bresp(bresp);
        top.m_axi_bready(bready);
        high.write(true);
        rst.write(true);
        SC_METHOD(edge);
        sensitive << clock.posedge_event();
        dont_initialize();
        SC_METHOD(drive);
        sensitive << begun;
        dont_initialize();
    }

    ~Rtl() override { top.final(); }

private:
    template <typename T>
    using Signal = sc_core::sc_signal<T>;

    Vdovetail top;
    sc_core::sc_clock clock;
    AxiToTlm<decltype(memory), config::BUS_BYTES> bridge;
    AxiCycle bus;
    uint64_t cycle = 0;           // the one that the next edge ends
    sc_core::sc_event begun;       // a cycle, and the targets that do not wait have answered
    Access* waiting = nullptr;    // an access that no edge has taken up
    Access* under_way = nullptr;  // the access on the pins
    sc_core::sc_time taken_up;    // the edge that takes `waiting` up
    sc_core::sc_event answered;

    Signal<bool> rst, high;
    Signal<bool> lite_awvalid, lite_awready, lite_wvalid, lite_wready, lite_bvalid;
    Signal<bool> lite_arvalid, lite_arready, lite_rvalid;
    Signal<uint32_t> lite_awaddr, lite_wdata, lite_wstrb, lite_bresp, lite_araddr, lite_rdata, lite_rresp;
    Signal<bool> arvalid, arready, rvalid, rlast, rready, awvalid, awready, wvalid, wlast, wready, bvalid, bready;
    Signal<uint32_t> araddr, arlen, arsize, arburst, rresp, awaddr, awlen, awsize, awburst, bresp;
    Signal<detail::Carried<decltype(Vdovetail::m_axi_wdata)>> rdata, wdata;
    Signal<detail::Carried<decltype(Vdovetail::m_axi_wstrb)>> wstrb;

    void access(Access& access) override {
        waiting = &access;
        taken_up = next_edge();
        wait(answered);
    }

    // The handshakes of the cycle that ends, seen as they were before the edge, and the pins of the one that begins.
    void edge() {
        registers_edge();
        bus.arvalid = arvalid.read();
        bus.rready = rready.read();
        bus.awvalid = awvalid.read();
        bus.wvalid = wvalid.read();
        bus.bready = bready.read();
        bool pending = false;
        if (bus.arvalid || bus.awvalid || bus.wvalid || bus.rvalid || bus.bvalid) {
            unsigned char data[config::BUS_BYTES];
            bus.araddr = araddr.read();
            bus.arlen = arlen.read();
            bus.awaddr = awaddr.read();
            bus.awlen = awlen.read();
            detail::to_bytes(wdata.read(), data);
            pending = bridge.end(cycle, bus, data, wstrb.read());
        }
        if (++cycle == RESET_CYCLES / 2) rst.write(false);
        if (pending) begun.notify(sc_core::SC_ZERO_TIME);
        else begun.notify();
    }

    void drive() {
        const unsigned char* const data = bridge.begin(cycle, bus);
        arready.write(bus.arready);
        awready.write(bus.awready);
        wready.write(bus.wready);
        rvalid.write(bus.rvalid);
        bvalid.write(bus.bvalid);
        bresp.write(bus.bresp);
        if (!data) return;
        rlast.write(bus.rlast);
        rresp.write(bus.rresp);
        detail::Carried<decltype(Vdovetail::m_axi_wdata)> pins;
        detail::to_pins(data, pins);
        rdata.write(pins);
    }

    // AXI4-Lite: one access at a time, address and data together, always ready for the answer.
    void registers_edge() {
        if (under_way) {
            if (lite_awvalid.read() && lite_awready.read()) lite_awvalid.write(false);
            if (lite_wvalid.read() && lite_wready.read()) lite_wvalid.write(false);
            if (lite_arvalid.read() && lite_arready.read()) lite_arvalid.write(false);
            if (!(under_way->write ? lite_bvalid : lite_rvalid).read()) return;
            under_way->refused = (under_way->write ? lite_bresp : lite_rresp).read() != AXI_OKAY;
            if (!under_way->write) under_way->data = lite_rdata.read();
            under_way = nullptr;
            answered.notify();
        } else if (waiting && sc_core::sc_time_stamp() >= taken_up) {
            under_way = waiting;
            waiting = nullptr;
            if (under_way->write) {
                lite_awaddr.write(under_way->offset);
                lite_wdata.write(under_way->data);
                lite_wstrb.write(under_way->lanes);
                lite_awvalid.write(true);
                lite_wvalid.write(true);
            } else {
                lite_araddr.write(under_way->offset);
                lite_arvalid.write(true);
            }
        }
    }
};

}  // namespace dovetail
