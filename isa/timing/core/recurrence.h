// What recurrence.cpp and events.cpp have in common: the numbers of the instruction set, a program, its faults, and what
// is left of a run.
#pragma once
#include <algorithm>
#include <cstdint>
#include <vector>

#define EXPORT extern "C" __attribute__((visibility("default")))

using i64 = int64_t;
using u64 = uint64_t;

constexpr int UNITS = 4;

// In the order of `_NUMBERS` in engine.py.
struct Numbers {
    i64 first_action, page_ready, end_to_done, check, never, page_words, queue_depth, cfg, sync, load, store, bank_conflict, race;
    i64 reads, regions;  // of an operation: how many regions it may read, and may claim in all
    i64 max_burst, boundary, address, place, read_end, write_first, write_end;  // of transfers
    i64 slice, output, data, turn;  // of the interconnect
    int8_t unit_of[256];
};
inline Numbers is;

inline bool is_operation(u64 word) { return (word & 0xFF) != u64(is.cfg) && (word & 0xFF) != u64(is.sync); }

// A word that was dispatched: the first cycle at the head of its queue, and the one in which it leaves.
struct Word {
    int unit;
    i64 head, pop;
};

// An operation, or a page's fetch, whose number is that of the page.
struct Element {
    bool fetch;
    i64 number, pc, start, end;
    int unit;
    bool works;
};

// In the order of `_Job` in engine.py, which says what is what.
struct Job {
    const u64* words;
    i64 count;
    const i64 *cycles, *causes, *errors, *regions;
    const i64 *fetches, *lost;
    i64 pages, stopped, bank_bytes;
    // results
    i64 *units, *ops, *pcs, *starts, *ends;
    int8_t* works;
    i64* waits;
    i64 elements, waited, total, fault, fault_pc, busy[UNITS], config[UNITS], token[UNITS];
};

// A bit for each bank that the regions lie in. They lie in SRAM, so 32 bits do, which divide faster.
inline i64 banks(const i64* region, i64 count, uint32_t bank_bytes) {
    i64 mask = 0;
    for (; count; --count, region += 2)
        if (region[1]) {
            const uint32_t first = uint32_t(region[0]) / bank_bytes, last = uint32_t(region[0] + region[1] - 1) / bank_bytes;
            mask |= (i64(2) << last) - (i64(1) << first);
        }
    return mask;
}

// Whether one writes bytes that the other reads.
inline bool races(const i64* writer, const i64* reader) {
    for (i64 w = is.reads; w < is.regions; ++w)
        for (i64 r = 0; r < is.reads; ++r) {
            const i64 *a = writer + 2 * w, *b = reader + 2 * r;
            if (a[1] && b[1] && a[0] < b[0] + b[1] && b[0] < a[0] + a[1]) return true;
        }
    return false;
}

// Which fault of a program comes first; in a cycle with several, that of the unit with the smallest number.
struct Faults {
    Job& job;
    i64 halt = is.never;  // the cycle of the first one
    std::vector<Element*> of[UNITS];  // what was started, in that order

    explicit Faults(Job& job) : job(job) { job.fault = 0, job.fault_pc = job.count; }

    // The front end refuses its next word.
    void stop(i64 cycle) {
        if (cycle < halt) halt = cycle, who = UNITS, job.fault = job.stopped, job.fault_pc = job.count;
    }

    // Whether the bus has answered a transfer, which has ended, with an error.
    bool answer(const Element& element) {
        const i64 why = (element.fetch ? job.lost : job.errors)[element.number];
        if (why) fault(element, element.end, why);
        return why;
    }

    // Marks what fails its checks, of all that starts up to a cycle. The ends of what runs then must be known, where
    // they are not far behind; other ends are `never`.
    void check(i64 until) {
        for (;;) {
            Element* element = nullptr;  // the next one to start
            for (int u = 0; u < UNITS; ++u)
                if (next[u] < of[u].size() && (!element || of[u][next[u]]->start < element->start)) element = of[u][next[u]];
            if (!element || element->start > std::min(halt, until)) return;
            ++next[element->unit];
            if (!element->fetch) check(*element);
        }
    }

private:
    // An operation that was verified, or none.
    struct Running {
        const Element* element = nullptr;
        i64 reads = 0, writes = 0;
        const i64* regions = nullptr;
    };

    int who = UNITS;
    size_t next[UNITS] = {};
    Running running[UNITS];

    void check(Element& element) {
        const i64 verified = element.start + is.check;
        i64 why = job.causes[element.number];
        if (!why) {
            const i64 *mine = job.regions + 2 * is.regions * element.number, *writes = mine + 2 * is.reads;
            const Running me{
                &element, banks(mine, is.reads, job.bank_bytes), banks(writes, is.regions - is.reads, job.bank_bytes), mine
            };
            for (const Running& other : running) {
                if (!other.element || other.element->end < verified) continue;
                if (me.reads & other.reads || me.writes & other.writes) {
                    why = is.bank_conflict;
                    break;
                }
                if (races(mine, other.regions) || races(other.regions, mine)) why = is.race;
            }
            if (!why) running[element.unit] = me;
        }
        if (!why) return;
        element.works = false, element.end = verified;
        fault(element, verified, why);
    }

    void fault(const Element& element, i64 cycle, i64 why) {
        if (cycle > halt || (cycle == halt && element.unit >= who)) return;
        halt = cycle, who = element.unit, job.fault = why, job.fault_pc = element.pc;
    }
};

// The outcome of what was popped up to the first fault. ``last``: the cycle of END's dispatch.
inline void outcome(Job& job, const Faults& faults, const std::vector<Word>& words, const std::vector<Element>& elements, i64 last) {
    const i64 halt = faults.halt;
    if (job.fault) last = halt;
    for (const Element& e : elements) {
        if (e.start > halt) continue;
        const i64 n = job.elements++;
        job.units[n] = e.unit, job.ops[n] = e.fetch ? 0 : job.words[e.pc] & 0xFF, job.pcs[n] = e.pc;
        job.starts[n] = e.start, job.ends[n] = e.end, job.works[n] = e.works;
        job.busy[e.unit] += e.end - e.start + 1;
        last = std::max(last, e.end);
    }
    for (i64 n = 0; n < job.count; ++n) {
        const auto [unit, head, pop] = words[n];
        if (head > halt) continue;
        if ((job.words[n] & 0xFF) == u64(is.sync)) {
            i64* wait = job.waits + 3 * job.waited++;
            wait[0] = unit, wait[1] = head, wait[2] = std::min(pop, halt + 1);
            job.token[unit] += wait[2] - head;
        }
        if (pop > halt) continue;
        job.config[unit] += !is_operation(job.words[n]);
        last = std::max(last, pop);
    }
    job.total = last + is.end_to_done;
}
