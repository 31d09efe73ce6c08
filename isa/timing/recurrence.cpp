// When words leave the front end and their queues, and which fault comes first: what recurrence.py says, compiled.
// All numbers of the instruction set come from there.
#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#define EXPORT extern "C" __attribute__((visibility("default")))

using i64 = int64_t;
using u64 = uint64_t;

namespace {

constexpr int UNITS = 4;

// In the order of `Numbers` in core.py.
struct Numbers {
    i64 first_action, page_ready, end_to_done, check, never, page_words, cfg, sync, load, bank_conflict, race;
    i64 reads, regions;  // of an operation: how many regions it may read, and may claim in all
    int8_t unit_of[256];
};
Numbers is;

// What Python reads of a clock.
struct Moment {
    i64 now, begun, ended, free[UNITS];
};

struct Word {
    int unit;
    i64 head, pop;
};

struct Recurrence {
    Moment at;
    i64 depth, page_ready;
    std::vector<i64> pops[UNITS], done[UNITS];

    Recurrence(i64 depth) : at{is.first_action - 1, is.never, 0, {}}, depth(depth), page_ready(0) {}

    // Dispatches a word; gives the first cycle in which it can be at the head of its queue.
    i64 enter(int unit) {
        const auto& queue = pops[unit];
        const i64 full = i64(queue.size()) - depth;
        at.now = std::max(at.now, full < 0 ? -1 : queue[full]) + 1;
        return std::max(at.free[unit], at.now + 1);
    }

    i64 fetch(i64 cycles) {
        const i64 start = enter(is.load), end = std::min(start + cycles, is.never);
        pops[is.load].push_back(start);
        at.free[is.load] = end + 1;
        page_ready = end + is.page_ready;
        return start;
    }

    void turn() { at.now = std::max(at.now, page_ready - 1); }

    Word take(u64 word, const i64*& cycles) {
        const u64 code = word & 0xFF, middle = word >> 8 & 0xFF;
        const bool writes = code == u64(is.cfg), waits = code == u64(is.sync);
        const int unit = writes ? middle >> 6 : waits ? middle : is.unit_of[code];
        const i64 head = enter(unit);
        i64 time = head;
        if (waits) {
            const auto& other = done[word >> 16 & 0xFF];
            const i64 target = i64(other.size()) - i64(word >> 32);
            if (target > 0) time = std::max(time, other[target - 1]);
        }
        pops[unit].push_back(time);
        at.free[unit] = time + 1;
        if (!writes && !waits) {
            const i64 shows = std::min(time + *cycles++ + 1, is.never);
            at.free[unit] = shows;
            done[unit].push_back(shows);
            at.begun = std::min(at.begun, time);
            at.ended = std::max(at.ended, shows);
        }
        return {unit, head, time};
    }
};

// Of a program whose end is not known yet: it fetches a page behind the last one, until the end takes that back.
struct Clock {
    Recurrence recurrence;
    i64 fetch, left = 0;
    Moment before;
    size_t pops[UNITS], done[UNITS];  // how many there were before the fetch
    std::vector<std::pair<u64, i64>> page;

    Clock(i64 depth, i64 fetch) : recurrence(depth), fetch(fetch) { recurrence.fetch(fetch); }

    void take(u64 word, i64 cycles) {
        if (!left) turn();
        --left;
        page.emplace_back(word, cycles);
        const i64* next = &cycles;
        recurrence.take(word, next);
    }

    void turn() {
        recurrence.turn();
        before = recurrence.at;
        for (int u = 0; u < UNITS; ++u) pops[u] = recurrence.pops[u].size(), done[u] = recurrence.done[u].size();
        page.clear();
        left = is.page_words;
        recurrence.fetch(fetch);
    }

