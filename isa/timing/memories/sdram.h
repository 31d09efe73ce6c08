// The boards' SDRAM controller: what sdram.py says, compiled. A burst that has begun is not interrupted, as its next beat is
// always offered in time, so bursts are served as a whole.
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

    i64 places() const override { return PLACES; }

    void take(const Burst& burst) override {
        const i64 offered = burst.write ? std::max(burst.accepted + 1, burst.data) : burst.accepted + 1;
        const i64 columns = std::max<i64>(1, 8 * burst.bytes / its.width);
        waiting[burst.write].push_back({i64(burst.address), burst.bytes, columns, burst.beats, offered});
        plan();
    }

    void serve(i64) override {
        const i64 now = next;
        const bool reads = !waiting[0].empty() && waiting[0].front().offered <= now;
        const bool writes = !waiting[1].empty() && waiting[1].front().offered <= now;
        const bool write = writes && (writes_next || !reads);
        auto& bursts = waiting[write];
        play(bursts.front(), now, write);
        bursts.pop_front();
        if (!bursts.empty()) bursts.front().offered = std::max(bursts.front().offered, chosen + 1);
        writes_next = !write;
        if (write) {
            reports.push_back({W, chosen});
            reports.push_back({B, chosen + 1});
        } else {
            reports.push_back({R, done[1] + ANSWER});
        }
        plan();
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

    // When the next burst is begun.
    void plan() {
        i64 offered = NEVER;
        for (const auto& bursts : waiting)
            if (!bursts.empty()) offered = std::min(offered, bursts.front().offered);
        next = offered == NEVER ? NEVER : std::max({chosen + 1, done[0] + 1, offered});
    }

    i64 due_after(i64 time) const {
        const i64 count = time + its.phase, interval = its.refresh_interval;
        return (count < 0 ? 0 : count / interval + 1) * interval + 1 - its.phase;
    }

    // All beats of a burst, of which the first is chosen in a cycle.
    void play(const Waiting& burst, i64 first, bool write) {
        const i64 columns = burst.columns;
        i64 address = burst.address, left = burst.left;
        for (chosen = first;; chosen = std::max(chosen, done[0]) + 1) {
            const i64 its_row = address / row_bytes, end = access(chosen, its_row, columns, write);
            done[0] = done[1], done[1] = end;
            address += burst.bytes;
            if (!--left) return;
            // Up to the end of the row, or a refresh, column follows column, as each beat waits before its first.
            const i64 beats = std::min(left, std::min((its_row + 1) * row_bytes - address, (due - 1 - end) / columns * burst.bytes) / burst.bytes);
            if (beats <= 0) continue;
            left -= beats, address += beats * burst.bytes;
            const i64 next = std::max(chosen, done[0]) + 1, last = end + beats * columns;
            chosen = beats == 1 ? next : std::max(next + beats - 1, last - 2 * columns + 1);
            done[0] = last - columns, done[1] = last;
            command = last + 1;
            if (write) wrote(end + 1, last);
            else read = last;
            if (!left) return;
        }
    }

    // WRITEs in all these cycles: when the row may be closed.
    void wrote(i64 from, i64 to) {
        const i64 late = std::max(from, held - its.wr + 1);  // the first one behind which it must be held longer
        if (late <= to) held = late + (to - late) / 2 * 2 + 1 + its.wr;
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
                wrote(time, time);
            }
        }
        return command - 1;
    }
};

}  // namespace memories
