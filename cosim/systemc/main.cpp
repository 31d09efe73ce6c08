// A platform: the accelerator (RTL or view), system memory and a host that runs what stdin asks for.
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
    "platform [--view COMMAND] [--memory READ:WRITE:BEAT] [--quantum NS] [--poll] < JOBS\n"
    "\n"
    "Every line of JOBS is IMAGE OUTPUT PROGRAM:PAGES:BASE [ADDRESS:BYTES ...]: load IMAGE to system memory from address\n"
    "0 on, run the program, write memory to OUTPUT and the results to stdout, a line of JSON. ADDRESS:BYTES are parts of\n"
    "memory that answer with errors. SRAM keeps its contents from job to job.\n"
    "\n"
    "--view     the timed view instead of RTL; the command of the model's process\n"
    "--memory   latencies of memory and cycles per beat\n"
    "--quantum  how far the host may run ahead of the simulation's time; 1000 without\n"
    "--poll     look at the status instead of waiting for the interrupt\n";

struct Options {
    std::string view;
    dovetail::MemoryTiming timing = {sc_core::sc_time(config::PERIOD_NS, sc_core::SC_NS), config::READ_LATENCY,
                                     config::WRITE_LATENCY, config::BEAT_CYCLES, config::BUS_BYTES};
    uint64_t quantum = 1000;
    bool poll = false;
};

struct Job {
    std::string image, output;
    uint32_t program, pages, base;
    std::vector<dovetail::Memory::Part> broken;
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
        } else if (word == "--view" && !last) {
            options.view = words[++n];
        } else if (word == "--quantum" && !last) {
            options.quantum = numbers(words[++n], 1)[0];
        } else if (word == "--memory" && !last) {
            const auto cycles = numbers(words[++n], 3);
            options.timing.read_latency = unsigned(cycles[0]);
            options.timing.write_latency = unsigned(cycles[1]);
            options.timing.beat_cycles = unsigned(cycles[2]);
        } else {
            fputs(USAGE, word == "--help" ? stdout : stderr);
            exit(word == "--help" ? 0 : 2);
        }
    }
    return options;
}

Job parse(const std::string& line) {
    Job job;
    std::string place, part;
    std::istringstream words(line);
    if (!(words >> job.image >> job.output >> place)) refuse("not a job: " + line);
    const auto program = numbers(place, 3);
    job.program = uint32_t(program[0]);
    job.pages = uint32_t(program[1]);
    job.base = uint32_t(program[2]);
    while (words >> part) {
        const auto found = numbers(part, 2);
        job.broken.push_back({found[0], found[1]});
    }
    return job;
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

void run(dovetail::Host& host, dovetail::Memory& memory, const Job& job, bool poll) {
    std::vector<unsigned char> data = load(job.image);
    memory.reset(data.size(), {});
    host.write_memory(0, data.data(), data.size());
    memory.reset(data.size(), job.broken);
    const auto begin = std::chrono::steady_clock::now();
    host.start(job.program, job.pages, job.base);
    const uint64_t started = picoseconds(host.now());
    unsigned polls = 0;
    if (poll)
        while (!(host.read_register(DOVETAIL_HOST_STATUS) & DOVETAIL_HOST_STATUS_DONE_MASK)) ++polls;
    else host.wait_for_irq();
    const uint64_t ended = picoseconds(host.now());
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
    printf("{\"started_ps\": %" PRIu64 ", \"ended_ps\": %" PRIu64 ", \"polls\": %u, \"seconds\": %.6f, \"registers\": {",
           started, ended, polls, seconds.count());
    const char* separator = "";
    for (const uint32_t offset : config::REGISTERS) {
        printf("%s\"%u\": %u", separator, offset, host.read_register(offset));
        separator = ", ";
    }
    host.clear_irq();
    memory.reset(data.size(), {});
    host.read_memory(0, data.data(), data.size());
    save(job.output, data);
    printf("}}\n");
    fflush(stdout);
}

}  // namespace

int sc_main(int count, char** words) {
    const Options options = parse(count, words);
    tlm::tlm_global_quantum::instance().set(sc_core::sc_time(double(options.quantum), sc_core::SC_NS));

    dovetail::Memory memory("memory", options.timing);
    std::unique_ptr<dovetail::Accelerator> accelerator;
    const sc_core::sc_time period = options.timing.period;
    if (options.view.empty()) accelerator = std::make_unique<dovetail::Rtl>("rtl", period, options.timing.beat_cycles);
    else accelerator = std::make_unique<dovetail::View>("view", period, options.view);
    dovetail::Host host("host", [&](dovetail::Host& host) {
        for (std::string line; std::getline(std::cin, line);) run(host, memory, parse(line), options.poll);
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
