// The boards' SDRAM controller with its chip, cycle by cycle: the rule of `docs/memory.md`.
#pragma once

#include <cstdint>
#include <deque>

#include "memory_model.h"

namespace dovetail {

// The members of `SdramTiming` in isa/config/memory.py, in their order there.
struct SdramParameters {
    int64_t clock, width, column_bits, rcd, rp, ras, rfc, wr, refresh_interval, phase;
};

struct SdramModel final : MemoryModel {
    explicit SdramModel(const SdramParameters& parameters) : p(parameters) { restart(); }

    void restart() override {
        cycle = -1;
        bursts[0].clear();
        bursts[1].clear();
        held_bursts[0] = held_bursts[1] = 0;
        for (Beat& buffer : buffers) buffer = {};
        fill = drain = 0;
        row = -1;
        open = opened = due = writes_next = false;
        may_close = next_command = 0;
        read_at = -READ_TO_WRITE - 1;
        until_refresh = (p.refresh_interval - p.phase) % p.refresh_interval;
        given.clear();
        response_at = -1;
    }

    void begin(bool write_waits) override {
        ++cycle;
        for (int w = 0; w < 2; ++w) takes[w] = held_bursts[w] < PLACES;
        gives_beat = !given.empty() && given.front() <= cycle;
        answers = response_at == cycle;
        takes_beat = false;
        const bool room = !buffers[fill].filled;
        const unsigned into = fill;
        Beat beat;
        const bool chosen = room && choose(beat, write_waits);
        command();
        if (chosen) {
            buffers[into] = beat;
            fill ^= 1;
            takes_beat = beat.write;
            if (beat.write && beat.last) response_at = cycle + 1;
        }
    }

    void address(bool write, uint64_t address, unsigned size, unsigned beats) override {
        bursts[write].push_back({address / size * size, size, beats});
        ++held_bursts[write];
    }

    void beat_given(bool last) override {
        given.pop_front();
        held_bursts[0] -= last;
    }
    void beat_taken(bool) override {}
    void answered() override { --held_bursts[1]; }

private:
    static constexpr int64_t READ_TO_WRITE = 4, READ_TO_BUS = 5;

    struct Burst {
        uint64_t address;
        unsigned size, left;
    };
    struct Beat {
        bool filled = false, write = false, last = false, follows = false;
        unsigned columns = 0;
    };

    SdramParameters p;
    int64_t cycle;
    std::deque<Burst> bursts[2];  // of which not every beat was chosen
    unsigned held_bursts[2];
    Beat buffers[2];
    unsigned fill, drain;
    int64_t row;                         // of the beat chosen last
    bool open, opened, due, writes_next;  // opened: a row was, for the beat that waits
    int64_t may_close, next_command, read_at, until_refresh, response_at;
    std::deque<int64_t> given;  // cycles of read beats

    bool choose(Beat& beat, bool write_waits) {
        // An address that is taken in a cycle comes to address() after begin(): all here are from cycles before.
        const bool read = !bursts[0].empty(), write = !bursts[1].empty() && write_waits;
        if (!read && !write) return false;
        beat.write = write && (writes_next || !read);
        Burst& burst = bursts[beat.write].front();
        const int64_t its = int64_t(burst.address / uint64_t((p.width / 8) << p.column_bits));
        beat.filled = true;
        beat.follows = its == row;
        row = its;
        const unsigned columns = burst.size * 8 / unsigned(p.width);
        beat.columns = columns ? columns : 1;
        burst.address += burst.size;
        beat.last = --burst.left == 0;
        writes_next = beat.write != beat.last;
        if (beat.last) bursts[beat.write].pop_front();
        return true;
    }

    void command() {
        const bool counts = until_refresh == 0;
        until_refresh = counts ? p.refresh_interval - 1 : until_refresh - 1;
        const bool was_due = due;
        due |= counts;
        if (cycle < next_command) return;
        Beat& beat = buffers[drain];
        const bool waits = beat.filled, hit = opened || beat.follows;
        if (open && (was_due || (waits && !hit))) {
            if (cycle < may_close) return;
            open = false;
            next_command = cycle + p.rp;
        } else if (was_due) {
            due = false;
            next_command = cycle + p.rfc;
        } else if (waits && !open) {
            open = opened = true;
            may_close = cycle + p.ras;
            next_command = cycle + p.rcd;
        } else if (waits && !(beat.write && cycle <= read_at + READ_TO_WRITE)) {
            if (beat.write && may_close < cycle + p.wr) may_close = cycle + p.wr + 1;
            if (!beat.write) read_at = cycle;
            opened = --beat.columns != 0;
            if (!beat.columns) {
                if (!beat.write) given.push_back(cycle + READ_TO_BUS);
                beat.filled = false;
                drain ^= 1;
            }
        }
    }
};

}  // namespace dovetail
