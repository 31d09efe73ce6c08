// A memory behind AXI4 with exact timing, the one that isa/timing/dma.py describes.
//
// ARREADY and AWREADY are always 1. A read burst's first beat comes `read_latency` cycles after its address at the
// earliest, beats of all bursts are at least `beat_cycles` apart and in order. A write beat is accepted every
// `beat_cycles`; the response comes `write_latency` after the last beat, in order. Addresses from `size` on answer
// DECERR: reads give zeros, writes do nothing.
#pragma once

#include <cstdint>
#include <cstring>

enum { AXI_OKAY = 0, AXI_DECERR = 3 };

// What the bus shows in one cycle: the memory's side, filled by begin(), and the master's, given to end().
struct AxiCycle {
    // from the memory
    bool arready = true, rvalid = false, rlast = false, awready = true, wready = true, bvalid = false;
    uint8_t rresp = 0, bresp = 0;
    // from the master
    bool arvalid = false, rready = false, awvalid = false, wvalid = false, wlast = false, bready = false;
    uint64_t araddr = 0, awaddr = 0;
    unsigned arlen = 0, awlen = 0, arsize = 0, awsize = 0, arburst = 1, awburst = 1;
};

template <unsigned BEAT>
struct AxiMemory {
    static constexpr unsigned RING = 64;  // bursts in flight; the engine has at most 16
    static constexpr unsigned LOG_BEAT = __builtin_ctz(BEAT);

    struct Burst {
        uint64_t address, earliest;
        unsigned beats;
    };
    struct Response {
        uint64_t earliest;
        uint8_t code;
    };

    uint8_t* data = nullptr;
    uint64_t size = 0;
    uint64_t read_latency = 40, write_latency = 20, beat_cycles = 1;
    const char* violation = nullptr;  // the first breach of the protocol by the master

    Burst reads[RING], writes[RING];
    Response responses[RING];
    unsigned read_head = 0, read_tail = 0, write_head = 0, write_tail = 0, response_head = 0, response_tail = 0;
    uint64_t next_read = 0, next_write = 0;
    uint8_t write_code = AXI_OKAY;

    bool read_idle() const { return read_head == read_tail; }
    bool write_idle() const { return write_head == write_tail && response_head == response_tail; }

    // Drops everything in flight.
    void reset() {
        read_head = read_tail = write_head = write_tail = response_head = response_tail = 0;
        next_read = next_write = 0;
        write_code = AXI_OKAY;
        violation = nullptr;
    }

    // The memory's side of cycle `now`; `rdata` receives BEAT bytes when rvalid.
    void begin(uint64_t now, AxiCycle& bus, void* rdata) {
        bus.arready = read_tail - read_head < RING;
        bus.awready = write_tail - write_head < RING;
        bus.rvalid = false;
        if (!read_idle()) {
            const Burst& burst = reads[read_head % RING];
            if (now >= burst.earliest && now >= next_read) {
                bus.rvalid = true;
                bus.rlast = burst.beats == 1;
                if (inside(burst.address)) {
                    memcpy(rdata, data + burst.address, BEAT);
                    bus.rresp = AXI_OKAY;
                } else {
                    memset(rdata, 0, BEAT);
                    bus.rresp = AXI_DECERR;
                }
            }
        }
        bus.wready = now >= next_write;
        bus.bvalid = response_head != response_tail && now >= responses[response_head % RING].earliest;
        if (bus.bvalid) bus.bresp = responses[response_head % RING].code;
    }

    // Handshakes of cycle `now`.
    void end(uint64_t now, const AxiCycle& bus, const void* wdata, uint64_t wstrb) {
        if (bus.rvalid && bus.rready) {
            Burst& burst = reads[read_head % RING];
            burst.address += BEAT;
            if (--burst.beats == 0) ++read_head;
            next_read = now + beat_cycles;
        }
        if (bus.arvalid && bus.arready) {
            check(bus.araddr, bus.arlen, bus.arsize, bus.arburst);
            reads[read_tail++ % RING] = {bus.araddr & -uint64_t(BEAT), now + read_latency, bus.arlen + 1};
        }
        if (bus.bvalid && bus.bready) ++response_head;
        if (bus.awvalid && bus.awready) {
            check(bus.awaddr, bus.awlen, bus.awsize, bus.awburst);
            writes[write_tail++ % RING] = {bus.awaddr & -uint64_t(BEAT), 0, bus.awlen + 1};
        }
        if (bus.wvalid && bus.wready) write(now, bus, static_cast<const uint8_t*>(wdata), wstrb);
    }

private:
    bool inside(uint64_t address) const { return address < size && size - address >= BEAT; }

    void write(uint64_t now, const AxiCycle& bus, const uint8_t* wdata, uint64_t wstrb) {
        next_write = now + beat_cycles;
        if (write_head == write_tail) {
            breach("a write beat without an address");
            return;
        }
        Burst& burst = writes[write_head % RING];
        if (bus.wlast != (burst.beats == 1)) breach("WLAST does not match AWLEN");
        if (!inside(burst.address)) {
            write_code = AXI_DECERR;
        } else if (wstrb == ~uint64_t(0) >> (64 - BEAT)) {
            memcpy(data + burst.address, wdata, BEAT);
        } else {
            for (unsigned i = 0; i < BEAT; ++i)
                if (wstrb >> i & 1) data[burst.address + i] = wdata[i];
        }
        burst.address += BEAT;
        if (--burst.beats == 0) {
            ++write_head;
            responses[response_tail++ % RING] = {now + write_latency, write_code};
            write_code = AXI_OKAY;
        }
    }

    void check(uint64_t address, unsigned len, unsigned size_code, unsigned burst) {
        if (len > 255) breach("a burst of more than 256 beats");
        if (size_code != LOG_BEAT) breach("a beat narrower than the bus");
        if (burst != 1) breach("a burst that is not INCR");
        const uint64_t last = (address & -uint64_t(BEAT)) + uint64_t(len) * BEAT;
        if (address >> 12 != last >> 12) breach("a burst that crosses a 4 KiB boundary");
    }

    void breach(const char* text) {
        if (!violation) violation = text;
    }
};
