// The boards' SDRAM controller, beat by beat: what sdram.py says, compiled.
#pragma once
#include "memory.h"

namespace memories {

// The members of `SdramTiming` in isa/config/memory.py, in their order there.
struct SdramTiming {
    i64 clock, width, column_bits, rcd, rp, ras, rfc, wr, refresh_interval, phase;
};

class Sdram final : public Memory {
public:
    explicit Sdram(const SdramTiming& timing) : its(timing), row_bytes(its.width / 8 << its.column_bits) { due = due_after(-1); }

    i64 places() const override { return 16; }

    void take(const Burst& burst) override {
        const i64 offered = burst.write ? std::max(burst.accepted + 1, burst.data) : burst.accepted + 1;
        const i64 columns = std::max<i64>(1, 8 * burst.bytes / its.width);
        waiting[burst.write].push_back({i64(burst.address), burst.bytes, columns, burst.beats, offered});
    }

    i64 next() const override {
        i64 offered = NEVER;
        for (const auto& bursts : waiting)
            if (!bursts.empty()) offered = std::min(offered, bursts.front().offered);
        return offered == NEVER ? NEVER : std::max({chosen + 1, done[0] + 1, offered});
    }

    void serve(i64 before) override {
        i64 now = next();
        do {
            beat(now);
            now = next();
        } while (reports.empty() && now < before);
    }

private:
    static constexpr i64 TURN = 4, ANSWER = 5;

    struct Waiting {
        i64 address, bytes, columns, left, offered;
    };

    const SdramTiming its;
    const i64 row_bytes;
    std::deque<Waiting> waiting[2];  // reads, writes
    bool writes_next = false;
    i64 chosen = -1, done[2] = {-1, -1};  // the latest choice; the latest two beats, oldest first
    // of the chip
    i64 command = 0;  // the first cycle in which the next one may be decided
    i64 due;  // from when on a refresh is
    i64 row = -1;
    bool open = false;
    i64 held = 0, read = -TURN - 1;  // the first cycle in which the open row may be closed; the latest READ

    i64 due_after(i64 time) const {
        const i64 count = time + its.phase, interval = its.refresh_interval;
        return (count < 0 ? 0 : count / interval + 1) * interval + 1 - its.phase;
    }

    void beat(i64 now) {
        const bool reads = !waiting[0].empty() && waiting[0].front().offered <= now;
        const bool writes = !waiting[1].empty() && waiting[1].front().offered <= now;
        const bool write = writes && (writes_next || !reads);
        auto& bursts = waiting[write];
        Waiting& burst = bursts.front();
        const i64 end = access(now, burst.address / row_bytes, burst.columns, write);
        chosen = now, done[0] = done[1], done[1] = end;
        burst.address += burst.bytes, burst.offered = now + 1;
        const bool last = --burst.left == 0;
        writes_next = write != last;
        if (!last) return;
        bursts.pop_front();
        if (!bursts.empty()) bursts.front().offered = std::max(bursts.front().offered, now + 1);
        if (write) {
            reports.push_back({W, now});
            reports.push_back({B, now + 1});
        } else {
            reports.push_back({R, end + ANSWER});
        }
    }

    // The cycle of the last column of a beat that was chosen in this cycle, behind those before it.
    i64 access(i64 since, i64 its_row, i64 left, bool write) {
        bool hit = its_row == row;
        row = its_row;
        while (left) {
            const i64 time = command;
            const bool waits = time > since, refresh = due <= time;
            if (open && (refresh || (waits && !hit))) {
                command = std::max(time, held) + its.rp;
                open = false;
            } else if (refresh) {
                due = due_after(time);
                command = time + its.rfc;
            } else if (!waits) {
                command = std::min(due, since + 1);
            } else if (!open) {
                open = hit = true;
                held = time + its.ras;
                command = time + its.rcd;
            } else if (!write) {
                const i64 columns = std::min(left, due - time);
                left -= columns, hit = true;
                command = time + columns;
                read = command - 1;
            } else if (time <= read + TURN) {
                command = std::min(due, read + TURN + 1);
            } else {
                --left, hit = true;
                command = time + 1;
                if (held - time < its.wr) held = time + 1 + its.wr;
            }
        }
        return command - 1;
    }
};

}  // namespace memories
