// A channel of DRAM behind its controller, event by event: the same as in dram.py. docs/memory.md has the rule.
#pragma once
#include "memory.h"

#include <algorithm>
#include <numeric>
#include <vector>

namespace memories {

// The members of `DramTiming` in isa/config/memory.py, in their order there; places of the map's fields instead of its
// name.
struct DramTiming {
    i64 clock, dram_clock, width, burst_length, groups, banks, row;
    i64 bank_shift, column_shift, group_shift, row_shift;  // of an address
    i64 cl, cwl, rcd, rp, ras, rtp, wr, ccd, ccd_l, rrd, rrd_l, faw, wtr, wtr_l, rfc, refi, queue, ahead, front, back;
};

class Dram final : public Memory {
public:
    explicit Dram(const DramTiming& timing)
        : p(timing),
          data(p.burst_length / 2),
          cycles(p.clock / std::gcd(p.clock, p.dram_clock)),
          ticks(p.dram_clock / std::gcd(p.clock, p.dram_clock)),
          block_shift(__builtin_ctzll(u64(p.width / 8 * p.burst_length))),
          bank_shift(__builtin_ctzll(u64(p.banks))),
          banks(size_t(p.groups * p.banks)),
          groups(size_t(p.groups)),
          columns(size_t(p.ahead), LONG_AGO),
          refresh(p.refi) {
        const i64 row = p.row >> block_shift;
        if (p.column_shift == block_shift)
            turn = 1, stretch = row, step = std::max(p.ccd, p.ccd_l);
        else if (p.group_shift == block_shift && p.column_shift < p.bank_shift && p.ccd_l <= p.groups * p.ccd)
            turn = p.groups, stretch = row * p.groups, step = p.ccd;
    }

    i64 places() const override { return PLACES; }

    void take(const Burst& burst) override {
        Side& side = sides[burst.write];
        const int size = __builtin_ctzll(u64(burst.bytes));
        const u64 start = burst.address >> size << size, end = start + (u64(burst.beats) << size);
        const i64 taken = burst.write ? burst.data + burst.beats - 1 : burst.accepted;
        if (burst.write) reports.push_back({W, taken});
        const u64 base = start >> block_shift;
        const i64 blocks = i64(((end - 1) >> block_shift) - base + 1);
        const i64 arrival = over((taken + 1) * ticks, cycles) + p.front;
        side.open[side.last++ % HELD] = {burst.write, size, arrival, burst.beats, blocks, 0, start, base};
        if (queue.empty()) plan();
    }

    void serve(i64 before) override {
        do {
            choose(tick);
            plan();
        } while (reports.empty() && next < before);
    }

private:
    static constexpr u64 HELD = 32;  // more than the bursts that are held

    // A burst that is not answered. ``left``: its blocks that were not chosen. ``end``: when its response comes, or what is
    // behind its last beat, as far as the blocks that were chosen go; of it ``ticks`` are a cycle.
    struct Open {
        bool write;
        int size;  // bits of a byte's place in a beat
        i64 arrival, beats, left, end;
        u64 start, base;  // the first byte, the first block
    };
    // Blocks of a burst that have arrived and were not chosen, from one up to the one before another.
    struct Run {
        Open* burst;
        i64 first, last;
    };
    struct Side {
        Open open[HELD];
        u64 first = 0, coming = 0, last = 0;  // numbers of the oldest one, of the one to arrive, and of the next
        i64 next = 0;  // the first cycle of the next beat, or response

        i64 arrival() const { return coming < last ? open[coming % HELD].arrival : NEVER; }
    };
    struct Bank {
        i64 row = -1, activate = 0, precharge = 0, column = 0;
    };
    struct Group {
        i64 legal[2] = {0, 0}, opened = LONG_AGO;  // of READ and WRITE; the latest ACTIVATE
    };
    // Of a block.
    struct Place {
        i64 group, bank, row;
    };

