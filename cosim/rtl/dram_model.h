// A channel of DRAM behind its controller, tick by tick: the rule of `docs/memory.md`.
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <vector>

#include "memory_model.h"

namespace dovetail {

// The members of `DramTiming` in isa/config/memory.py, in their order there; places of the map's fields instead of its name.
struct DramParameters {
    int64_t clock, dram_clock, width, burst_length, groups, banks, row;
    int64_t bank_shift, column_shift, group_shift, row_shift;  // of an address
    int64_t cl, cwl, rcd, rp, ras, rtp, wr, ccd, ccd_l, rrd, rrd_l, faw, wtr, wtr_l, rfc, refi, queue, ahead, front, back;
};

struct DramModel final : MemoryModel {
    explicit DramModel(const DramParameters& parameters) : p(parameters) { restart(); }

    void restart() override {
        cycle = tick = 0;
        sides[0] = sides[1] = {};
        queue.clear();
        chosen.clear();
        moving.clear();
        banks.assign(size_t(p.groups * p.banks), {});
        groups.assign(size_t(p.groups), {});
        next_read = next_write = 0;
        activates.assign(4, LONG_AGO);
        waiting = rows = passed = 0;
        refresh_in = p.refi + 1;  // due at tick refi
    }

    void begin(bool) override {
        // Ticks that begin before this cycle does.
        const int64_t until = (cycle * p.dram_clock + p.clock - 1) / p.clock;
        if (chosen.empty() && queue.empty() && coming[0].empty() && coming[1].empty() && refresh_in > until - tick) {
            refresh_in -= until - tick;
            tick = until;
        }
        while (tick < until) step();
        // Data that have come by now.
        while (!moving.empty() && (moving.front().end + p.back) * p.clock <= cycle * p.dram_clock) {
            Moving& one = moving.front();
            Burst& burst = burst_of(one.write, one.burst);
            burst.there[one.part] = true;
            --burst.left;
            moving.pop_front();
        }
        takes[0] = sides[0].bursts.size() < PLACES;
        takes[1] = sides[1].bursts.size() < PLACES;
        takes_beat = true;
        gives_beat = !sides[0].bursts.empty() && is_there(sides[0].bursts.front());
        answers = !sides[1].bursts.empty() && !sides[1].bursts.front().left;
        ++cycle;
    }

    void address(bool write, uint64_t address, unsigned size, unsigned beats) override {
        Side& side = sides[write];
        Burst burst;
        burst.at = address / size * size;
        burst.end = burst.at + uint64_t(beats) * size;
        burst.size = size;
        burst.number = side.first + side.bursts.size();
        burst.there.assign((burst.end - 1) / block() - burst.at / block() + 1, false);
        burst.base = burst.at / block();
        burst.left = burst.there.size();
        side.bursts.push_back(burst);
        if (!write) send(false, side.bursts.back());
    }

    void beat_given(bool last) override {
        Burst& burst = sides[0].bursts.front();
        burst.at += burst.size;
        if (last) retire(sides[0]);
    }

    void beat_taken(bool last) override {
        if (!last) return;
        Side& side = sides[1];
        send(true, side.bursts[side.sent++ - side.first]);
    }

    void answered() override { retire(sides[1]); }

private:
    static constexpr int64_t LONG_AGO = -(int64_t(1) << 60);

    struct Burst {
        uint64_t at, end, base, number;  // the next beat's address; of the first block, in blocks
        unsigned size;
        std::vector<bool> there;  // by block
        size_t left;              // blocks that are not
    };
    struct Side {
        std::deque<Burst> bursts;  // that have not ended
        uint64_t first = 0, sent = 0;  // number of the first of them; of the next whose requests are sent
    };
    struct Request {
        int64_t arrival;
        bool write;
        uint64_t burst;
        unsigned part;
        int64_t bank, row;
    };
    enum Need : uint8_t { COLUMN, ACTIVATE, PRECHARGE, REFRESH };
    struct Chosen : Request {
        Need need;
    };
    struct Moving {  // data of a column
        int64_t end;
        bool write;
        uint64_t burst;
        unsigned part;
    };
    // The first tick at which each command is legal.
    struct Bank {
        int64_t promised = -1;  // the row that is open after all requests that were chosen
        bool open = false;
        int64_t activate = 0, precharge = 0, column = 0;
    };
    struct Group {
        int64_t read = 0, write = 0, activate = LONG_AGO;
    };

    DramParameters p;
    int64_t cycle, tick, refresh_in;
    Side sides[2];
    std::deque<Request> coming[2], queue;
    std::deque<Chosen> chosen;  // whose columns were not given, and refreshes between them
    std::deque<Moving> moving;
    std::vector<Bank> banks;
    std::vector<Group> groups;
    std::deque<int64_t> activates;  // the latest four
    int64_t next_read, next_write;  // the first tick of a READ, of a WRITE, anywhere
    int64_t waiting, rows;          // requests in `chosen`; what is there that waits for a row or is a refresh
    int64_t passed;                 // choices that passed over the oldest request

    uint64_t block() const { return uint64_t(p.width / 8 * p.burst_length); }
    Burst& burst_of(bool write, uint64_t number) { return sides[write].bursts[number - sides[write].first]; }

    static void retire(Side& side) {
        side.bursts.pop_front();
        ++side.first;
    }

