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

// In the order of `_NUMBERS` in core.py.
struct Numbers {
    i64 first_action, page_ready, end_to_done, check, never, page_words, queue_depth, cfg, sync, load, bank_conflict, race;
    i64 reads, regions;  // of an operation: how many regions it may read, and may claim in all
    int8_t unit_of[256];
};
Numbers is;

// What Python reads of a clock.
struct Moment {
    i64 now, begun, ended, free[UNITS];
};

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

struct Recurrence {
    Moment at;
    i64 depth, page_ready;
    std::vector<i64> pops[UNITS], done[UNITS];

    Recurrence(i64 depth) { restart(depth); }

    void restart(i64 places) {
        at = {is.first_action - 1, is.never, 0, {}};
        depth = places, page_ready = 0;
        for (auto& times : pops) times.clear();
        for (auto& times : done) times.clear();
    }

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

    // ``cycles``: if it is an operation.
    Word take(u64 word, i64 cycles) {
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
            const i64 shows = std::min(time + cycles + 1, is.never);
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
        recurrence.take(word, cycles);
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
            for (const auto& [word, cycles] : page) recurrence.take(word, cycles);
        } else {
            recurrence.turn();
        }
        const i64 last = *std::max_element(recurrence.at.free, recurrence.at.free + UNITS) - 1;
        return std::max(recurrence.at.now + 1, last) + is.end_to_done;
    }
};

// In the order of `_Job` in core.py, which says what is what.
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

bool is_operation(u64 word) { return (word & 0xFF) != u64(is.cfg) && (word & 0xFF) != u64(is.sync); }

struct Played {
    Recurrence recurrence{0};
    std::vector<Word> words;
    std::vector<Element> elements;
};

// A whole program. ``lasting(element)``: from start to end. The memory of what it gives is used again by the next one.
template <class Lasting>
Played& played(const u64* words, i64 count, i64 pages, i64 depth, Lasting lasting) {
    thread_local Played all;
    auto& [recurrence, taken, elements] = all;
    recurrence.restart(depth), taken.clear(), elements.clear();
    i64 page = 0, operation = 0;
    const auto fetch = [&, &recurrence = recurrence, &elements = elements] {
        if (page == pages) return;
        Element element{true, page, page, 0, 0, int(is.load), true};
        element.start = recurrence.fetch(lasting(element));
        elements.push_back(element), ++page;
    };
    fetch();
    for (i64 n = 0; n <= count; ++n) {
        if (n % is.page_words == 0 && n / is.page_words < pages) recurrence.turn(), fetch();
        if (n == count) break;
        Element element{false, operation, n, 0, 0, 0, true};
        const bool lasts = is_operation(words[n]);
        const Word word = recurrence.take(words[n], lasts ? lasting(element) : 0);
        taken.push_back(word);
        if (lasts) element.unit = word.unit, element.start = word.pop, elements.push_back(element), ++operation;
    }
    return all;
}

// An operation that runs, or none.
struct Running {
    i64 until = -1, reads = 0, writes = 0;
    const i64* regions = nullptr;
};

// A bit for each bank that the regions lie in. They lie in SRAM, so 32 bits do, which divide faster.
i64 banks(const i64* region, i64 count, uint32_t bank_bytes) {
    i64 mask = 0;
    for (; count; --count, region += 2)
        if (region[1]) {
            const uint32_t first = uint32_t(region[0]) / bank_bytes, last = uint32_t(region[0] + region[1] - 1) / bank_bytes;
            mask |= (i64(2) << last) - (i64(1) << first);
        }
    return mask;
}

// Whether one writes bytes that the other reads.
bool races(const i64* writer, const i64* reader) {
    for (i64 w = is.reads; w < is.regions; ++w)
        for (i64 r = 0; r < is.reads; ++r) {
            const i64 *a = writer + 2 * w, *b = reader + 2 * r;
            if (a[1] && b[1] && a[0] < b[0] + b[1] && b[0] < a[0] + a[1]) return true;
        }
    return false;
}

