// A channel of DRAM behind its controller, event by event: the same as in isa/timing/dram.py. docs/memory.md has the rule.
#pragma once
#include "memory.h"

#include <algorithm>
#include <deque>
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
          block_shift(__builtin_ctzll(u64(p.width / 8 * p.burst_length))),
          banks(size_t(p.groups * p.banks)),
          groups(size_t(p.groups)),
          columns(size_t(p.ahead), LONG_AGO),
          refresh(p.refi) {}

    i64 places() const override { return 16; }

    void take(const Burst& burst) override {
        Side& side = sides[burst.write];
        const u64 size = u64(burst.bytes), start = burst.address / size * size, end = start + u64(burst.beats) * size;
        const i64 taken = burst.write ? burst.data + burst.beats - 1 : burst.accepted;
        if (burst.write) reports.push_back({W, taken});
        Open one;
        if (!spare.empty()) {
            one = std::move(spare.back());
            spare.pop_back();
        }
        one.write = burst.write;
        one.arrival = over(u64(taken + 1) * u64(p.dram_clock), u64(p.clock)) + p.front;
        one.start = start;
        one.beats = burst.beats;
        one.size = size;
        one.base = start >> block_shift;
        one.next = 0;
        one.left = i64(((end - 1) >> block_shift) - one.base + 1);
        one.ready.assign(size_t(one.left), 0);
        side.open.push_back(std::move(one));
    }

    i64 next() const override {
        const i64 tick = due();
        return tick >= NEVER ? NEVER : (tick - p.front) * p.clock / p.dram_clock;
    }

    void serve(i64 before) override {
        do choose(due());
        while (reports.empty() && next() < before);
    }

