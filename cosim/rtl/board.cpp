// Runs a Verilated board: the far end of its UART is a file descriptor of a pseudo-terminal.
//
// ACCELERATORS is ACCELERATOR(0) ACCELERATOR(1) ..., COUNT how many they are.
#include "Vdut.h"
#include "dut_ports.h"
#include "verilated.h"

#include <atomic>
#include <cerrno>
#include <cstdint>
#include <memory>
#include <poll.h>
#include <type_traits>
#include <unistd.h>
#include <vector>

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

#if HAS_SDRAM
// SDRAM of 4 banks, bursts of one column. Keeps bytes and which rows are open; its times are checked with the
// controller alone.
struct Chip {
    using Column = std::conditional_t<SDRAM_WIDTH == 32, uint32_t, uint16_t>;
    std::vector<Column> cells = std::vector<Column>(size_t(4) << SDRAM_ROW_BITS << SDRAM_COLUMN_BITS);
    int rows[4] = {-1, -1, -1, -1};
    Column coming[2] = {};  // what READs found; seen at the edge after the next one
    const char* violation = nullptr;

    Column next(unsigned command, unsigned bank, unsigned a, unsigned mask, Column data) {
        enum { ACTIVATE = 1, READ = 2, PRECHARGE = 5, WRITE = 6 };
        const Column found = coming[1];
        coming[1] = coming[0];
        if (command == ACTIVATE) {
            if (rows[bank] >= 0) violation = "ACTIVATE of a bank with an open row";
            rows[bank] = int(a);
        } else if (command == PRECHARGE) {
            for (unsigned n = 0; n < 4; ++n)
                if (a >> 10 & 1 || n == bank) rows[n] = -1;
        } else if (command == READ || command == WRITE) {
            if (rows[bank] < 0) {
                violation = "a column of a bank without an open row";
                return found;
            }
            const unsigned column = a & ((1u << SDRAM_COLUMN_BITS) - 1);
            Column& cell = cells[(size_t(rows[bank]) << 2 | bank) << SDRAM_COLUMN_BITS | column];
            Column kept = 0;
            for (unsigned n = 0; n < SDRAM_WIDTH / 8; ++n)
                if (mask >> n & 1) kept |= Column(Column(0xFF) << 8 * n);
            if (command == READ) coming[0] = cell;
            else cell = Column((cell & kept) | (data & ~kept));
        }
        return found;
    }
};
#endif

// The latest run of an accelerator.
struct Run {
    uint64_t origin = 0;  // its cycle 0
    bool running = false;
    Timeline timeline;
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
    Run runs[COUNT];
#if HAS_SDRAM
    Chip chip;
#endif

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
#define UNIT(trace, number, name) NOTE_UNIT(run.timeline, t, trace, number, name, now - run.origin)
#define ACCELERATOR(k)                                                  \
    {                                                                   \
        Run& run = runs[k];                                             \
        if (t->a##k##_trace_busy) {                                     \
            if (UNLIKELY(!run.running)) {                               \
                run.origin = now;                                       \
                run.timeline.clear();                                   \
            }                                                           \
            UNIT(a##k##_trace, 0, load)                                 \
            UNIT(a##k##_trace, 1, array)                                \
            UNIT(a##k##_trace, 2, vector)                               \
            UNIT(a##k##_trace, 3, store)                                \
        }                                                               \
        run.running = t->a##k##_trace_busy;                             \
    }
        ACCELERATORS
#undef ACCELERATOR
#undef UNIT
        t->clk = 1;
        t->eval();
#if HAS_SDRAM
#define PIN(name) t->sdram___05F##name
        const unsigned command = PIN(ras) | PIN(cas) << 1 | PIN(we) << 2;
        PIN(dq_i) = chip.next(command, PIN(ba), PIN(a), PIN(dqm), PIN(dq_o));
#undef PIN
#endif
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

// What the memory was told that it cannot do; null if nothing.
EXPORT const char* board_violation(Board* board) {
#if HAS_SDRAM
    return board->chip.violation;
#else
    (void)board;
    return nullptr;
#endif
}

// The lamp of that name.
EXPORT int board_fault(Board* board) { return board->fault; }

// Of the latest run of an accelerator, when it has ended: the cycle since the reset that is its cycle 0, and what its
// units did. Gives the number of entries; `out` may be null.
EXPORT uint64_t board_origin(Board* board, int k) { return board->runs[k].origin; }
EXPORT uint64_t board_entries(Board* board, int k, int64_t* out) { return board->runs[k].timeline.copy(out); }

// Bytes from the board whose stop bit was low.
EXPORT uint64_t board_dropped(Board* board) { return board->dropped; }
