// An accelerator that runs a program: front end, queues and units, which go ahead in time until they wait for memory.
#pragma once
#include "recurrence.h"

#include <vector>

// The side of a transfer in system memory, in the order of `Shape` in dma.py.
struct Shape {
    i64 address, rows, planes, row_step, plane_step, length;
};

// The latest things of an endless row: by their numbers there. More of them than bursts of a port in flight, or places of
// a queue.
template <class T, u64 SIZE = 64> class Latest {
public:
    T& operator[](i64 n) { return things[u64(n) % SIZE]; }
    const T& operator[](i64 n) const { return things[u64(n) % SIZE]; }

private:
    T things[SIZE];
};

// Times are cycles of the run.
class Player {
public:
    // A transfer that has begun; no element if there is none.
    struct Begun {
        Element* element = nullptr;
        Shape shape;
    };
    Begun begun[2];  // a read and a write; whoever plays their bursts takes them out
    Faults faults;

    // ``shapes``: of each operation; those of transfers count. ``program``: address of its first page.
    Player(Job& job, const Shape* shapes, i64 program) : faults(job), job(job), shapes(shapes), program(program) {
        words.assign(job.count, {0, is.never, is.never});
        const i64 operations = std::count_if(job.words, job.words + job.count, is_operation);
        elements.reserve(operations + job.pages);  // so they stay where they are
        advance();
    }

    // A transfer ends in this cycle.
    void end(Element& element, i64 cycle) {
        element.end = cycle;
        if (faults.answer(element)) return;  // its unit does nothing more
        Queue& queue = queues[element.unit];
        queue.busy = false, queue.free = cycle + 1;
        if (element.fetch) page_ready = cycle + is.page_ready;
        else queue.done.push_back(cycle + 1);
        advance();
    }

    // Whether everything has ended, without a fault.
    bool is_done() {
        if (step != OVER || job.stopped) return false;
        for (const Queue& queue : queues)
            if (queue.busy || queue.popped < queue.pushed) return false;
        faults.check(is.never);
        return !job.fault;
    }

    // No transfer is under way any more: notes how the run went.
    void finish() {
        faults.check(is.never);
        outcome(job, faults, words, elements, now + 1);
    }

private:
    // A word, or a fetch, which has no number; ``element``: no register write and no wait. A wait is for so many
    // operations of the unit ``other``.
    struct Entry {
        i64 word, dispatched, pop;
        Element* element;
        i64 other, target;
    };
    struct Queue {
        Latest<Entry> entries;
        i64 pushed = 0, popped = 0;
        i64 free = 0, operations = 0;  // the first cycle in which the unit takes what is next; what was dispatched
        bool busy = false;  // until nobody knows when, or for ever
        std::vector<i64> done;  // the cycles in which completions show
    };

    Job& job;
    const Shape* const shapes;
    const i64 program;
    Queue queues[UNITS];
    std::vector<Word> words;
    std::vector<Element> elements;  // in program order
    i64 now = is.first_action - 1;  // the latest dispatch
    i64 page_ready = is.never;  // of the page that was fetched last
    i64 page = 0, operation = 0, word = 0, left = 0;  // what is next, and words left of the page
    enum { FIRST, WORDS, AHEAD, OVER } step = FIRST;

    // Up to where everything waits for memory.
    void advance() {
        bool moves = true;
        while (moves) {
            moves = dispatch();
            for (int unit = 0; unit < UNITS; ++unit) moves |= pop(unit);
        }
    }

    // Dispatches what the queues have room for; whether that was anything.
    bool dispatch() {
        for (bool moved = false;; moved = true) {
            if (step == OVER) return moved;
            if (step != WORDS) {  // a page, ahead of the one whose words come
                if (!fetch()) return moved;
                step = WORDS;
            } else if (left) {
                if (word == job.count) {
                    step = OVER;
                    if (job.stopped) faults.stop(now + 1);
                } else if (!take(job.words[word])) {
                    return moved;
                }
            } else {
                if (word < is.page_words * job.pages) {
                    if (page_ready == is.never) return moved;
                    now = std::max(now, page_ready - 1);
                    step = AHEAD;
                }
                left = is.page_words;
            }
        }
    }

    bool fetch() {
        if (page == job.pages) return true;
        if (!room(int(is.load))) return false;
        elements.push_back({true, page, page, is.never, is.never, int(is.load), true});
        push(int(is.load), {-1, 0, 0, &elements.back(), 0, 0});
        ++page, page_ready = is.never;
        return true;
    }

    bool take(u64 value) {
        const u64 code = value & 0xFF, middle = value >> 8 & 0xFF;
        const bool writes = code == u64(is.cfg), waits = code == u64(is.sync);
        const int unit = writes ? middle >> 6 : waits ? middle : is.unit_of[code];
        if (!room(unit)) return false;
        Entry entry{word, 0, 0, nullptr, 0, 0};
        if (waits) {
            entry.other = value >> 16 & 0xFF;
            entry.target = queues[entry.other].operations - i64(value >> 32);
        } else if (!writes) {
            elements.push_back({false, operation++, word, is.never, is.never, unit, true});
            entry.element = &elements.back();
            ++queues[unit].operations;
        }
        push(unit, entry);
        words[word].unit = unit;
        ++word, --left;
        return true;
    }

    // Whether it is known when there is a place.
    bool room(int unit) const { return queues[unit].pushed - queues[unit].popped < is.queue_depth; }

    void push(int unit, Entry entry) {
        Queue& queue = queues[unit];
        const i64 full = queue.pushed - is.queue_depth;
        entry.dispatched = now = std::max(now, full < 0 ? -1 : queue.entries[full].pop) + 1;
        queue.entries[queue.pushed++] = entry;
    }

    // What leaves a queue; whether anything did.
    bool pop(int unit) {
        Queue& queue = queues[unit];
        const i64 before = queue.popped;
        for (; !queue.busy && queue.popped < queue.pushed; ++queue.popped) {
            Entry& entry = queue.entries[queue.popped];
            i64 time = std::max(queue.free, entry.dispatched + 1);
            if (entry.word >= 0) words[entry.word].head = time;
            if (entry.target > 0) {
                const auto& done = queues[entry.other].done;
                if (i64(done.size()) < entry.target) break;
                time = std::max(time, done[entry.target - 1]);
            }
            if (entry.word >= 0) words[entry.word].pop = time;
            entry.pop = time;
            queue.free = time + 1;
            if (entry.element) start(*entry.element, time);
        }
        return queue.popped != before;
    }

    void start(Element& element, i64 time) {
        Queue& queue = queues[element.unit];
        element.start = time;
        faults.of[element.unit].push_back(&element);
        queue.busy = true;
        const i64 n = element.number;
        if (element.fetch) {
            const i64 bytes = is.page_words * i64(sizeof(u64));
            begun[0] = {&element, {program + bytes * n, 1, 1, 0, 0, bytes}};
        } else if (job.causes[n]) {
            element.end = time + job.cycles[n];  // its unit does nothing more
        } else if (element.unit == is.load || element.unit == is.store) {
            begun[element.unit == is.store] = {&element, shapes[n]};
        } else {
            element.end = time + job.cycles[n];
            queue.busy = false, queue.free = std::min(element.end + 1, is.never);
            queue.done.push_back(queue.free);
        }
    }
};
