// When words leave the front end and their queues, and which fault comes first: what recurrence.py says, compiled.
// All numbers of the instruction set come from there.
#include "recurrence.h"

#include <utility>

namespace {

// What Python reads of a clock.
struct Moment {
    i64 now, begun, ended, free[UNITS];
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
    const i64 last = recurrence.at.now + 1;
    Faults faults(*job);
    for (Element& e : elements) {
        e.end = e.start + (e.fetch ? job->fetches : job->cycles)[e.number];
        faults.of[e.unit].push_back(&e);
        faults.answer(e);
    }
    if (job->stopped) faults.stop(last);
    faults.check(is.never);
    outcome(*job, faults, words, elements, last);
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