    bool is_there(const Burst& burst) const {
        for (uint64_t b = burst.at / block(); b <= (burst.at + burst.size - 1) / block(); ++b)
            if (!burst.there[b - burst.base]) return false;
        return true;
    }

    // What was taken in the cycle that has just begun (whose number `cycle` no longer is) is on its way to the queue.
    void send(bool write, const Burst& burst) {
        const int64_t arrival = (cycle * p.dram_clock + p.clock - 1) / p.clock + p.front;
        for (unsigned part = 0; part < burst.there.size(); ++part) {
            const uint64_t address = (burst.base + part) * block();
            const int64_t group = int64_t(address >> p.group_shift) & (p.groups - 1);
            const int64_t bank = int64_t(address >> p.bank_shift) & (p.banks - 1);
            coming[write].push_back({arrival, write, burst.number, part, group * p.banks + bank, int64_t(address >> p.row_shift)});
        }
    }

    void step() {
        if (!--refresh_in) {
            refresh_in = p.refi;
            for (Bank& bank : banks) bank.promised = -1;
            chosen.push_back({{}, REFRESH});
            ++rows;
        }
        for (auto& requests : coming)
            while (!requests.empty() && requests.front().arrival <= tick) {
                queue.push_back(requests.front());
                requests.pop_front();
            }
        if (!queue.empty() && waiting < p.ahead) choose();
        if (!chosen.empty()) command();
        ++tick;
    }

    void choose() {
        size_t place = 0;
        const Request& oldest = queue.front();
        const int64_t open = banks[size_t(oldest.bank)].promised;
        if (open >= 0 && open != oldest.row && passed < p.queue) {
            const size_t past = std::min(queue.size(), size_t(p.queue));
            while (++place < past && (queue[place].bank != oldest.bank || queue[place].row != open)) {}
            if (place == past) place = 0;
        }
        passed = place ? passed + 1 : 0;
        const Request request = queue[place];
        queue.erase(queue.begin() + int64_t(place));
        int64_t& row = banks[size_t(request.bank)].promised;
        chosen.push_back({request, row == request.row ? COLUMN : row < 0 ? ACTIVATE : PRECHARGE});
        rows += row != request.row;
        row = request.row;
        ++waiting;
    }

    // Whatever is legal at this tick, in the order of choice.
    void command() {
        uint64_t busy = 0;  // banks of requests before this one
        bool activate = true, column = true;  // none before waits for it
        for (auto it = chosen.begin(); it != chosen.end() && (column || rows);) {
            Chosen& one = *it;
            if (one.need == REFRESH) {
                if (it == chosen.begin() && refresh()) {
                    it = chosen.erase(it);
                    --rows;
                    continue;
                }
                return;  // what follows waits for it: it needs rows that are closed
            }
            Bank& bank = banks[size_t(one.bank)];
            Group& group = groups[size_t(one.bank / p.banks)];
            const uint64_t bit = uint64_t(1) << one.bank;
            if (one.need == PRECHARGE && !(busy & bit) && tick >= bank.precharge) {
                bank.activate = tick + p.rp;
                bank.open = false;
                one.need = ACTIVATE;
            } else if (one.need == ACTIVATE && activate && !(busy & bit) && tick >= bank.activate && tick >= activates[3] + p.rrd &&
                       tick >= activates[0] + p.faw && tick >= group.activate + p.rrd_l) {
                activates.pop_front();
                activates.push_back(tick);
                group.activate = tick;
                bank.open = true;
                bank.column = tick + p.rcd;
                bank.precharge = tick + p.ras;
                one.need = COLUMN;
                --rows;
            } else if (one.need == COLUMN && column && tick >= bank.column && tick >= (one.write ? next_write : next_read) &&
                       tick >= (one.write ? group.write : group.read)) {
                give(one, bank, group);
                --waiting;
                it = chosen.erase(it);
                column = false;  // one column a tick
                continue;
            }
            busy |= bit;
            activate = activate && one.need == COLUMN;
            column = false;
            ++it;
        }
    }

    void give(const Chosen& one, Bank& bank, Group& group) {
        const int64_t data = p.burst_length / 2;
        const auto later = [](int64_t& time, int64_t least) { time = std::max(time, least); };
        if (one.write) {
            const int64_t end = tick + p.cwl + data;
            later(next_write, tick + p.ccd);
            later(next_read, end + p.wtr);
            later(group.write, tick + p.ccd_l);
            later(group.read, end + p.wtr_l);
            later(bank.precharge, end + p.wr);
            moving.push_back({end, true, one.burst, one.part});
        } else {
            later(next_read, tick + p.ccd);
            later(next_write, tick + p.cl + data + 2 - p.cwl);
            later(group.read, tick + p.ccd_l);
            later(bank.precharge, tick + p.rtp);
            moving.push_back({tick + p.cl + data, false, one.burst, one.part});
        }
    }

    // A refresh that nothing is before: whether its REFRESH was given.
    bool refresh() {
        bool open = false;
        for (const Bank& bank : banks) {
            if (bank.open && tick < bank.precharge) return false;
            open |= bank.open;
        }
        if (open)
            for (Bank& bank : banks)
                if (bank.open) {
                    bank.open = false;
                    bank.activate = tick + p.rp;
                }
        for (const Bank& bank : banks)
            if (tick < bank.activate) return false;
        for (Bank& bank : banks) bank.activate = tick + p.rfc;
        return true;
    }
};

}  // namespace dovetail
