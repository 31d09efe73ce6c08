// A channel of DRAM behind its controller, event by event: the same as in dram.py. docs/memory.md has the rule.
#pragma once
#include "memory.h"

#include <algorithm>
#include <deque>
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
          refresh(p.refi) {}

    i64 places() const override { return PLACES; }

    void take(const Burst& burst) override {
        Side& side = sides[burst.write];
        const u64 size = u64(burst.bytes), start = burst.address / size * size, end = start + u64(burst.beats) * size;
        const i64 taken = burst.write ? burst.data + burst.beats - 1 : burst.accepted;
        if (burst.write) reports.push_back({W, taken});
        Open& one = side.open[side.last++ % HELD];
        one.arrival = over((taken + 1) * ticks, cycles) + p.front;
        one.start = start;
        one.beats = burst.beats;
        one.size = size;
        one.base = start >> block_shift;
        one.next = 0;
        one.left = i64(((end - 1) >> block_shift) - one.base + 1);
        one.ready.resize(size_t(one.left));
    }

    i64 next() const override {
        const i64 tick = due();
        return tick >= NEVER ? NEVER : (tick - p.front) * cycles / ticks;
    }

    void serve(i64 before) override {
        const i64 limit = before >= NEVER ? NEVER : i64((__int128(before) * ticks + cycles - 1) / cycles) + p.front;
        do choose(due());
        while (reports.empty() && due() < limit);
    }