    const DramTiming p;
    const i64 data;
    const i64 cycles, ticks;  // as many as there are in the same time
    const int block_shift, bank_shift;  // bits of a byte's place in a block, of a bank's in its group
    // Blocks in the same rows, of which each ``turn`` are in ``turn`` groups, lie together from a multiple of ``stretch``
    // on. Where nothing comes in between, their columns are ``step`` apart behind the first ``turn``. 0: not so.
    i64 turn = 0, stretch = 1, step = 1;
    std::vector<Bank> banks;
    std::vector<Group> groups;
    std::vector<i64> columns;  // of the latest choices, in a ring
    size_t oldest = 0;
    i64 refresh;
    Side sides[2];
    std::vector<Run> queue;  // of the bursts that have arrived, at least the oldest one
    i64 legal[2] = {0, 0}, activates[4] = {LONG_AGO, LONG_AGO, LONG_AGO, LONG_AGO};
    int latest = 3;  // of `activates`
    i64 tick = NEVER, chosen = -1, passed = 0;  // of the next choice, of the latest one
    i64 column = LONG_AGO;  // the latest one

    static i64 over(i64 a, i64 b) { return (a + b - 1) / b; }
    static void later(i64& time, i64 least) { time = std::max(time, least); }

    i64 arrival() const { return std::min(sides[0].arrival(), sides[1].arrival()); }

    // When the next choice is.
    void plan() {
        const i64 least = queue.empty() ? arrival() : 0;
        tick = std::max({chosen + 1, columns[oldest] + 1, least});
        next = least == NEVER ? NEVER : (tick - p.front) * cycles / ticks;
    }

    // The burst that is next to arrive is at the end of the queue.
    void arrive() {
        Side& side = sides[sides[1].arrival() < sides[0].arrival()];
        Open& burst = side.open[side.coming++ % HELD];
        queue.push_back({&burst, 0, burst.left});
    }

    Place place(const Open& burst, i64 part) const {
        const u64 address = (burst.base + u64(part)) << block_shift;
        const i64 group = i64(address >> p.group_shift) & (p.groups - 1);
        return {group, group << bank_shift | (i64(address >> p.bank_shift) & (p.banks - 1)), i64(address >> p.row_shift)};
    }

    void choose(i64 now) {
        if (queue.empty()) arrive();
        if (refresh <= now) refreshes(now);
        const Run run = queue.front();
        const Place at = place(*run.burst, run.first);
        const i64 row = banks[size_t(at.bank)].row;
        if (row != at.row) {
            // A row that is wanted is not closed, for some time.
            if (row >= 0 && passed < p.queue && choose_in(at.bank, row, now)) {
                ++passed;
                return;
            }
            open(now, at);
        }
        passed = 0;
        serve_from(0, run.first, run.last, now);
    }

    // Chooses the oldest block in a row, if one in the queue is; whether it is.
    bool choose_in(i64 bank, i64 row, i64 now) {
        i64 left = p.queue;
        for (size_t n = 0; left; ++n) {
            if (n == queue.size()) {
                if (arrival() > now) break;
                arrive();
            }
            const auto [burst, first, last] = queue[n];
            for (i64 part = first; part < last && left; ++part, --left) {
                const Place at = place(*burst, part);
                if (at.bank != bank || at.row != row) continue;
                serve_from(n, part, part + 1, now);
                return true;
            }
        }
        return false;
    }

    // Serves blocks of a run in the queue, as many as come next whatever arrives.
    void serve_from(size_t n, i64 part, i64 stop, i64 now) {
        const auto [burst, first, last] = queue[n];
        const i64 served = stream(*burst, part, stop, now);
        if (served < last) queue[n].first = served;
        else queue.erase(queue.begin() + i64(n));
        if (first < part) queue.insert(queue.begin() + i64(n), {burst, first, part});
        Side& side = sides[burst->write];
        while (side.first < side.last && !side.open[side.first % HELD].left) answer(side);
    }

