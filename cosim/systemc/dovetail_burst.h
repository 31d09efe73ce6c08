// An AXI burst as a TLM transaction.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include <systemc>
#include <tlm>

#include "axi_bus.h"

namespace dovetail {

struct Burst {
    bool write = false;
    uint64_t address = 0;
    std::vector<unsigned char> data;
    std::vector<unsigned char> enables;  // of a write, TLM's value for each byte; empty: all are written
};

namespace detail {

template <typename Socket>
AxiResponse send(Socket& socket, Burst& burst, size_t begin, size_t bytes, sc_core::sc_time& delay) {
    tlm::tlm_generic_payload transaction;
    transaction.set_command(burst.write ? tlm::TLM_WRITE_COMMAND : tlm::TLM_READ_COMMAND);
    transaction.set_address(burst.address + begin);
    transaction.set_data_ptr(burst.data.data() + begin);
    transaction.set_data_length(unsigned(bytes));
    transaction.set_streaming_width(unsigned(bytes));
    if (!burst.enables.empty()) {
        transaction.set_byte_enable_ptr(burst.enables.data() + begin);
        transaction.set_byte_enable_length(unsigned(bytes));
    }
    socket->b_transport(transaction, delay);
    if (transaction.is_response_ok()) return AXI_OKAY;
    return transaction.get_response_status() == tlm::TLM_ADDRESS_ERROR_RESPONSE ? AXI_DECERR : AXI_SLVERR;
}

}  // namespace detail

// Sends a burst and adds what the target annotates to `delay`; the response of every beat. AXI answers each beat and
// TLM the whole: a target that refuses a burst has done nothing and is asked again beat by
// beat, each within one bus word.
template <typename Socket>
std::vector<AxiResponse> send(Socket& socket, Burst& burst, size_t beat_bytes, sc_core::sc_time& delay) {
    const size_t size = burst.data.size(), skipped = burst.address % beat_bytes;
    const size_t beats = (skipped + size + beat_bytes - 1) / beat_bytes;
    std::vector<AxiResponse> responses(beats, detail::send(socket, burst, 0, size, delay));
    if (responses[0] == AXI_OKAY) return responses;
    for (size_t n = 0; n < beats; ++n) {
        const size_t begin = n ? n * beat_bytes - skipped : 0;
        const size_t end = std::min((n + 1) * beat_bytes - skipped, size);
        sc_core::sc_time ignored;
        responses[n] = detail::send(socket, burst, begin, end - begin, ignored);
    }
    return responses;
}

}  // namespace dovetail
