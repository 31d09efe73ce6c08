// What both forms of the accelerator show to a platform: registers, memory port, interrupt.
//
// Rising edges of the accelerator's clock are the multiples of `period`. An access to the registers is taken up at the
// first edge after it arrives (and after the reset), and is answered two cycles later, as the AXI4-Lite port does; it
// synchronises, whatever delay it comes with.
#pragma once

#include <cstdint>
#include <cstring>

#include <systemc>
#include <tlm>
#include <tlm_utils/simple_initiator_socket.h>
#include <tlm_utils/simple_target_socket.h>

#include "dovetail_config.h"

namespace dovetail {

constexpr unsigned RESET_CYCLES = 8;  // from the start of the simulation; no register answers before their end
constexpr unsigned ACCESS_CYCLES = 2;  // from the edge at which an access is taken up to its answer

class Accelerator : public sc_core::sc_module {
public:
    tlm_utils::simple_target_socket<Accelerator> registers;  // 32-bit words at the offsets of dovetail_isa.h
    tlm_utils::simple_initiator_socket<Accelerator> memory;  // system memory, 32-bit addresses
    sc_core::sc_out<bool> irq;

protected:
    // One access to the registers: `lanes` has a bit per byte that a write changes.
    struct Access {
        bool write;
        uint32_t offset, data, lanes;
        bool refused;  // there is no such register
    };

    const sc_core::sc_time period;

    Accelerator(const sc_core::sc_module_name& name, const sc_core::sc_time& period)
        : sc_module(name), registers("registers"), memory("memory"), irq("irq"), period(period) {
        registers.register_b_transport(this, &Accelerator::b_transport);
    }

    // Carries an access out and returns when it is answered. One at a time.
    virtual void access(Access& access) = 0;

    // The first edge after the present moment at which an access may be taken up.
    sc_core::sc_time next_edge() const {
        const uint64_t cycle = sc_core::sc_time_stamp().value() / period.value() + 1;
        return period * double(cycle < RESET_CYCLES ? RESET_CYCLES : cycle);
    }

private:
    sc_core::sc_mutex mutex;

    void b_transport(tlm::tlm_generic_payload& transaction, sc_core::sc_time& delay) {
        const bool write = transaction.is_write();
        Access request = {write, uint32_t(transaction.get_address() % config::REGISTER_BYTES), 0, 15, false};
        if (!write && !transaction.is_read()) {
            transaction.set_response_status(tlm::TLM_COMMAND_ERROR_RESPONSE);
            return;
        }
        if (transaction.get_data_length() != 4 || transaction.get_streaming_width() < 4 || request.offset % 4) {
            transaction.set_response_status(tlm::TLM_BURST_ERROR_RESPONSE);
            return;
        }
        if (const unsigned char* enable = transaction.get_byte_enable_ptr()) {
            request.lanes = 0;
            for (unsigned i = 0; i < 4; ++i)
                if (enable[i % transaction.get_byte_enable_length()] == TLM_BYTE_ENABLED) request.lanes |= 1u << i;
        }
        if (write) memcpy(&request.data, transaction.get_data_ptr(), 4);
        wait(delay);
        delay = sc_core::SC_ZERO_TIME;
        mutex.lock();
        access(request);
        mutex.unlock();
        if (!write) memcpy(transaction.get_data_ptr(), &request.data, 4);
        transaction.set_response_status(request.refused ? tlm::TLM_ADDRESS_ERROR_RESPONSE : tlm::TLM_OK_RESPONSE);
    }
};

}  // namespace dovetail
