// Accelerators that share a memory, played event by event: each one goes ahead in time until it waits for memory; only
// addresses, memory's decisions and the host's starts are put in the order of time.
#include "dram.h"
#include "memory.h"
#include "player.h"
#include "sdram.h"

#include <deque>
#include <memory>

namespace {

using memories::Burst;
using memories::LONG_AGO;
using memories::Memory;

// A memory to which nothing has happened. ``kind``: the place in `KINDS` of isa/config/memory.py; ``numbers``: what
// `numbers_of` in isa/timing/memories/models.py says of it.
std::unique_ptr<Memory> made(i64 kind, const i64* numbers) {
    switch (kind) {
        case 1: return std::make_unique<memories::Sdram>(*reinterpret_cast<const memories::SdramTiming*>(numbers));
        case 2: return std::make_unique<memories::Dram>(*reinterpret_cast<const memories::DramTiming*>(numbers));
        default: return std::make_unique<memories::Fixed>(numbers[0], numbers[1], numbers[2]);
    }
}

// A program that an accelerator runs, or a layer that the host computes, in the order of `_Task` in engine.py.
struct Task {
    Job* job;  // none: the host's
    const Shape* shapes;
    i64 program, accelerator, earliest;
    const i64* after;  // tasks that must have ended
    i64 afters;
    i64 origin;  // the cycle of the system that is cycle 0 of the run; given, or, if negative, up to the host
    i64 lasts, past;  // of a layer: cycles that it takes the host, and the cycle behind its last one
};

// In the order of `_System` in engine.py.
struct System {
    i64 accelerators;
    const i64 *outstanding, *bus_bytes;  // of each
    i64 joined;  // by an interconnect; else there is one accelerator, right at memory
    i64 kind;
    const i64* memory;
    i64 count;
    Task* tasks;
    i64 reaction, started, written, seen;  // cycles of the host
};

// The bursts of a transfer.
class Bursts {
public:
    bool more = false;

    void begin(const Shape& transfer, i64 bus_bytes) {
        shape = transfer, row = plane = 0, more = true;
        for (bits = 0; i64(1) << bits < bus_bytes; ++bits) {}
        turn();
    }

    // Beats of the next one, and the address of the first.
    i64 take(i64& address) {
        const i64 first = at >> bits;
        const i64 end = std::min({stop, (at | (is.boundary - 1)) + 1, (first + is.max_burst) << bits});
        address = first << bits & 0xFFFFFFFF;
        const i64 beats = ((end - 1) >> bits) + 1 - first;
        at = end;
        if (at == stop) {
            if (++row == shape.rows) row = 0, ++plane;
            if (plane == shape.planes) more = false;
            else turn();
        }
        return beats;
    }

private:
    Shape shape;
    int bits;  // of the place of a byte in a beat
    i64 row, plane, at, stop;

    void turn() {
        at = (shape.address + plane * shape.plane_step + row * shape.row_step) & 0xFFFFFFFF;
        stop = at + shape.length;
    }
};

// A program under way.
struct Run {
    Task& task;
    Player player;
    bool ended = false;

    explicit Run(Task& task) : task(task), player(*task.job, task.shapes, task.program) {}
};

// A direction of an accelerator's bus.
struct Port {
    i64 number, outstanding, bytes;
    Run* run = nullptr;
    Element* element = nullptr;  // that transfers; none if it rests
    i64 verified = 0, accepted = LONG_AGO;  // the transfer; the latest address
    bool held = false;  // the latest address has not left the accelerator's side
    Bursts bursts;
    i64 issued = 0, answered = 0;  // bursts of the transfer
    Latest<i64> ends;
    Burst burst;  // the latest one
};

// All ports of a direction, and their way to memory.
struct Line {
    bool write;
    std::vector<Port> ports;
    std::vector<i64> begins;  // per port: when it presents the first address of a transfer, which may have a fault
    std::vector<i64> free, asks;  // from when on its slice takes an address, and asks for a grant
    i64 output = 0, latest;  // from when on there may be a grant; who had the latest
    bool offers = false;  // memory sees `burst` from `since` on
    i64 since;
    Port* owner;
    Burst burst;
    i64 places, accepted = 0, answered = 0;  // bursts that memory holds at most, 0 for any number; so far
    Latest<Port*, 256> owners;               // of the bursts: of 16 accelerators each may have 16 in flight
    Latest<i64> ends;
    std::deque<Burst> waiting;  // writes without data, as those before them have the way
    bool flows = false;  // data of a write
    i64 taken = LONG_AGO;  // the latest beat of a write

    // What happens next. The rest follows: a burst is put on its way as soon as its cycles are known.
    enum { BEGIN, GRANT, TAKE } what;
    i64 when = is.never;
    size_t who;
    bool changed = true;

    void look() {
        if (!changed) return;
        changed = false;
        when = is.never;
        for (size_t n = 0; n < begins.size(); ++n)
            if (begins[n] < when) when = begins[n], what = BEGIN, who = n;
        if (output < is.never)
            for (i64 asked : asks)
                if (asked < is.never && std::max(output, asked) <= when) when = std::max(output, asked), what = GRANT;
        if (offers && room() <= when) when = room(), what = TAKE;
    }

