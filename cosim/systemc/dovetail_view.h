// The accelerator without RTL: registers, transfers and interrupt in the model's exact time, at the model's speed.
//
// At the start write the model (see dovetail_server.h) reads what the program touches of system memory, by
// transport_dbg, and runs. The transfers are then replayed as bursts on the memory socket, ahead of the simulation's
// time by at most the global quantum, spread evenly between a transfer's start and end; what is stored goes to memory
// then. The interrupt comes in the model's cycle, or when the last transfer has been taken if that is later.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <iterator>
#include <memory>
#include <stdexcept>
#include <string>

#include <tlm_utils/tlm_quantumkeeper.h>

#include "dovetail_accelerator.h"
#include "dovetail_burst.h"
#include "dovetail_config.h"
#include "dovetail_isa.h"
#include "dovetail_server.h"

namespace dovetail {

class View : public Accelerator {
public:
    SC_HAS_PROCESS(View);

    // `server`: the shell command of the model's process.
    View(const sc_core::sc_module_name& name, const sc_core::sc_time& period, const std::string& server)
        : Accelerator(name, period), command(server) {
        SC_THREAD(replay_reads);
        SC_THREAD(replay_writes);
        SC_THREAD(finish);
        SC_METHOD(drive_irq);
        sensitive << changed;
        dont_initialize();
    }

private:
    const std::string command;
    std::unique_ptr<Server> server;
    Run run = {};
    sc_core::sc_time begin, end;  // of the run: of its cycle 0, and of the first cycle in which it is not busy
    unsigned replaying = 0;
    bool busy = false, done = false, irq_enable = false;
    uint32_t program = 0, pages = 0, base = 0;
    sc_core::sc_event started, replayed, changed;

    void drive_irq() { irq.write(irq_enable && done); }

    // --- registers

    void access(Access& access) override {
        wait(next_edge() - sc_core::sc_time_stamp());
        settle();
        access.refused = !exists(access.offset);
        if (access.write) {
            const bool ignored = busy;  // decided by the cycle that takes the access up, done at its end
            wait(period);
            settle();
            if (!access.refused) write(access, ignored);
            wait(period * double(ACCESS_CYCLES - 1));
        } else {
            access.data = access.refused ? 0 : read(access.offset);
            wait(period * double(ACCESS_CYCLES));
        }
    }

    static bool exists(uint32_t offset) {
        const auto* const end = std::end(config::REGISTERS);
        return std::find(std::begin(config::REGISTERS), end, offset) != end;
    }

    uint32_t read(uint32_t offset) const {
        const Outcome& outcome = run.outcome;
        const bool fault = outcome.cause && !busy;
        const uint64_t passed = (sc_core::sc_time_stamp() - begin).value() / period.value();
        const uint64_t cycles = std::min(passed ? passed - 1 : 0, outcome.cycles);  // the counter is a cycle late
        switch (offset) {
        case DOVETAIL_HOST_ID: return DOVETAIL_HOST_ID_VALUE;
        case DOVETAIL_HOST_VERSION: return DOVETAIL_HOST_VERSION_VALUE;
        case DOVETAIL_HOST_CONFIG_HASH_LO: return uint32_t(config::HASH);
        case DOVETAIL_HOST_CONFIG_HASH_HI: return uint32_t(config::HASH >> 32);
        case DOVETAIL_HOST_CONTROL: return irq_enable ? DOVETAIL_HOST_CONTROL_IRQ_ENABLE_MASK : 0;
        case DOVETAIL_HOST_STATUS:
            return (busy ? DOVETAIL_HOST_STATUS_BUSY_MASK : 0) | (done ? DOVETAIL_HOST_STATUS_DONE_MASK : 0) |
                   (fault ? DOVETAIL_HOST_STATUS_FAULT_MASK : 0);
        case DOVETAIL_HOST_CAUSE: return fault ? outcome.cause : 0;
        case DOVETAIL_HOST_FAULT_PC: return fault ? outcome.pc : 0;
        case DOVETAIL_HOST_PROGRAM: return program;
        case DOVETAIL_HOST_PAGES: return pages;
        case DOVETAIL_HOST_BASE: return base;
        case DOVETAIL_HOST_CYCLES_LO: return uint32_t(cycles);
        case DOVETAIL_HOST_CYCLES_HI: return uint32_t(cycles >> 32);
        default: return busy ? 0 : outcome.counters[(offset - DOVETAIL_HOST_LOAD_BUSY) / 4];
        }
    }

