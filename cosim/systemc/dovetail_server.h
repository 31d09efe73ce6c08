// The model's process: `dovetail.cosim.systemc.server` at the other end of a socket (POSIX). Its docstring has the
// messages; all numbers are little-endian, as the structures below.
#pragma once

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <functional>
#include <stdexcept>
#include <string>
#include <vector>

#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

namespace dovetail {

constexpr uint32_t SERVER_PAGE = 4096;   // bytes
constexpr uint32_t SERVER_BLOCK = 64;    // bytes; one bit of a page's mask each

struct __attribute__((packed)) Request {
    uint64_t config;
    uint32_t program, pages, base;
};

struct __attribute__((packed)) Outcome {
    uint64_t cycles;
    uint32_t cause, pc;
    uint32_t counters[16];  // busy, config, token, idle of each unit
    uint32_t transfers;
};

// A LOAD, a STORE or an instruction fetch: `planes` times `rows` rows of `length` bytes.
struct __attribute__((packed)) Transfer {
    uint32_t write;
    uint64_t start, end;  // cycles of the run
    uint32_t address, rows, planes, row_step, plane_step, length;
};

struct Run {
    Outcome outcome;
    std::vector<Transfer> transfers;
    std::vector<std::vector<unsigned char>> data;  // of each transfer; empty unless it writes
};

class Server {
public:
    // Reads a page of system memory; a bit of the answer per block that answers without an error.
    using Reader = std::function<uint64_t(uint32_t page, unsigned char* data)>;

    // `command` is given to the shell.
    explicit Server(const std::string& command) {
        int ends[2];
        if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends)) fail("there is no socket for it");
        process = fork();
        if (process < 0) fail("no process can be made for it");
        if (process == 0) {
            dup2(ends[1], STDIN_FILENO);
            dup2(ends[1], STDOUT_FILENO);
            execl("/bin/sh", "sh", "-c", ("exec " + command).c_str(), static_cast<char*>(nullptr));
            _exit(127);
        }
        close(ends[1]);
        end = ends[0];
    }

    ~Server() {
        close(end);
        waitpid(process, nullptr, 0);
    }

    Server(const Server&) = delete;
    Server& operator=(const Server&) = delete;

    // Runs a program on the model of the configuration with this hash. Throws std::runtime_error.
    Run run(uint64_t config, uint32_t program, uint32_t pages, uint32_t base, const Reader& read) {
        const Request request = {config, program, pages, base};
        put(&request, sizeof request);
        for (;;) {
            uint32_t ranges;
            get(&ranges, sizeof ranges);
            if (!ranges) break;
            answer(ranges, read);
        }
        Run run;
        get(&run.outcome, sizeof run.outcome);
        run.transfers.resize(run.outcome.transfers);
        get(run.transfers.data(), run.transfers.size() * sizeof(Transfer));
        run.data.resize(run.transfers.size());
        for (size_t n = 0; n < run.transfers.size(); ++n) {
            const Transfer& transfer = run.transfers[n];
            if (transfer.write) run.data[n].resize(size_t(transfer.rows) * transfer.planes * transfer.length);
            get(run.data[n].data(), run.data[n].size());
        }
        return run;
    }

private:
    pid_t process = -1;
    int end = -1;

    [[noreturn]] static void fail(const char* what) {
        throw std::runtime_error(std::string("the model's process: ") + what);
    }

    // Sends the pages of some ranges.
    void answer(uint32_t ranges, const Reader& read) {
        std::vector<uint32_t> wanted(2 * size_t(ranges));  // first page and number of pages
        get(wanted.data(), wanted.size() * 4);
        for (size_t n = 0; n < wanted.size(); n += 2) {
            const uint32_t count = wanted[n + 1];
            std::vector<uint64_t> masks(count);
            std::vector<unsigned char> data(size_t(count) * SERVER_PAGE);
            for (uint32_t page = 0; page < count; ++page)
                masks[page] = read(wanted[n] + page, data.data() + size_t(page) * SERVER_PAGE);
            put(masks.data(), masks.size() * 8);
            put(data.data(), data.size());
        }
    }

    void put(const void* data, size_t size) {
        for (const char* next = static_cast<const char*>(data); size;) {
            const ssize_t done = send(end, next, size, MSG_NOSIGNAL);
            if (done < 0 && errno == EINTR) continue;
            if (done <= 0) fail("it has ended; see what it printed");
            next += done;
            size -= size_t(done);
        }
    }

    void get(void* data, size_t size) {
        for (char* next = static_cast<char*>(data); size;) {
            const ssize_t done = recv(end, next, size, 0);
            if (done < 0 && errno == EINTR) continue;
            if (done <= 0) fail("it has ended; see what it printed");
            next += done;
            size -= size_t(done);
        }
    }
};

}  // namespace dovetail