    // When memory accepts the address that it sees; `never` as long as that is not known.
    i64 room() const {
        if (!places || accepted < places) return since;
        return answered > accepted - places ? std::max(since, ends[accepted - places] + 1) : is.never;
    }
};

class Simulation {
public:
    explicit Simulation(System& system)
        : system(system), way(system.joined ? is.data : 0), memory(made(system.kind, system.memory)) {
        for (int d = 0; d < 2; ++d) {
            Line& line = lines[d];
            line.write = d;
            line.latest = system.accelerators - 1;
            line.places = memory->places();
            line.free.assign(system.accelerators, 0);
            line.asks.assign(system.accelerators, is.never);
            line.begins.assign(system.accelerators, is.never);
            for (i64 n = 0; n < system.accelerators; ++n) {
                Port port;
                port.number = n, port.outstanding = system.outstanding[n], port.bytes = system.bus_bytes[n];
                line.ports.push_back(port);
            }
        }
        missing.resize(system.count), ready.resize(system.count), readers.resize(system.count);
        for (i64 n = 0; n < system.count; ++n) {
            const Task& task = system.tasks[n];
            ready[n] = task.earliest, missing[n] = task.afters;
            for (i64 k = 0; k < task.afters; ++k) readers[task.after[k]].push_back(n);
        }
    }

    void play() {
        for (i64 n = 0; n < system.count; ++n) {
            if (system.tasks[n].origin >= 0) start(n);
            else if (!missing[n]) offer(n);
        }
        for (;;) {
            for (Line& line : lines) line.look();
            Line& line = lines[lines[1].when < lines[0].when];
            const i64 call = host(), due = std::min(line.when, call), decision = memory->next;
            if (std::min(due, decision) >= is.never) break;
            if (decision <= due) memory->serve(due);
            else if (call <= line.when) act();
            else carry_out(line);
            drain();
        }
        for (auto& run : runs)
            if (!run->ended) run->player.finish();
    }

private:
    System& system;
    const i64 way;  // cycles of a beat or a response through the interconnect
    std::unique_ptr<Memory> memory;
    std::vector<memories::Report> reports;  // the latest of memory
    Line lines[2];  // reads, writes
    std::vector<std::unique_ptr<Run>> runs;
    // of the host
    std::vector<i64> missing, ready;  // per task
    std::vector<std::vector<i64>> readers;
    std::vector<i64> programs, layers;  // that could be started
    i64 idle = 0;                       // from when on it starts nothing
    i64 layer = -1, left, since = 0;    // under way; its cycles that are left, and from when on the host is at it

    // ---- the host

    void offer(i64 n) { (system.tasks[n].job ? programs : layers).push_back(n); }

    i64 first(const std::vector<i64>& waiting) const {
        i64 cycle = is.never;
        for (i64 n : waiting) cycle = std::min(cycle, ready[n]);
        return cycle;
    }

    // When the host does something next.
    i64 host() const {
        return std::min(first(programs), layer < 0 ? first(layers) : since + left);
    }

    // A layer that ends in a cycle does so before a program is taken: what becomes ready by that competes.
    void act() {
        if (layer >= 0 && since + left <= first(programs)) finish();
        else if (first(programs) <= (layer < 0 ? first(layers) : is.never)) command();
        else work();
    }

    i64 taken(std::vector<i64>& waiting) {
        const auto next = std::min_element(waiting.begin(), waiting.end(), [&](i64 a, i64 b) {
            return ready[a] != ready[b] ? ready[a] < ready[b] : a < b;
        });
        const i64 n = *next;
        waiting.erase(next);
        return n;
    }

    void command() {
        const i64 n = taken(programs), cycle = std::max(ready[n], idle), begins = cycle + system.reaction;
        if (layer >= 0 && since < cycle) begun(), left -= cycle - since;
        since = idle = begins + system.written;
        system.tasks[n].origin = begins + system.started;
        start(n);
    }

    void work() {
        layer = taken(layers);
        left = system.tasks[layer].lasts;
        since = std::max(ready[layer], since);
    }

    // The host has worked on the layer.
    void begun() {
        i64& origin = system.tasks[layer].origin;
        if (origin < 0) origin = since;
    }

    void finish() {
        begun();
        const i64 n = layer;
        layer = -1;
        since += left;
        release(n, system.tasks[n].past = since);
    }

    void start(i64 n) {
        runs.push_back(std::make_unique<Run>(system.tasks[n]));
        for (Line& line : lines) line.ports[system.tasks[n].accelerator].run = runs.back().get();
        begin(*runs.back());
    }

    void end(Run& run) {
        run.player.finish();
        run.ended = true;
        release(&run.task - system.tasks, run.task.origin + run.task.job->total + system.seen);
    }

    // What waits for a task waits no longer.
    void release(i64 task, i64 cycle) {
        for (i64 n : readers[task]) {
            ready[n] = std::max(ready[n], cycle);
            if (!--missing[n]) offer(n);
        }
    }

    // ---- transfers

