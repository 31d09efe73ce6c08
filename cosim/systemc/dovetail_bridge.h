// The subordinate side of the accelerator's AXI4 port: bursts become TLM transactions.
//
// A read is sent at the end of the cycle that accepts its address, a write at the end of the cycle that accepts its
// last beat. The delay that the target annotates decides when data come: the last beat of a read in that many cycles
// after its address, beats `beat_cycles` apart and in order; the response of a write in that many cycles after its last
// beat. A target may wait in b_transport as well: the beats of a read follow when it has returned. Up to BURSTS
// transactions are under way in each direction, so it holds up none but its own.
#pragma once

#include <cstdint>
#include <cstring>
#include <vector>

#include "dovetail_burst.h"

namespace dovetail {

template <typename Socket, unsigned BEAT>
class AxiToTlm {
public:
    // `socket` is used while the simulation runs; `period` is the clock's.
    AxiToTlm(Socket& socket, const sc_core::sc_time& period, unsigned beat_cycles)
        : socket(socket), period(period), beat_cycles(beat_cycles) {
        for (Channel* channel : {&reads, &writes})
            for (Slot& slot : channel->slots) sc_core::sc_spawn([this, &slot] { work(slot); });
    }

    // The subordinate's side of cycle `now`; the BEAT bytes of read data if rvalid.
    const unsigned char* begin(uint64_t now, AxiCycle& bus) {
        const unsigned char* rdata = nullptr;
        bus.arready = !reads.full();
        bus.awready = !writes.full();
        bus.wready = write_beats.may_come(now);
        bus.rvalid = bus.bvalid = false;
        if (!reads.empty()) {
            const Slot& slot = reads.first();
            const size_t left = slot.burst.data.size() / BEAT - slot.beat;
            bus.rvalid = slot.answered && read_beats.may_come(now, beat_cycles, slot.end, left);
            if (bus.rvalid) {
                bus.rlast = left == 1;
                bus.rresp = slot.responses[slot.beat];
                rdata = slot.burst.data.data() + slot.beat * BEAT;
            }
        }
        if (!writes.empty()) {
            const Slot& slot = writes.first();
            bus.bvalid = slot.answered && now >= slot.end;
            if (bus.bvalid) bus.bresp = response(slot);
        }
        return rdata;
    }

    // Handshakes of cycle `now`. Whether a transaction was sent: then begin() has to wait for the next delta cycle.
    bool end(uint64_t now, const AxiCycle& bus, const unsigned char* wdata, uint64_t wstrb) {
        bool sent = false;
        if (bus.rvalid && bus.rready) {
            read_beats.came(now, beat_cycles);
            if (++reads.first().beat == reads.first().responses.size()) reads.pop();
        }
        if (bus.arvalid && bus.arready) {
            Slot& slot = reads.push(false, bus.araddr & -BEAT, bus.arlen + 1);
            slot.sent = now;
            slot.go.notify();
            sent = true;
        }
        if (bus.bvalid && bus.bready) writes.pop();
        if (bus.awvalid && bus.awready) writes.push(true, bus.awaddr & -BEAT, bus.awlen + 1);
        if (bus.wvalid && bus.wready) {
            write_beats.came(now, beat_cycles);
            sent |= write(now, wdata, wstrb);
        }
        return sent;
    }

private:
    static constexpr unsigned BURSTS = 16;  // the accelerator has at most as many in flight

    struct Slot {
        Burst burst;
        uint64_t sent = 0, end = 0;  // cycles
        size_t beat = 0;             // the next one on the bus
        bool answered = false;
        std::vector<AxiResponse> responses;
        sc_core::sc_event go;
    };

    // Bursts of one direction, in order.
    struct Channel {
        Slot slots[BURSTS];
        unsigned head = 0, tail = 0;

        bool empty() const { return head == tail; }
        bool full() const { return tail - head == BURSTS; }
        Slot& first() { return slots[head % BURSTS]; }
        void pop() { ++head; }

        Slot& push(bool write, uint32_t address, unsigned beats) {
            Slot& slot = slots[tail++ % BURSTS];
            slot.burst.write = write;
            slot.burst.address = address;
            slot.burst.data.assign(beats * BEAT, 0);
            slot.burst.enables.clear();
            slot.beat = 0;
            slot.answered = false;
            return slot;
        }
    };

    Socket& socket;
    const sc_core::sc_time period;
    const unsigned beat_cycles;
    Channel reads, writes;
    unsigned filling = 0;  // the write burst that takes data
    Beats read_beats, write_beats;

    // A beat of write data; whether it was its burst's last.
    bool write(uint64_t now, const unsigned char* wdata, uint64_t wstrb) {
        sc_assert(filling != writes.tail);
        Slot& slot = writes.slots[filling % BURSTS];
        Burst& burst = slot.burst;
        const size_t begin = slot.beat++ * BEAT;
        memcpy(burst.data.data() + begin, wdata, BEAT);
        if (wstrb != ~uint64_t(0) >> (64 - BEAT)) {
            if (burst.enables.empty()) burst.enables.assign(burst.data.size(), TLM_BYTE_ENABLED);
            for (unsigned i = 0; i < BEAT; ++i)
                burst.enables[begin + i] = wstrb >> i & 1 ? TLM_BYTE_ENABLED : TLM_BYTE_DISABLED;
        }
        if (slot.beat * BEAT < burst.data.size()) return false;
        ++filling;
        slot.sent = now;
        slot.go.notify();
        return true;
    }

    // Sends the bursts of a slot, one after the other.
    void work(Slot& slot) {
        for (;;) {
            sc_core::wait(slot.go);
            const sc_core::sc_time begin = sc_core::sc_time_stamp();
            sc_core::sc_time delay;
            slot.responses = send(socket, slot.burst, BEAT, delay);
            const uint64_t taken = (sc_core::sc_time_stamp() - begin + delay).value();
            slot.end = slot.sent + (taken + period.value() - 1) / period.value();
            slot.answered = true;
        }
    }

    // What a write burst is answered: as the last beat that was refused.
    static AxiResponse response(const Slot& slot) {
        AxiResponse last = AXI_OKAY;
        for (const AxiResponse response : slot.responses)
            if (response != AXI_OKAY) last = response;
        return last;
    }
};

}  // namespace dovetail
