// A platform: the accelerator (RTL or view), system memory and a host that plays the script on stdin.
#include <chrono>
#include <cinttypes>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <iterator>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "dovetail_config.h"
#include "dovetail_host.h"
#include "dovetail_memory.h"
#include "dovetail_rtl.h"
#include "dovetail_view.h"

namespace {

namespace config = dovetail::config;

const char USAGE[] =
    "platform [--view COMMAND] [--memory READ:WRITE:BEAT] [--wait] [--quantum NS] [--poll] < SCRIPT\n"
    "\n"
    "--view     the timed view instead of RTL; the command of the model's process\n"
    "--memory   latencies of memory and cycles per beat\n"
    "--wait     memory waits instead of annotating delays\n"
    "--quantum  how far the host may run ahead of the simulation's time; 1000 without\n"
    "--poll     run looks at the status instead of waiting for the interrupt\n"
    "\n"
    "What the host does, a line each; each is answered with a line of JSON:\n"
    "\n"
    "load FILE [ADDRESS:BYTES ...]  system memory from address 0 on, and the parts of it that answer with errors\n"
    "run PROGRAM:PAGES:BASE         a program from its start to the interrupt\n"
    "save FILE                      system memory\n"
    "read OFFSET                    a register\n"
    "write OFFSET:VALUE:LANES       a register; LANES has a bit per byte\n"
    "wait NS\n";

struct Options {
    std::string view;
    dovetail::MemoryTiming timing = {config::READ_LATENCY, config::WRITE_LATENCY, config::BEAT_CYCLES};
    uint64_t quantum = 1000;
    bool waits = false, poll = false;
};

[[noreturn]] void refuse(const std::string& text) {
    fprintf(stderr, "platform: %s\n", text.c_str());
    exit(2);
}

// Numbers with colons between them.
std::vector<uint64_t> numbers(const std::string& text, size_t count) {
    std::vector<uint64_t> found;
    const char* next = text.c_str();
    while (found.size() < count) {
        char* end;
        found.push_back(strtoull(next, &end, 0));
        if (end == next || *end != (found.size() < count ? ':' : '\0')) refuse("not understood: " + text);
        next = end + 1;
    }
    return found;
}

Options parse(int count, char** words) {
    Options options;
    for (int n = 1; n < count; ++n) {
        const std::string word = words[n];
        const bool last = n + 1 == count;
        if (word == "--poll") {
            options.poll = true;
        } else if (word == "--wait") {
            options.waits = true;
        } else if (word == "--view" && !last) {
            options.view = words[++n];
        } else if (word == "--quantum" && !last) {
            options.quantum = numbers(words[++n], 1)[0];
        } else if (word == "--memory" && !last) {
            const auto cycles = numbers(words[++n], 3);
            options.timing = {cycles[0], cycles[1], cycles[2]};
        } else {
            fputs(USAGE, word == "--help" ? stdout : stderr);
            exit(word == "--help" ? 0 : 2);
        }
    }
    return options;
}

std::vector<unsigned char> load(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    if (!file) refuse(path + " cannot be read");
    return std::vector<unsigned char>(std::istreambuf_iterator<char>(file), {});
}

void save(const std::string& path, const std::vector<unsigned char>& data) {
    std::ofstream file(path, std::ios::binary);
    file.write(reinterpret_cast<const char*>(data.data()), std::streamsize(data.size()));
    if (!file.good()) refuse(path + " cannot be written");
}

uint64_t picoseconds(const sc_core::sc_time& time) { return uint64_t(time.to_seconds() * 1e12 + 0.5); }

// What the script's lines do.
class Script {
public:
    Script(dovetail::Host& host, dovetail::Memory& memory, bool poll) : host(host), memory(memory), poll(poll) {}

