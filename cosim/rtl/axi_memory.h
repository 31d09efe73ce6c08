// A memory behind AXI4 that answers as early as its timing allows (see axi_bus.h), in order; with `model`, when that says.
//
// Addresses from `size` on answer DECERR: reads give zeros, writes do nothing. `broken` parts do so with SLVERR.
// With NARROW, beats may be narrower than the bus: each is a beat of its own, on the lanes that its address says.
// With `stalls`, every handshake may put off the next one of its channel, by random numbers of cycles.
#pragma once

#include <cstdint>
#include <cstring>
#include <memory>
#include <vector>

#include "axi_bus.h"
#include "memory_model.h"

namespace dovetail {

// RING: bursts in flight of a direction, at least; an accelerator has at most 16.
template <unsigned BEAT, unsigned RING = 64, bool NARROW = false>
struct AxiMemory {
    static constexpr unsigned LOG_BEAT = __builtin_ctz(BEAT);

    struct Burst {
        uint64_t address, end;  // the cycle of the last beat at the earliest, of a read
        unsigned left;          // beats
        unsigned step;          // bytes of a beat
    };
    struct Response {
        uint64_t earliest;
        uint8_t code;
    };
    struct Part {
        uint64_t address, bytes;
    };
    struct Stalls {
        uint32_t one_in = 0, longest = 1;  // of how many handshakes one stalls (0: none), and for how long at most
        uint64_t state = 1, total = 0;     // of the random numbers; cycles so far
    };

    uint8_t* data = nullptr;
    uint64_t size = 0;
    MemoryTiming timing;
    std::unique_ptr<MemoryModel> model;  // of a memory that is not `fixed`; stalls are not for it
    std::vector<Part> broken;
    Stalls stalls;
    const char* violation = nullptr;  // the first breach of the protocol by the manager

    Burst reads[RING], writes[RING];
    Response responses[RING];
    unsigned read_head = 0, read_tail = 0, write_head = 0, write_tail = 0, response_head = 0, response_tail = 0;
    Beats read_beats, write_beats;
    uint64_t next_read_address = 0, next_write_address = 0;
    uint8_t write_code = AXI_OKAY;

    bool read_idle() const { return read_head == read_tail; }
    bool write_idle() const { return write_head == write_tail && response_head == response_tail; }

    // Drops everything in flight.
    void reset() {
        read_head = read_tail = write_head = write_tail = response_head = response_tail = 0;
        read_beats = write_beats = {};
        next_read_address = next_write_address = 0;
        write_code = AXI_OKAY;
        violation = nullptr;
        if (model) model->restart();
    }

    // The cycle that has begun is the model's cycle 0. Nothing is in flight.
    void start() {
        if (!model) return;
        model->restart();
        model->begin(false);
    }

    // The memory's side of cycle `now`; `rdata` receives BEAT bytes when rvalid. `wvalid` is for a model.
    void begin(uint64_t now, AxiCycle& bus, void* rdata, bool wvalid = false) {
        if (__builtin_expect(model != nullptr, 0)) {
            begin_model(bus, rdata, wvalid);
            return;
        }
        bus.arready = read_tail - read_head < RING && now >= next_read_address;
        bus.awready = write_tail - write_head < RING && now >= next_write_address;
        bus.rvalid = false;
        if (!read_idle()) {
            const Burst& burst = reads[read_head % RING];
            if (read_beats.may_come(now, timing.beat_cycles, burst.end, burst.left)) {
                show(burst, bus, rdata);
            }
        }
        bus.wready = write_beats.may_come(now);
        bus.bvalid = response_head != response_tail && now >= responses[response_head % RING].earliest;
        if (bus.bvalid) bus.bresp = responses[response_head % RING].code;
    }