    i64 end() {
        if (left) {
            recurrence.at = before;
            for (int u = 0; u < UNITS; ++u) recurrence.pops[u].resize(pops[u]), recurrence.done[u].resize(done[u]);
            for (const auto& [word, cycles] : page) {
                const i64* next = &cycles;
                recurrence.take(word, next);
            }
        } else {
            recurrence.turn();
        }
        const i64 last = *std::max_element(recurrence.at.free, recurrence.at.free + UNITS) - 1;
        return std::max(recurrence.at.now + 1, last) + is.end_to_done;
    }
};

// An operation that runs, or none.
struct Running {
    i64 until = -1, reads = 0, writes = 0;
    const i64* regions = nullptr;
};

i64 banks(const i64* region, i64 count, i64 bank_bytes) {
    i64 mask = 0;
    for (; count; --count, region += 2)
        if (region[1]) mask |= (i64(2) << (region[0] + region[1] - 1) / bank_bytes) - (i64(1) << region[0] / bank_bytes);
    return mask;
}

// Whether one writes bytes that the other reads.
bool races(const i64* writer, const i64* reader) {
    for (i64 w = is.reads; w < is.regions; ++w)
        for (i64 r = 0; r < is.reads; ++r) {
            const i64 *a = writer + 2 * w, *b = reader + 2 * r;
            if (a[0] < b[0] + b[1] && b[0] < a[0] + a[1]) return true;
        }
    return false;
}

}  // namespace

EXPORT void configure(const Numbers* numbers) { is = *numbers; }

EXPORT i64 play(
    const u64* words, i64 count, const i64* cycles, const i64* fetches, i64 pages, i64 depth,
    i64* units, i64* heads, i64* pops, i64* fetched
) {
    Recurrence recurrence(depth);
    i64 page = 0;
    const auto fetch = [&] {
        if (page < pages) fetched[page] = recurrence.fetch(fetches[page]);
        ++page;
    };
    fetch();
    for (i64 n = 0; n <= count; ++n) {
        if (n % is.page_words == 0 && n / is.page_words < pages) recurrence.turn(), fetch();
        if (n == count) break;
        const Word word = recurrence.take(words[n], cycles);
        units[n] = word.unit, heads[n] = word.head, pops[n] = word.pop;
    }
    return recurrence.at.now;
}

EXPORT i64 first_fault(
    i64 count, const i64* units, const i64* starts, const i64* ends, const i64* causes, const i64* errors,
    const i64* regions, i64 bank_bytes, i64 halt, int8_t* fails, i64* found
) {
    std::vector<i64> of[UNITS];
    for (i64 n = 0; n < count; ++n) of[units[n]].push_back(n);
    size_t next[UNITS] = {};
    Running running[UNITS];
    i64 first = -1;
    int who = UNITS;
    const auto fault = [&](i64 n, i64 cycle, i64 why) {
        if (cycle > halt || (cycle == halt && units[n] >= who)) return;
        first = n, halt = cycle, who = int(units[n]), found[0] = why, found[1] = cycle;
    };
    for (;;) {
        i64 n = -1;
        for (int u = 0; u < UNITS; ++u)
            if (next[u] < of[u].size() && (n < 0 || starts[of[u][next[u]]] < starts[n])) n = of[u][next[u]];
        if (n < 0 || starts[n] > halt) return first;
        ++next[units[n]];
        const i64 verified = starts[n] + is.check;
        i64 why = causes[n];
        if (!why) {
            const i64* mine = regions + 2 * is.regions * n;
            const Running me = {
                ends[n], banks(mine, is.reads, bank_bytes), banks(mine + 2 * is.reads, is.regions - is.reads, bank_bytes), mine
            };
            for (const Running& other : running) {
                if (other.until < verified) continue;
                if (me.reads & other.reads || me.writes & other.writes) {
                    why = is.bank_conflict;
                    break;
                }
                if (races(mine, other.regions) || races(other.regions, mine)) why = is.race;
            }
            if (!why && (me.reads || me.writes)) running[units[n]] = me;
        }
        fails[n] = why != 0;
        if (why) fault(n, verified, why);
        else if (errors[n]) fault(n, ends[n], errors[n]);
    }
}

EXPORT Clock* clock_new(i64 fetch, i64 depth) { return new Clock(depth, fetch); }

EXPORT void clock_delete(Clock* clock) { delete clock; }

EXPORT void clock_add(Clock* clock, const u64* words, i64 count, i64 cycles) {
    for (i64 n = 0; n < count; ++n) clock->take(words[n], cycles);
}

EXPORT i64 clock_ready(const Clock* clock, i64 unit, i64 words) {
    const Recurrence& so_far = clock->recurrence;
    const i64 place = i64(so_far.pops[unit].size()) + words - 1 - so_far.depth;
    return std::max(so_far.at.now + words, place < 0 ? 0 : so_far.pops[unit][place] + 1);
}

EXPORT i64 clock_end(Clock* clock) { return clock->end(); }
