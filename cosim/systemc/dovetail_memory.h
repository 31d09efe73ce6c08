// System memory behind TLM-2.0: bytes, latency, parts that answer with errors, DMI.
//
// A transaction takes what MemoryTiming says of a burst: a read up to its last beat, a write, whose data its sender has
// paced, from there on. That is annotated, or waited for if `waits`. A transaction that is not wholly inside does
// nothing and is refused: beyond the end with TLM_ADDRESS_ERROR_RESPONSE, in a broken part with
// TLM_GENERIC_ERROR_RESPONSE.
#pragma once

#include <cstdint>
#include <cstring>
#include <vector>

#include <systemc>
#include <tlm>
#include <tlm_utils/multi_passthrough_target_socket.h>

#include "axi_bus.h"

namespace dovetail {

class Memory : public sc_core::sc_module {
public:
    struct Part {
        uint64_t address, bytes;
    };

    tlm_utils::multi_passthrough_target_socket<Memory> ports;

    // `period` is that of the clock that `timing` counts, `bus_bytes` are those of a beat.
    Memory(const sc_core::sc_module_name& name, const MemoryTiming& timing, const sc_core::sc_time& period,
           unsigned bus_bytes, bool waits)
        : sc_module(name), ports("ports"), timing(timing), period(period), bus_bytes(bus_bytes), waits(waits) {
        ports.register_b_transport(this, &Memory::b_transport);
        ports.register_transport_dbg(this, &Memory::transport_dbg);
        ports.register_get_direct_mem_ptr(this, &Memory::get_direct_mem_ptr);
    }

    // The size, of which what is there stays, and the parts that answer with errors. Withdraws direct pointers.
    void reset(size_t bytes, const std::vector<Part>& parts) {
        data.resize(bytes);
        broken = parts;
        for (unsigned n = 0; n < ports.size(); ++n) ports[int(n)]->invalidate_direct_mem_ptr(0, ~sc_dt::uint64(0));
    }

private:
    const MemoryTiming timing;
    const sc_core::sc_time period;
    const unsigned bus_bytes;
    const bool waits;
    std::vector<unsigned char> data;
    std::vector<Part> broken;

    bool outside(uint64_t address, uint64_t bytes) const {
        return address > data.size() || data.size() - address < bytes;
    }

    bool breaks(uint64_t address, uint64_t bytes) const {
        for (const Part& part : broken)
            if (address < part.address + part.bytes && part.address < address + bytes) return true;
        return false;
    }

    void copy(tlm::tlm_generic_payload& transaction) {
        unsigned char* const inside = data.data() + transaction.get_address();
        unsigned char* const outside = transaction.get_data_ptr();
        const unsigned size = transaction.get_data_length();
        const unsigned char* const enables = transaction.get_byte_enable_ptr();
        unsigned char* const to = transaction.is_write() ? inside : outside;
        const unsigned char* const from = transaction.is_write() ? outside : inside;
        if (!enables) {
            memcpy(to, from, size);
            return;
        }
        const unsigned period = transaction.get_byte_enable_length();
        for (unsigned i = 0; i < size; ++i)
            if (enables[i % period] == TLM_BYTE_ENABLED) to[i] = from[i];
    }

    void b_transport(int, tlm::tlm_generic_payload& transaction, sc_core::sc_time& delay) {
        const uint64_t address = transaction.get_address();
        const unsigned size = transaction.get_data_length();
        const unsigned beats = (size + bus_bytes - 1) / bus_bytes;
        delay += period * double(transaction.is_read() ? timing.read(beats) : timing.write());
        if (waits) {
            wait(delay);
            delay = sc_core::SC_ZERO_TIME;
        }
        if (transaction.get_streaming_width() < size) {
            transaction.set_response_status(tlm::TLM_BURST_ERROR_RESPONSE);
        } else if (outside(address, size)) {
            transaction.set_response_status(tlm::TLM_ADDRESS_ERROR_RESPONSE);
        } else if (breaks(address, size)) {
            transaction.set_response_status(tlm::TLM_GENERIC_ERROR_RESPONSE);
        } else {
            copy(transaction);
            transaction.set_dmi_allowed(broken.empty());
            transaction.set_response_status(tlm::TLM_OK_RESPONSE);
        }
    }

    unsigned transport_dbg(int, tlm::tlm_generic_payload& transaction) {
        const uint64_t address = transaction.get_address();
        const unsigned size = transaction.get_data_length();
        if (outside(address, size) || breaks(address, size)) return 0;
        copy(transaction);
        return size;
    }

    bool get_direct_mem_ptr(int, tlm::tlm_generic_payload&, tlm::tlm_dmi& dmi) {
        if (!broken.empty()) return false;
        dmi.set_dmi_ptr(data.data());
        dmi.set_start_address(0);
        dmi.set_end_address(data.size() - 1);
        dmi.set_read_latency(period * double(timing.read(1)));
        dmi.set_write_latency(period * double(timing.write()));
        dmi.allow_read_write();
        return true;
    }
};

}  // namespace dovetail