private:
    static constexpr u64 HELD = 32;  // more than the bursts that are held

    // A burst that is not answered: `next` of its blocks is the first that is not in the queue.
    struct Open {
        i64 arrival, beats, next, left;
        u64 start, size, base;
        std::vector<i64> ready;  // by block, the tick at which its data are on their way to the bus

        i64 count() const { return i64(ready.size()); }
    };
    struct Side {
        Open open[HELD];
        u64 first = 0, last = 0;  // number of the oldest one, and of the next
        u64 coming = 0;  // of the first one with blocks that are not in the queue
        i64 next = 0;  // the first cycle of the next beat, or response

        i64 arrival() const { return coming < last ? open[coming % HELD].arrival : NEVER; }
    };
    struct Request {
        Open* burst;
        i64 part, bank, row;
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
    const i64 cycles, ticks;  // as many as there are in the same time
    const int block_shift, bank_shift;  // bits of a byte's place in a block, of a bank's in its group
    std::vector<Bank> banks;
    std::vector<Group> groups;
    std::vector<i64> columns;  // of the latest choices, in a ring
    size_t oldest = 0;
    i64 refresh;
    Side sides[2];
    std::deque<Request> queue;  // the oldest ones that have arrived: what can be chosen
    i64 legal[2] = {0, 0}, activates[4] = {LONG_AGO, LONG_AGO, LONG_AGO, LONG_AGO};
    int latest = 3;  // of `activates`
    i64 chosen = -1, passed = 0;

    static i64 over(i64 a, i64 b) { return (a + b - 1) / b; }
    static void later(i64& time, i64 least) { time = std::max(time, least); }

    // A cycle, or that of a tick if it is later.
    void later_cycle(i64& cycle, i64 tick) const {
        if (tick * cycles > cycle * ticks) cycle = over(tick * cycles, ticks);
    }

    // The tick of the next choice.
    i64 due() const {
        const i64 least = queue.empty() ? std::min(sides[0].arrival(), sides[1].arrival()) : 0;
        return least >= NEVER ? NEVER : std::max({chosen + 1, columns[oldest] + 1, least});
    }


    // Requests that have arrived, as many as can be chosen.
    void fill(i64 now) {
        while (i64(queue.size()) < p.queue) {
            const i64 read = sides[0].arrival(), write = sides[1].arrival();
            if (std::min(read, write) > now) return;
            const bool w = write < read;
            Open& burst = sides[w].open[sides[w].coming % HELD];
            const u64 address = (burst.base + u64(burst.next)) << block_shift;
            const i64 group = i64(address >> p.group_shift) & (p.groups - 1), bank = i64(address >> p.bank_shift) & (p.banks - 1);
            queue.push_back({&burst, burst.next, group * p.banks + bank, i64(address >> p.row_shift), w});
            if (++burst.next == burst.count()) ++sides[w].coming;
        }
    }

    bool hits(const Request& request) const { return banks[size_t(request.bank)].row == request.row; }

    void choose(i64 now) {
        bool write = sides[1].arrival() < sides[0].arrival();
        if (!queue.empty() || !stream(write, now)) {
            fill(now);
            if (refresh <= now) refreshes(now);
            write = choose_from_queue(now);
        }
        Side& side = sides[write];
        while (side.first < side.last && !side.open[side.first % HELD].left) answer(side, write);
    }

    // Whether it was a write.
    bool choose_from_queue(i64 now) {
        // A row that is wanted is not closed, for some time.
        size_t place = 0;
        const i64 bank = queue.front().bank, row = banks[size_t(bank)].row;
        if (row >= 0 && row != queue.front().row && passed < p.queue)
            for (size_t n = 1; n < queue.size(); ++n)
                if (queue[n].bank == bank && queue[n].row == row) {
                    place = n;
                    break;
                }
        passed = place ? passed + 1 : 0;
        const Request request = queue[place];
        if (place) queue.erase(queue.begin() + i64(place));
        else queue.pop_front();
        if (!hits(request)) open(now, request);
        column(now, request);
        if (!place) follow(request);
        return request.write;
    }

    // The blocks of the same burst that come next in the queue and are hits: whatever arrives, they are served next.
    void follow(Request latest) {
        Open& burst = *latest.burst;
        while (!queue.empty()) {
            const Request &first = queue.front(), &last = queue.back();
            if (first.burst != &burst || first.part != latest.part + 1) return;
            Side& side = sides[latest.write];
            const u64 number = side.coming - (burst.next == burst.count());
            if (last.burst == &burst && last.part + 1 == burst.next && burst.next - first.part == i64(queue.size()) &&
                &side.open[number % HELD] == &burst) {
                // Nothing else is there, and nothing behind it was served: back to where they came from, for `stream`.
                side.coming = number;
                burst.next = first.part;
                queue.clear();
                break;
            }
            latest = first;
            const i64 now = std::max(chosen, columns[oldest]) + 1;
            if (refresh <= now || !hits(latest)) return;
            queue.pop_front();
            column(now, latest);
        }
        if (burst.next == latest.part + 1 && burst.next < burst.count()) stream(latest.write, chosen + 1);
    }

    // Serves blocks of the burst that is next to arrive, up to the first one that is no hit, while the queue is empty and
    // would have them all at its front: the same as `fill` and `column`. Whether there was any.
    bool stream(bool write, i64 from) {
        Open& burst = sides[write].open[sides[write].coming % HELD];
        const i64 latency = (write ? p.cwl : p.cl) + data, hold = write ? latency + p.wr : p.rtp, to_read = latency + p.wtr_l;
        const i64 ccd = p.ccd, ccd_l = p.ccd_l, back = p.back, bank_mask = p.banks - 1, group_mask = p.groups - 1;
        const i64 first = burst.next, count = burst.count();
        i64 *const ready = burst.ready.data(), *const ring = columns.data();
        const size_t ahead = columns.size();
        size_t at = oldest;
        i64 now = from - 1, own = legal[write], column = LONG_AGO, part = first;
        for (; part < count; ++part) {
            const u64 address = (burst.base + u64(part)) << block_shift;
            const i64 number = i64(address >> p.group_shift) & group_mask;
            Bank& bank = banks[size_t(number << bank_shift | (i64(address >> p.bank_shift) & bank_mask))];
            Group& group = groups[size_t(number)];
            const i64 next = std::max(now, ring[at]) + 1;
            if (refresh <= next || bank.row != i64(address >> p.row_shift)) break;
            now = next;
            column = std::max(std::max(now, bank.column), std::max(group.legal[write], own));
            own = column + ccd;
            group.legal[write] = column + ccd_l;
            if (write) later(group.legal[0], column + to_read);
            later(bank.precharge, column + hold);
            ring[at] = column;
            if (++at == ahead) at = 0;
            ready[part] = column + latency + back;
        }
        if (part == first) return false;
        passed = 0;
        chosen = now, oldest = at, legal[write] = own;
        later(legal[!write], column + (write ? latency + p.wtr : p.cl + data + 2 - p.cwl));
        burst.next = part, burst.left -= part - first;
        if (part == count) ++sides[write].coming;
        return true;
    }

    // The beats, or the response, of the oldest burst of a direction.
    void answer(Side& side, bool write) {
        Open& burst = side.open[side.first++ % HELD];
        i64 cycle = side.next;
        if (write) {
            for (const i64 ready : burst.ready) later_cycle(cycle, ready);
            side.next = cycle + 1;
            reports.push_back({B, cycle});
            return;
        }
        const int size = __builtin_ctzll(burst.size);
        const u64 end = burst.start + (u64(burst.beats) << size);
        u64 at = burst.start, n = 0;
        if (size <= block_shift) {
            for (; at < end; ++n) {
                const u64 past = std::min(((at >> block_shift) + 1) << block_shift, end);
                later_cycle(cycle, burst.ready[n]);
                cycle += i64((past - at) >> size);
                at = past;
            }
        } else {
            for (; at < end; at += burst.size, ++cycle)
                for (u64 k = 0; k < burst.size >> block_shift; ++k) later_cycle(cycle, burst.ready[n++]);
        }
        side.next = cycle;
        reports.push_back({R, cycle - 1});
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

    // The row of a request.
    void open(i64 now, const Request& request) {
        Bank& bank = banks[size_t(request.bank)];
        Group& group = groups[size_t(request.bank >> bank_shift)];
        if (bank.row >= 0) bank.activate = std::max(now, bank.precharge) + p.rp;
        const i64 opened = std::max(
            {now, bank.activate, activates[latest] + p.rrd, group.opened + p.rrd_l, activates[(latest + 1) % 4] + p.faw});
        latest = (latest + 1) % 4;
        activates[latest] = group.opened = opened;
        bank.row = request.row, bank.column = opened + p.rcd, bank.precharge = opened + p.ras;
    }

    // The column of a request that was chosen, in an open row.
    void column(i64 now, const Request& request) {
        Bank& bank = banks[size_t(request.bank)];
        Group& group = groups[size_t(request.bank >> bank_shift)];
        const bool write = request.write;
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
        chosen = now;
        columns[oldest] = column;
        if (++oldest == columns.size()) oldest = 0;
        request.burst->ready[size_t(request.part)] = end + p.back;
        --request.burst->left;
    }
};

}  // namespace memories