// Marks what fails its checks, and gives the cycle of the first fault.
i64 first_fault(Job& job, std::vector<Element>& elements, i64 halt) {
    std::vector<Element*> of[UNITS];
    for (Element& element : elements) of[element.unit].push_back(&element);
    size_t next[UNITS] = {};
    Running running[UNITS];
    int who = UNITS;
    const auto fault = [&](const Element& element, i64 cycle, i64 why) {
        if (cycle > halt || (cycle == halt && element.unit >= who)) return;
        halt = cycle, who = element.unit, job.fault = why, job.fault_pc = element.pc;
    };
    for (;;) {
        Element* element = nullptr;  // the next one to start
        for (int u = 0; u < UNITS; ++u)
            if (next[u] < of[u].size() && (!element || of[u][next[u]]->start < element->start)) element = of[u][next[u]];
        if (!element || element->start > halt) return halt;
        ++next[element->unit];
        if (element->fetch) {
            if (job.lost[element->number]) fault(*element, element->end, job.lost[element->number]);
            continue;
        }
        const i64 n = element->number, verified = element->start + is.check;
        i64 why = job.causes[n];
        if (!why) {
            const i64 *mine = job.regions + 2 * is.regions * n, *writes = mine + 2 * is.reads;
            const Running me{
                element->end, banks(mine, is.reads, job.bank_bytes), banks(writes, is.regions - is.reads, job.bank_bytes), mine
            };
            for (const Running& other : running) {
                if (other.until < verified) continue;
                if (me.reads & other.reads || me.writes & other.writes) {
                    why = is.bank_conflict;
                    break;
                }
                if (races(mine, other.regions) || races(other.regions, mine)) why = is.race;
            }
            if (!why) running[element->unit] = me;
        }
        if (why) {
            element->works = false, element->end = verified;
            fault(*element, verified, why);
        } else if (job.errors[n]) {
            fault(*element, element->end, job.errors[n]);
        }
    }
}

}  // namespace

EXPORT void configure(const Numbers* numbers) { is = *numbers; }

// The registers that each operation sees: per unit a column for each, of as many operations as the unit has.
EXPORT void registers(const u64* words, i64 count, const i64* sizes, const i64* operations, i64* const* columns) {
    struct Register {
        i64 value, since;
    } now[256] = {};
    i64 seen[UNITS] = {};
    const auto fill = [&](int number) {
        const int unit = number >> 6, index = number & 0x3F;
        if (index >= sizes[unit]) return;
        i64* column = columns[unit] + index * operations[unit];
        std::fill(column + now[number].since, column + seen[unit], now[number].value);
        now[number].since = seen[unit];
    };
    for (i64 n = 0; n < count; ++n) {
        const int code = words[n] & 0xFF, number = words[n] >> 8 & 0xFF;
        if (code == is.cfg) fill(number), now[number].value = words[n] >> 32;
        else if (is_operation(words[n])) ++seen[is.unit_of[code]];
    }
    for (int number = 0; number < 256; ++number) fill(number);
}

EXPORT void run(Job* job) {
    const auto lasting = [&](const Element& e) {
        if (e.fetch) return job->lost[e.number] ? is.never : job->fetches[e.number];
        return job->causes[e.number] || job->errors[e.number] ? is.never : job->cycles[e.number];
    };
    auto& [recurrence, words, elements] = played(job->words, job->count, job->pages, is.queue_depth, lasting);
    i64 last = recurrence.at.now + 1;
    for (Element& e : elements) e.end = e.start + (e.fetch ? job->fetches : job->cycles)[e.number];
    job->fault = job->stopped, job->fault_pc = job->count;
    const i64 halt = first_fault(*job, elements, job->stopped ? last : is.never);
    if (job->fault) last = halt;
    // What was popped up to then.
    for (const Element& e : elements) {
        if (e.start > halt) continue;
        const i64 n = job->elements++;
        job->units[n] = e.unit, job->ops[n] = e.fetch ? 0 : job->words[e.pc] & 0xFF, job->pcs[n] = e.pc;
        job->starts[n] = e.start, job->ends[n] = e.end, job->works[n] = e.works;
        job->busy[e.unit] += e.end - e.start + 1;
        last = std::max(last, e.end);
    }
    for (i64 n = 0; n < job->count; ++n) {
        const auto [unit, head, pop] = words[n];
        if (head > halt) continue;
        if ((job->words[n] & 0xFF) == u64(is.sync)) {
            i64* wait = job->waits + 3 * job->waited++;
            wait[0] = unit, wait[1] = head, wait[2] = pop;
            job->token[unit] += std::min(pop, halt + 1) - head;
        }
        if (pop > halt) continue;
        job->config[unit] += !is_operation(job->words[n]);
        last = std::max(last, pop);
    }
    job->total = last + is.end_to_done;
}

EXPORT i64 play(const u64* words, i64 count, const i64* cycles, i64 pages, i64 depth, i64* pops, i64* starts) {
    i64 n = 0;
    const auto lasting = [&](const Element&) { return cycles[n++]; };
    const auto& [recurrence, taken, elements] = played(words, count, pages, depth, lasting);
    for (const Word& word : taken) *pops++ = word.pop;
    for (const Element& element : elements) *starts++ = element.start;
    return recurrence.at.now;
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