    void write(const Access& access, bool ignored) {
        uint32_t lanes = 0;
        for (unsigned i = 0; i < 4; ++i)
            if (access.lanes >> i & 1) lanes |= 0xFFu << 8 * i;
        const uint32_t given = access.data & lanes;
        const auto merge = [&](uint32_t& target, uint32_t kept) {
            if (!ignored) target = (given | (target & ~lanes)) & kept;
        };
        switch (access.offset) {
        case DOVETAIL_HOST_CONTROL:
            if (lanes & DOVETAIL_HOST_CONTROL_IRQ_ENABLE_MASK)
                irq_enable = given & DOVETAIL_HOST_CONTROL_IRQ_ENABLE_MASK;
            changed.notify();
            if (given & DOVETAIL_HOST_CONTROL_START_MASK && !ignored) start();
            break;
        case DOVETAIL_HOST_STATUS:
            if (given & DOVETAIL_HOST_STATUS_DONE_MASK) done = false;
            changed.notify();
            break;
        case DOVETAIL_HOST_PROGRAM: merge(program, ~(DOVETAIL_PAGE_BYTES - 1)); break;
        case DOVETAIL_HOST_PAGES: merge(pages, config::PAGES_MASK); break;
        case DOVETAIL_HOST_BASE: merge(base, ~(DOVETAIL_BASE_BYTES - 1)); break;
        }
    }

    // --- a run

    // The start write has been taken, at an edge: the run begins at the next.
    void start() {
        try {
            if (!server) server = std::make_unique<Server>(command);
            run = server->run(config::HASH, program, pages, base,
                              [this](uint32_t page, unsigned char* data) { return peek(page, data); });
        } catch (const std::runtime_error& error) {
            SC_REPORT_ERROR("dovetail.view", error.what());
        }
        begin = sc_core::sc_time_stamp() + period;
        end = begin + period * double(run.outcome.cycles);
        busy = true;  // nobody can look before the run begins
        replaying = 2;
        started.notify(period);
    }

    // What the end of a run changes, if it is over: whoever asks first in its last moment finds it done.
    void settle() {
        if (!busy || replaying || sc_core::sc_time_stamp() < end) return;
        busy = false;
        done = true;
        changed.notify();
    }

    void finish() {
        for (;;) {
            wait(started);
            done = false;
            changed.notify();
            wait(end - begin);
            while (replaying) wait(replayed);
            settle();
        }
    }

    // --- system memory

    uint64_t peek(uint32_t page, unsigned char* data) {
        const uint64_t address = uint64_t(page) * SERVER_PAGE;
        if (debug(address, data, SERVER_PAGE)) return ~uint64_t(0);
        uint64_t mask = 0;
        for (uint32_t n = 0; n < SERVER_PAGE / SERVER_BLOCK; ++n)
            if (debug(address + n * SERVER_BLOCK, data + n * SERVER_BLOCK, SERVER_BLOCK)) mask |= uint64_t(1) << n;
        return mask;
    }

    bool debug(uint64_t address, unsigned char* data, uint32_t bytes) {
        tlm::tlm_generic_payload transaction;
        transaction.set_read();
        transaction.set_address(address);
        transaction.set_data_ptr(data);
        transaction.set_data_length(bytes);
        transaction.set_streaming_width(bytes);
        return memory->transport_dbg(transaction) == bytes;
    }

    void replay_reads() { replay(false); }
    void replay_writes() { replay(true); }

    // Replays the transfers of one direction, run after run.
    void replay(bool write) {
        tlm_utils::tlm_quantumkeeper keeper;
        for (;;) {
            wait(started);
            keeper.reset();
            for (size_t n = 0; n < run.transfers.size(); ++n)
                if (bool(run.transfers[n].write) == write) replay(run.transfers[n], run.data[n], keeper);
            keeper.sync();
            --replaying;
            replayed.notify();
        }
    }

    void replay(const Transfer& transfer, const std::vector<unsigned char>& data,
                tlm_utils::tlm_quantumkeeper& keeper) {
        size_t count = 0, sent = 0;
        for_each_burst(transfer, [&](uint32_t, uint32_t, size_t) { ++count; });
        for_each_burst(transfer, [&](uint32_t address, uint32_t bytes, size_t offset) {
            const double share = double(transfer.end - transfer.start) * double(sent++) / double(count);
            const sc_core::sc_time at = begin + period * (double(transfer.start) + std::floor(share));
            if (at > sc_core::sc_time_stamp()) keeper.set(at - sc_core::sc_time_stamp());
            if (keeper.need_sync()) keeper.sync();
            Burst burst;
            burst.write = transfer.write;
            burst.address = address;
            if (burst.write) burst.data.assign(data.begin() + offset, data.begin() + offset + bytes);
            else burst.data.resize(bytes);
            sc_core::sc_time delay = keeper.get_local_time();
            send(memory, burst, config::BUS_BYTES, delay);
        });
    }

    // Calls `action(address, bytes, offset in the transfer)` for every burst, as the accelerator cuts them.
    template <typename Action>
    static void for_each_burst(const Transfer& transfer, Action action) {
        size_t offset = 0;
        for (uint32_t plane = 0; plane < transfer.planes; ++plane)
            for (uint32_t row = 0; row < transfer.rows; ++row) {
                uint32_t address = transfer.address + plane * transfer.plane_step + row * transfer.row_step;
                for (uint32_t left = transfer.length; left;) {
                    const uint32_t boundary = SERVER_PAGE - address % SERVER_PAGE;
                    const uint32_t longest = config::BURST_BYTES - address % config::BUS_BYTES;
                    const uint32_t bytes = std::min({left, boundary, longest});
                    action(address, bytes, offset);
                    address += bytes;
                    offset += bytes;
                    left -= bytes;
                }
            }
    }
};

}  // namespace dovetail