    void play(std::istream& lines) {
        for (std::string line; std::getline(lines, line);) {
            std::istringstream words(line);
            std::string verb, subject;
            if (!(words >> verb >> subject)) refuse("not understood: " + line);
            if (verb == "load") load_memory(subject, words);
            else if (verb == "run") run(numbers(subject, 3));
            else if (verb == "save") save_memory(subject);
            else if (verb == "read") access(tlm::TLM_READ_COMMAND, {numbers(subject, 1)[0], 0, 15});
            else if (verb == "write") access(tlm::TLM_WRITE_COMMAND, numbers(subject, 3));
            else if (verb == "wait") pass(numbers(subject, 1)[0]);
            else refuse("not understood: " + line);
            fflush(stdout);
        }
    }

private:
    dovetail::Host& host;
    dovetail::Memory& memory;
    const bool poll;
    std::vector<unsigned char> data;
    std::vector<dovetail::Memory::Part> broken;

    void load_memory(const std::string& path, std::istringstream& parts) {
        data = load(path);
        broken.clear();
        for (std::string word; parts >> word;) {
            const auto part = numbers(word, 2);
            broken.push_back({part[0], part[1]});
        }
        memory.reset(data.size(), {});
        host.write_memory(0, data.data(), data.size());
        memory.reset(data.size(), broken);
        puts("{}");
    }

    void save_memory(const std::string& path) {
        memory.reset(data.size(), {});
        host.read_memory(0, data.data(), data.size());
        memory.reset(data.size(), broken);
        save(path, data);
        puts("{}");
    }

    void run(const std::vector<uint64_t>& program) {
        const auto begin = std::chrono::steady_clock::now();
        host.start(uint32_t(program[0]), uint32_t(program[1]), uint32_t(program[2]));
        const uint64_t started = picoseconds(host.now());
        unsigned polls = 0;
        if (poll)
            while (!(host.read_register(DOVETAIL_HOST_STATUS) & DOVETAIL_HOST_STATUS_DONE_MASK)) ++polls;
        else host.wait_for_irq();
        const uint64_t ended = picoseconds(host.now());
        const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
        printf("{\"started_ps\": %" PRIu64 ", \"ended_ps\": %" PRIu64 ", \"polls\": %u, ", started, ended, polls);
        printf("\"seconds\": %.6f, \"registers\": {", seconds.count());
        const char* separator = "";
        for (const uint32_t offset : config::REGISTERS) {
            printf("%s\"%u\": %u", separator, offset, host.read_register(offset));
            separator = ", ";
        }
        host.clear_irq();
        puts("}}");
    }

    void access(tlm::tlm_command command, const std::vector<uint64_t>& words) {
        uint32_t value = uint32_t(words[1]);
        const bool fine = host.access_register(command, uint32_t(words[0]), value, unsigned(words[2]));
        printf("{\"ps\": %" PRIu64 ", \"value\": %u, \"error\": %s, \"irq\": %d}\n", picoseconds(host.now()), value,
               fine ? "false" : "true", host.irq.read());
    }

    void pass(uint64_t nanoseconds) {
        host.pass(sc_core::sc_time(double(nanoseconds), sc_core::SC_NS));
        puts("{}");
    }
};

}  // namespace

int sc_main(int count, char** words) {
    const Options options = parse(count, words);
    tlm::tlm_global_quantum::instance().set(sc_core::sc_time(double(options.quantum), sc_core::SC_NS));

    const sc_core::sc_time period(config::PERIOD_NS, sc_core::SC_NS);
    dovetail::Memory memory("memory", options.timing, period, config::BUS_BYTES, options.waits);
    std::unique_ptr<dovetail::Accelerator> accelerator;
    const unsigned beat_cycles = unsigned(options.timing.beat_cycles);
    if (options.view.empty()) accelerator = std::make_unique<dovetail::Rtl>("rtl", period, beat_cycles);
    else accelerator = std::make_unique<dovetail::View>("view", period, options.view);
    dovetail::Host host("host", [&](dovetail::Host& host) {
        Script(host, memory, options.poll).play(std::cin);
    });
    sc_core::sc_signal<bool> irq("irq");

    host.memory.bind(memory.ports);
    host.registers.bind(accelerator->registers);
    host.irq(irq);
    accelerator->memory.bind(memory.ports);
    accelerator->irq(irq);
    sc_core::sc_start();
    return 0;
}