    // Handshakes of cycle `now`.
    void end(uint64_t now, const AxiCycle& bus, const void* wdata, uint64_t wstrb) {
        if (bus.rvalid && bus.rready) {
            Burst& burst = reads[read_head % RING];
            burst.address += NARROW ? burst.step : BEAT;
            if (--burst.left == 0) ++read_head;
            if (model) model->beat_given(!burst.left);
            read_beats.came(now + stall(), timing.beat_cycles);
        }
        if (bus.arvalid && bus.arready) {
            check(bus.araddr, bus.arlen, bus.arsize, bus.arburst);
            const unsigned step = NARROW ? 1u << bus.arsize : BEAT, beats = bus.arlen + 1;
            reads[read_tail++ % RING] = {bus.araddr & -uint64_t(step), now + timing.read(beats), beats, step};
            if (model) model->address(false, bus.araddr, step, beats);
            next_read_address = now + 1 + stall();
        }
        if (bus.bvalid && bus.bready) {
            ++response_head;
            if (model) model->answered();
        }
        if (bus.awvalid && bus.awready) {
            check(bus.awaddr, bus.awlen, bus.awsize, bus.awburst);
            const unsigned step = NARROW ? 1u << bus.awsize : BEAT;
            writes[write_tail++ % RING] = {bus.awaddr & -uint64_t(step), 0, bus.awlen + 1, step};
            if (model) model->address(true, bus.awaddr, step, bus.awlen + 1);
            next_write_address = now + 1 + stall();
        }
        if (bus.wvalid && bus.wready) write(now, bus, static_cast<const uint8_t*>(wdata), wstrb);
    }

private:
    void begin_model(AxiCycle& bus, void* rdata, bool wvalid) {
        model->begin(wvalid);
        bus.arready = model->takes[0];
        bus.awready = model->takes[1];
        bus.wready = model->takes_beat;
        bus.rvalid = model->gives_beat;
        if (bus.rvalid) show(reads[read_head % RING], bus, rdata);
        bus.bvalid = model->answers;
        if (bus.bvalid) bus.bresp = responses[response_head % RING].code;
    }

    // A read's next beat.
    void show(const Burst& burst, AxiCycle& bus, void* rdata) const {
        bus.rvalid = true;
        bus.rlast = burst.left == 1;
        const uint64_t place = placed(burst.address);
        bus.rresp = answer(place);
        if (bus.rresp == AXI_OKAY) memcpy(rdata, data + place, BEAT);
        else memset(rdata, 0, BEAT);
    }

    // Where the bus-wide beat around an address begins.
    static uint64_t placed(uint64_t address) { return NARROW ? address & -uint64_t(BEAT) : address; }

    uint8_t answer(uint64_t address) const {
        if (address >= size || size - address < BEAT) return AXI_DECERR;
        for (const Part& part : broken)
            if (address - part.address < part.bytes) return AXI_SLVERR;
        return AXI_OKAY;
    }

    uint64_t stall() {
        if (!stalls.one_in) return 0;
        uint64_t& x = stalls.state;  // xorshift64
        x ^= x << 13, x ^= x >> 7, x ^= x << 17;
        const uint64_t cycles = (x >> 8) % stalls.one_in ? 0 : 1 + (x >> 40) % stalls.longest;
        stalls.total += cycles;
        return cycles;
    }

    void write(uint64_t now, const AxiCycle& bus, const uint8_t* wdata, uint64_t wstrb) {
        write_beats.came(now + stall(), timing.beat_cycles);
        if (write_head == write_tail) {
            breach("a write beat without an address");
            return;
        }
        Burst& burst = writes[write_head % RING];
        if (bus.wlast != (burst.left == 1)) breach("WLAST does not match AWLEN");
        const uint64_t place = placed(burst.address);
        const uint8_t code = answer(place);
        if (code != AXI_OKAY) {
            write_code = code;
        } else if (wstrb == ~uint64_t(0) >> (64 - BEAT)) {
            memcpy(data + place, wdata, BEAT);
        } else {
            for (unsigned i = 0; i < BEAT; ++i)
                if (wstrb >> i & 1) data[place + i] = wdata[i];
        }
        burst.address += NARROW ? burst.step : BEAT;
        --burst.left;
        if (model) model->beat_taken(!burst.left);
        if (!burst.left) {
            ++write_head;
            responses[response_tail++ % RING] = {now + timing.write() + stall(), write_code};
            write_code = AXI_OKAY;
        }
    }

    void check(uint64_t address, unsigned len, unsigned size_code, unsigned burst) {
        if (len > 255) breach("a burst of more than 256 beats");
        if (NARROW ? size_code > LOG_BEAT : size_code != LOG_BEAT)
            breach(NARROW ? "a beat wider than the bus" : "a beat narrower than the bus");
        if (burst != 1) breach("a burst that is not INCR");
        const uint64_t beat = NARROW ? uint64_t(1) << size_code : BEAT;
        const uint64_t last = (address & -beat) + len * beat;
        if (address >> 12 != last >> 12) breach("a burst that crosses a 4 KiB boundary");
    }

    void breach(const char* text) {
        if (!violation) violation = text;
    }
};

}  // namespace dovetail
