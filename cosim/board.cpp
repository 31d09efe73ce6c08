// Runs a Verilated board: the far end of its UART is a file descriptor of a pseudo-terminal.
#include "Vdut.h"
#include "verilated.h"

#include <atomic>
#include <cerrno>
#include <cstdint>
#include <memory>
#include <poll.h>
#include <unistd.h>

#define EXPORT extern "C" __attribute__((visibility("default")))

namespace {

constexpr unsigned POLL_CYCLES = 256;  // between two looks at the host while the line is idle

// The host's side of the line to the board: start bit, eight data bits, stop bit, `divisor` cycles each.
struct Sender {
    uint8_t bytes[4096];
    size_t next = 0, end = 0;
    unsigned bits = 0;  // still to be sent of this byte
    uint32_t shift = 0;
    uint64_t left = 0;  // cycles of this bit

    bool idle() const { return bits == 0 && next == end; }

    // The level in this cycle.
    bool level(uint64_t divisor) {
        if (bits == 0) {
            if (next == end) return true;
            shift = 1u << 9 | uint32_t(bytes[next++]) << 1;
            bits = 10;
            left = divisor;
        }
        const bool level = shift & 1;
        if (--left == 0) {
            shift >>= 1;
            --bits;
            left = divisor;
        }
        return level;
    }
};

// The host's side of the line from the board. Samples the middle of each bit; a byte without a stop bit is dropped.
struct Receiver {
    unsigned bits = 0;  // still to be sampled of this byte
    uint32_t shift = 0;
    uint64_t left = 0;  // cycles to the next sample
    uint64_t dropped = 0;

    bool idle() const { return bits == 0; }

    // Takes the level of this cycle; true when `byte` has been received.
    bool take(bool level, uint64_t divisor, uint8_t* byte) {
        if (bits == 0) {
            if (level) return false;
            bits = 10;
            left = divisor / 2;
        }
        if (left--) return false;
        left = divisor - 1;
        shift = shift >> 1 | uint32_t(level) << 9;
        if (--bits) return false;
        *byte = uint8_t(shift >> 1);
        const bool good = (shift & 1) == 0 && level;
        dropped += !good;
        return good;
    }
};

struct Board {
    VerilatedContext context;
    std::unique_ptr<Vdut> top;
    Sender sender;
    Receiver receiver;
    uint64_t divisor, now = 0;
    std::atomic<uint64_t> cycles{0};
    std::atomic<uint64_t> dropped{0};
    std::atomic<int> fault{0};

    explicit Board(uint64_t divisor) : top(std::make_unique<Vdut>(&context, "top")), divisor(divisor) {
        top->rx = 1;
        top->rst = 1;
        for (int i = 0; i < 4; ++i) cycle();
        top->rst = 0;
        for (int i = 0; i < 4; ++i) cycle();
    }

    void cycle() {
        Vdut* const t = top.get();
        t->eval();
        t->clk = 1;
        t->eval();
        t->clk = 0;
        ++now;
    }

    // Nothing will happen until the host sends a byte, so time may stand still.
    bool quiet() const { return !top->busy && sender.idle() && receiver.idle(); }

    // Fills the sender. False: `stop` is readable.
    bool listen(int serial, int stop, bool wait) {
        struct pollfd files[] = {{serial, POLLIN, 0}, {stop, POLLIN, 0}};
        if (poll(files, 2, wait ? -1 : 0) < 0 && errno != EINTR) return false;
        if (files[1].revents) return false;
        if (files[0].revents & POLLIN) {
            const ssize_t size = read(serial, sender.bytes, sizeof sender.bytes);
            sender.next = 0;
            sender.end = size > 0 ? size_t(size) : 0;
        }
        return true;
    }

    // False: `stop` became readable before the host took the byte.
    bool deliver(int serial, int stop, uint8_t byte) {
        struct pollfd files[] = {{serial, POLLOUT, 0}, {stop, POLLIN, 0}};
        while (write(serial, &byte, 1) != 1) {
            poll(files, 2, -1);
            if (files[1].revents) return false;
        }
        return true;
    }

    void run(int serial, int stop) {
        uint8_t byte;
        for (;;) {
            if (sender.idle() && (now % POLL_CYCLES == 0 || quiet())) {
                cycles = now;
                dropped = receiver.dropped;
                fault = top->fault;
                if (!listen(serial, stop, quiet())) return;
            }
            top->rx = sender.level(divisor);
            cycle();
            if (receiver.take(top->tx, divisor, &byte) && !deliver(serial, stop, byte)) return;
        }
    }
};

}  // namespace

EXPORT Board* board_new(uint64_t divisor) { return new Board(divisor); }
EXPORT void board_delete(Board* board) {
    board->top->final();
    delete board;
}

// Runs the board until `stop` can be read. `serial`, not blocking, is the far end of its UART. Call it once.
EXPORT void board_run(Board* board, int serial, int stop) { board->run(serial, stop); }

// Clock cycles since the reset, as of the last look at the host.
EXPORT uint64_t board_cycles(Board* board) { return board->cycles; }

// The lamp of that name.
EXPORT int board_fault(Board* board) { return board->fault; }

// Bytes from the board whose stop bit was low.
EXPORT uint64_t board_dropped(Board* board) { return board->dropped; }
