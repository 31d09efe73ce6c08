// A loosely timed host: moves bytes to and from system memory, writes registers, waits for the interrupt.
//
// It runs ahead of the simulation's time by up to the global quantum (tlm_quantumkeeper) and uses the memory's direct
// pointer where it gets one.
#pragma once

#include <cstdint>
#include <cstring>
#include <functional>
#include <utility>

#include <systemc>
#include <tlm>
#include <tlm_utils/simple_initiator_socket.h>
#include <tlm_utils/tlm_quantumkeeper.h>

#include "dovetail_isa.h"

namespace dovetail {

class Host : public sc_core::sc_module {
public:
    SC_HAS_PROCESS(Host);

    tlm_utils::simple_initiator_socket<Host> memory;
    tlm_utils::simple_initiator_socket<Host> registers;
    sc_core::sc_in<bool> irq;

    // `program` is what the host does; it ends the simulation.
    Host(const sc_core::sc_module_name& name, std::function<void(Host&)> program)
        : sc_module(name), memory("memory"), registers("registers"), irq("irq"), program(std::move(program)) {
        SC_THREAD(run);
        memory.register_invalidate_direct_mem_ptr(this, &Host::invalidate);
    }

    // Bytes of system memory. Reports an error for a refused transaction.
    void write_memory(uint64_t address, const unsigned char* data, size_t bytes) {
        move(tlm::TLM_WRITE_COMMAND, address, const_cast<unsigned char*>(data), bytes);
    }
    void read_memory(uint64_t address, unsigned char* data, size_t bytes) {
        move(tlm::TLM_READ_COMMAND, address, data, bytes);
    }

    // Registers. Reports an error for one that is not there.
    void write_register(uint32_t offset, uint32_t value) {
        if (!access_register(tlm::TLM_WRITE_COMMAND, offset, value, 15))
            SC_REPORT_ERROR("dovetail.host", "there is no such register");
    }
    uint32_t read_register(uint32_t offset) {
        uint32_t value = 0;
        if (!access_register(tlm::TLM_READ_COMMAND, offset, value, 15))
            SC_REPORT_ERROR("dovetail.host", "there is no such register");
        return value;
    }

    // Any access to a register; `lanes` has a bit per byte that counts. Whether it was answered without an error.
    bool access_register(tlm::tlm_command command, uint32_t offset, uint32_t& value, unsigned lanes) {
        unsigned char enables[4];
        for (unsigned n = 0; n < 4; ++n) enables[n] = lanes >> n & 1 ? TLM_BYTE_ENABLED : TLM_BYTE_DISABLED;
        tlm::tlm_generic_payload transaction;
        fill(transaction, command, offset, reinterpret_cast<unsigned char*>(&value), 4);
        if (lanes != 15) {
            transaction.set_byte_enable_ptr(enables);
            transaction.set_byte_enable_length(4);
        }
        transport(registers, transaction);
        return transaction.is_response_ok();
    }

    // Starts the `pages` pages of program at `address` and returns when the accelerator is busy.
    void start(uint32_t address, uint32_t pages, uint32_t base) {
        write_register(DOVETAIL_HOST_PROGRAM, address);
        write_register(DOVETAIL_HOST_PAGES, pages);
        write_register(DOVETAIL_HOST_BASE, base);
        write_register(DOVETAIL_HOST_CONTROL, DOVETAIL_HOST_CONTROL_START_MASK | DOVETAIL_HOST_CONTROL_IRQ_ENABLE_MASK);
        keeper.sync();
    }

    void wait_for_irq() {
        keeper.sync();
        if (!irq.read()) wait(irq.posedge_event());
        keeper.reset();
    }

    void clear_irq() { write_register(DOVETAIL_HOST_STATUS, DOVETAIL_HOST_STATUS_DONE_MASK); }

    // Lets time pass.
    void pass(const sc_core::sc_time& time) {
        keeper.inc(time);
        if (keeper.need_sync()) keeper.sync();
    }

    // The host's own time.
    sc_core::sc_time now() const { return keeper.get_current_time(); }

private:
    static constexpr size_t CHUNK = 4096;  // bytes of a transaction

    std::function<void(Host&)> program;
    tlm_utils::tlm_quantumkeeper keeper;
    tlm::tlm_dmi direct;
    bool has_direct = false;

    void run() {
        keeper.reset();
        program(*this);
        keeper.sync();
        sc_core::sc_stop();
    }

    void move(tlm::tlm_command command, uint64_t address, unsigned char* data, size_t bytes) {
        for (size_t done = 0; done < bytes; done += CHUNK) {
            const size_t size = bytes - done < CHUNK ? bytes - done : CHUNK;
            if (move_directly(command, address + done, data + done, size)) continue;
            tlm::tlm_generic_payload transaction;
            fill(transaction, command, address + done, data + done, size);
            transport(memory, transaction);
            if (!transaction.is_response_ok())
                SC_REPORT_ERROR("dovetail.host", transaction.get_response_string().c_str());
            if (transaction.is_dmi_allowed() && !has_direct)
                has_direct = memory->get_direct_mem_ptr(transaction, direct);
        }
    }

    bool move_directly(tlm::tlm_command command, uint64_t address, unsigned char* data, size_t bytes) {
        const bool write = command == tlm::TLM_WRITE_COMMAND;
        if (!has_direct || address < direct.get_start_address() || address + bytes - 1 > direct.get_end_address() ||
            !(write ? direct.is_write_allowed() : direct.is_read_allowed()))
            return false;
        unsigned char* const inside = direct.get_dmi_ptr() + (address - direct.get_start_address());
        memcpy(write ? inside : data, write ? data : inside, bytes);
        pass(write ? direct.get_write_latency() : direct.get_read_latency());
        return true;
    }

    static void fill(tlm::tlm_generic_payload& transaction, tlm::tlm_command command, uint64_t address,
                     unsigned char* data, size_t bytes) {
        transaction.set_command(command);
        transaction.set_address(address);
        transaction.set_data_ptr(data);
        transaction.set_data_length(unsigned(bytes));
        transaction.set_streaming_width(unsigned(bytes));
    }

    template <typename Socket>
    void transport(Socket& socket, tlm::tlm_generic_payload& transaction) {
        sc_core::sc_time delay = keeper.get_local_time();
        socket->b_transport(transaction, delay);
        keeper.set(delay);
        if (keeper.need_sync()) keeper.sync();
    }

    void invalidate(sc_dt::uint64, sc_dt::uint64) { has_direct = false; }
};

}  // namespace dovetail