    // What an accelerator has begun.
    void begin(Run& run) {
        for (Line& line : lines) {
            Player::Begun& begun = run.player.begun[line.write];
            if (!begun.element) continue;
            Port& port = line.ports[run.task.accelerator];
            port.element = begun.element;
            port.verified = run.task.origin + begun.element->start + is.check;
            port.bursts.begin(begun.shape, port.bytes);
            port.issued = port.answered = 0;
            begun.element = nullptr;
            schedule(line, port);
        }
    }

    // When a port presents its next address, if what that waits for is known.
    void schedule(Line& line, Port& port) {
        if (port.held || !port.bursts.more || port.issued - port.answered >= port.outstanding) return;
        i64 cycle = std::max({port.verified + is.address, port.accepted + is.address, line.free[port.number]});
        if (port.issued >= port.outstanding) cycle = std::max(cycle, port.ends[port.issued - port.outstanding] + is.place);
        if (port.issued) return present(line, port, cycle);
        line.begins[port.number] = cycle;
        line.changed = true;
    }

    void carry_out(Line& line) {
        line.changed = true;
        switch (line.what) {
            case Line::BEGIN: return begin(line, line.ports[line.who]);
            case Line::GRANT: return grant(line);
            case Line::TAKE: return take(line, line.when);
        }
    }

    void begin(Line& line, Port& port) {
        i64& begins = line.begins[port.number];
        const i64 cycle = begins;
        begins = is.never;
        if (works(port)) return present(line, port, cycle);
        port.element = nullptr, port.bursts.more = false;
    }

    void present(Line& line, Port& port, i64 cycle) {
        i64 address;
        const i64 beats = port.bursts.take(address);
        port.burst = {line.write, port.number, u64(address), beats, port.bytes, 0, port.verified + is.write_first + way};
        ++port.issued;
        port.held = true;
        if (!system.joined) return offer(line, port, cycle);
        port.accepted = cycle;
        line.asks[port.number] = cycle + is.slice;
        line.changed = true;
    }

    // Whether an accelerator has come to a transfer without a fault. All that happens before its first address is known.
    bool works(Port& port) {
        Faults& faults = port.run->player.faults;
        faults.check(port.element->start);
        return port.element->works && port.element->start <= faults.halt;
    }

    // Memory sees the port's address from a cycle on.
    void offer(Line& line, Port& port, i64 cycle) {
        line.offers = true, line.since = cycle;
        line.owner = &port, line.burst = port.burst;
        if (line.room() < is.never) take(line, line.room());
    }

    void grant(Line& line) {
        const i64 cycle = line.when, count = i64(line.ports.size());
        do line.latest = line.latest + 1 == count ? 0 : line.latest + 1;
        while (line.asks[line.latest] > cycle);
        Port& port = line.ports[line.latest];
        line.asks[port.number] = is.never;
        line.free[port.number] = cycle + 1;
        line.output = is.never;
        offer(line, port, cycle + is.output);
        port.held = false;
        schedule(line, port);
    }

    // Memory accepts the address that it sees.
    void take(Line& line, i64 cycle) {
        line.offers = false;
        line.output = cycle;
        Burst& burst = line.burst;
        burst.accepted = cycle;
        line.owners[line.accepted++] = line.owner;
        if (line.write) {
            burst.data = std::max(burst.data, burst.accepted + is.turn + way);
            line.waiting.push_back(burst);
            data();
        } else {
            memory->take(burst);
        }
        if (system.joined) return;
        Port& port = *line.owner;
        port.accepted = cycle, port.held = false;
        schedule(line, port);
    }

    // The data of the next write are on their way, if nobody else's are.
    void data() {
        Line& line = lines[1];
        if (line.flows || line.waiting.empty()) return;
        Burst burst = line.waiting.front();
        line.waiting.pop_front();
        burst.data = std::max(burst.data, line.taken + 1);
        line.flows = true;
        memory->take(burst);
    }

    // Takes note of what memory reports.
    void drain() {
        while (!memory->reports.empty()) {
            reports.swap(memory->reports);
            for (const auto [kind, cycle] : reports) {
                Line& line = lines[kind != memories::R];
                if (kind == memories::W) {
                    line.flows = false, line.taken = cycle;
                    data();
                } else {
                    Port& port = *line.owners[line.answered];
                    line.ends[line.answered++] = cycle;
                    if (line.offers) line.changed = true;
                    answered(line, port, cycle + way);
                }
            }
            reports.clear();
        }
    }

    // A port sees the last answer to its oldest burst.
    void answered(Line& line, Port& port, i64 cycle) {
        port.ends[port.answered++] = cycle;
        if (port.bursts.more || port.answered < port.issued) return schedule(line, port);
        Run& run = *port.run;
        Element& element = *port.element;
        port.element = nullptr;
        run.player.end(element, cycle + (line.write ? is.write_end : is.read_end) - run.task.origin);
        begin(run);
        const i64 k = port.number;
        if (!lines[0].ports[k].element && !lines[1].ports[k].element && run.player.is_done()) end(run);
    }
};

}  // namespace

EXPORT void play_system(System* system) { Simulation(*system).play(); }