private:
    // A burst that is not answered: `next` of its blocks is the first that is not in the queue.
    struct Open {
        bool write;
        i64 arrival, beats, next, left;
        u64 start, size, base;
        std::vector<i64> ready;  // by block, the cycle in which its data are there
    };
    struct Side {
        std::deque<Open> open;
        u64 first = 0;   // number of the first of them
        u64 coming = 0;  // of the first one with blocks that are not in the queue
        i64 next = 0;    // the first cycle of the next beat, or response
    };
    struct Request {
        u64 burst, part;
        i64 bank, row;
        bool write;
    };
    struct Bank {
        i64 row = -1, activate = 0, precharge = 0, column = 0;
    };
    struct Group {
        i64 legal[2] = {0, 0}, opened = LONG_AGO;  // of READ and WRITE; the latest ACTIVATE
    };

    const DramTiming p;
    const i64 data;
    const int block_shift;
    std::vector<Bank> banks;
    std::vector<Group> groups;
    std::vector<i64> columns;  // of the latest choices, in a ring
    size_t oldest = 0;
    i64 refresh;
    Side sides[2];
    std::vector<Open> spare;
    std::vector<Request> queue;  // the oldest ones that have arrived: what can be chosen
    i64 legal[2] = {0, 0}, activates[4] = {LONG_AGO, LONG_AGO, LONG_AGO, LONG_AGO};
    int latest = 3;  // of `activates`
    i64 chosen = -1, passed = 0;

    static i64 over(u64 a, u64 b) { return i64((a + b - 1) / b); }
    static void later(i64& time, i64 least) { time = std::max(time, least); }

    Open* coming(int w) {
        Side& side = sides[w];
        const u64 place = side.coming - side.first;
        return place < side.open.size() ? &side.open[place] : nullptr;
    }
    i64 arrival(int w) const {
        const Side& side = sides[w];
        const u64 place = side.coming - side.first;
        return place < side.open.size() ? side.open[place].arrival : NEVER;
    }

    // The tick of the next choice.
    i64 due() const {
        const i64 least = queue.empty() ? std::min(arrival(0), arrival(1)) : 0;
        return least >= NEVER ? NEVER : std::max({chosen + 1, columns[oldest] + 1, least});
    }

    // Requests that have arrived, as many as can be chosen.
    void fill(i64 now) {
        while (i64(queue.size()) < p.queue) {
            const i64 read = arrival(0), write = arrival(1);
            if (std::min(read, write) > now) return;
            const int w = write < read;
            Open& burst = *coming(w);
            const u64 address = (burst.base + u64(burst.next)) << block_shift;
            const i64 group = i64(address >> p.group_shift) & (p.groups - 1), bank = i64(address >> p.bank_shift) & (p.banks - 1);
            queue.push_back({sides[w].coming, u64(burst.next), group * p.banks + bank, i64(address >> p.row_shift), bool(w)});
            if (++burst.next == i64(burst.ready.size())) ++sides[w].coming;
        }
    }

    void choose(i64 now) {
        fill(now);
        if (refresh <= now) refreshes(now);
        // A row that is wanted is not closed, for some time.
        size_t place = 0;
        const i64 bank = queue[0].bank, row = banks[size_t(bank)].row;
        if (row >= 0 && row != queue[0].row && passed < p.queue)
            for (size_t n = 1; n < queue.size(); ++n)
                if (queue[n].bank == bank && queue[n].row == row) {
                    place = n;
                    break;
                }
        passed = place ? passed + 1 : 0;
        const Request request = queue[place];
        queue.erase(queue.begin() + i64(place));
        const i64 end = command(now, request);
        chosen = now;
        Side& side = sides[request.write];
        Open& burst = side.open[request.burst - side.first];
        burst.ready[request.part] = over(u64(end + p.back) * u64(p.clock), u64(p.dram_clock));
        --burst.left;
        while (!side.open.empty() && !side.open.front().left) answer(side);
    }

    // The beats, or the response, of the oldest burst of a direction.
    void answer(Side& side) {
        Open& burst = side.open.front();
        i64 cycle = side.next;
        if (burst.write) {
            for (const i64 ready : burst.ready) later(cycle, ready);
            side.next = cycle + 1;
            reports.push_back({B, cycle});
        } else {
            const u64 block = u64(1) << block_shift, end = burst.start + u64(burst.beats) * burst.size;
            for (u64 at = burst.start, n = 0; at < end;) {
                const u64 past = std::min(((at >> block_shift) + 1) << block_shift, end);
                if (burst.size <= block) {
                    later(cycle, burst.ready[n++]);
                    cycle += i64((past - at) / burst.size);
                    at = past;
                } else {
                    for (u64 k = 0; k < burst.size >> block_shift; ++k) later(cycle, burst.ready[n++]);
                    ++cycle;
                    at += burst.size;
                }
            }
            side.next = cycle;
            reports.push_back({R, cycle - 1});
        }
        spare.push_back(std::move(burst));
        side.open.pop_front();
        ++side.first;
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

    // Gives a request's commands: the tick at which its data have come or gone.
    i64 command(i64 now, const Request& request) {
        Bank& bank = banks[size_t(request.bank)];
        Group& group = groups[size_t(request.bank / p.banks)];
        const bool write = request.write;
        if (bank.row != request.row) {
            if (bank.row >= 0) bank.activate = std::max(now, bank.precharge) + p.rp;
            const i64 opened = std::max(
                {now, bank.activate, activates[latest] + p.rrd, group.opened + p.rrd_l, activates[(latest + 1) % 4] + p.faw});
            latest = (latest + 1) % 4;
            activates[latest] = group.opened = opened;
            bank.row = request.row, bank.column = opened + p.rcd, bank.precharge = opened + p.ras;
        }
        const i64 column = std::max({now, bank.column, group.legal[write], legal[write]});
        const i64 end = column + (write ? p.cwl : p.cl) + data;
        if (write) {
            later(legal[0], end + p.wtr), later(legal[1], column + p.ccd);
            later(group.legal[0], end + p.wtr_l), later(group.legal[1], column + p.ccd_l);
            later(bank.precharge, end + p.wr);
        } else {
            later(legal[0], column + p.ccd), later(legal[1], column + p.cl + data + 2 - p.cwl);
            later(group.legal[0], column + p.ccd_l);
            later(bank.precharge, column + p.rtp);
        }
        columns[oldest] = column;
        if (++oldest == columns.size()) oldest = 0;
        return end;
    }
};

}  // namespace memories