    // Serves blocks of a burst up to the first one that is no hit or behind a refresh; the first one is chosen in this
    // tick, in an open row. Returns the first one that was not served.
    i64 stream(Open& burst, const i64 first, const i64 last, i64 now) {
        // So many blocks at both ends of a jump have their turn one by one: one of each group, and the last of a beat.
        const i64 margin = turn + (i64(1) << std::max(0, burst.size - block_shift));
        i64 part = first, jump = turn ? std::max<i64>(first, 1) + margin : last;
        for (chosen = now - 1; part < last; ++part) {
            if (part == jump) {
                const i64 inside = i64(burst.base + u64(part)) & (stretch - 1);
                const i64 before_refresh = (refresh - 2 - column) / step;
                const i64 count = std::min({last - part, stretch - inside, before_refresh}) - margin;
                if (inside >= margin && count > 0) skip(count, burst.write), part += count;
                jump += (inside < margin ? 0 : stretch) + margin - inside;
            }
            const i64 next = std::max(chosen, columns[oldest]) + 1;
            const Place at = place(burst, part);
            if (refresh <= next || banks[size_t(at.bank)].row != at.row) break;
            chosen = next;
            note(burst, part, column_of(at, burst.write) + p.back);
        }
        burst.left -= part - first;
        return part;
    }

    // Columns that are `step` apart, as the latest one and the next.
    void skip(i64 count, bool write) {
        const i64 ahead = i64(columns.size()), rest = std::max<i64>(0, count - ahead);
        column += rest * step;
        const i64 before = column;
        for (i64 n = rest; n < count; ++n) {
            later(chosen, columns[oldest]);
            ++chosen;
            remember(column + step);
        }
        if (rest) chosen = std::max(chosen + rest, before + 1);
        legal[write] = column + step;
    }

    void remember(i64 its_column) {
        columns[oldest] = column = its_column;
        if (++oldest == columns.size()) oldest = 0;
    }

    // The column of a block that was chosen, in an open row. Returns the tick at which its data have come or gone.
    i64 column_of(const Place& at, bool write) {
        Bank& bank = banks[size_t(at.bank)];
        Group& group = groups[size_t(at.group)];
        remember(std::max(std::max(chosen, bank.column), std::max(group.legal[write], legal[write])));
        const i64 end = column + (write ? p.cwl : p.cl) + data;
        if (write) {
            later(legal[0], end + p.wtr);
            later(group.legal[0], end + p.wtr_l);
            later(bank.precharge, end + p.wr);
        } else {
            later(legal[1], column + p.cl + data + 2 - p.cwl);
            later(bank.precharge, column + p.rtp);
        }
        legal[write] = column + p.ccd;
        group.legal[write] = column + p.ccd_l;
        return end;
    }

    // The data of a block are on their way to the bus in this tick, with all beats of the burst that follow.
    void note(Open& burst, i64 part, i64 tick) const {
        const u64 past = (burst.base + u64(part)) << block_shift;
        const i64 more = burst.write ? 0 : burst.beats - (part ? i64((past - burst.start) >> burst.size) : 0);
        later(burst.end, tick * cycles + more * ticks);
    }

    // The oldest burst of a direction ends.
    void answer(Side& side) {
        const Open& burst = side.open[side.first++ % HELD];
        const i64 cycle = std::max(burst.write ? side.next : side.next + burst.beats, over(burst.end, ticks));
        side.next = burst.write ? cycle + 1 : cycle;
        reports.push_back(burst.write ? Report{B, cycle} : Report{R, cycle - 1});
    }

    void refreshes(i64 now) {
        while (refresh <= now) {
            i64 time = refresh, legal_at = 0;
            bool open = false;
            for (const Bank& bank : banks)
                if (bank.row >= 0) open = true, later(time, bank.precharge);
                else later(legal_at, bank.activate);
            time = std::max(time + (open ? p.rp : 0), legal_at);
            for (Bank& bank : banks) bank.row = -1, bank.activate = time + p.rfc;
            refresh += p.refi;
            // Nothing happens in between: only the latest matters.
            if (time + p.rfc <= refresh && refresh <= now) refresh += (now - refresh) / p.refi * p.refi;
        }
    }

    // The row of a block is opened.
    void open(i64 now, const Place& at) {
        Bank& bank = banks[size_t(at.bank)];
        Group& group = groups[size_t(at.group)];
        if (bank.row >= 0) bank.activate = std::max(now, bank.precharge) + p.rp;
        const i64 opened = std::max(
            {now, bank.activate, activates[latest] + p.rrd, group.opened + p.rrd_l, activates[(latest + 1) % 4] + p.faw});
        latest = (latest + 1) % 4;
        activates[latest] = group.opened = opened;
        bank.row = at.row, bank.column = opened + p.rcd, bank.precharge = opened + p.ras;
    }
};

}  // namespace memories
