// What Verilator's FST writer wants of the LZ4 library: one function that compresses a block, in the published block
// format, so that waves need no package of the system. Greedy, with one candidate per hash: a little larger than LZ4's
// own, the same for every reader.
#pragma once

#include <cstdint>
#include <cstring>
#include <vector>

inline int LZ4_compressBound(int size) { return size + size / 255 + 16; }

// The bytes written to `target`, which must have room for LZ4_compressBound(size); the last parameter is that room.
inline int LZ4_compress_default(const char* source, char* target, int size, int) {
    constexpr int MATCH = 4, TAIL = 12, LAST = 5, REACH = 65535, BITS = 13;
    const auto* const in = reinterpret_cast<const uint8_t*>(source);
    auto* out = reinterpret_cast<uint8_t*>(target);
    std::vector<int> seen(1 << BITS, -REACH - 1);
    const auto four = [&](int at) {
        uint32_t value;
        std::memcpy(&value, in + at, sizeof value);
        return value;
    };
    const auto rest = [&](int length) {  // of a length that its four bits did not hold
        for (; length >= 255; length -= 255) *out++ = 255;
        *out++ = uint8_t(length);
    };
    const auto literals = [&](int from, int count, int match) {  // the token, and what is not repeated
        *out++ = uint8_t((count < 15 ? count : 15) << 4 | (match < 15 ? match : 15));
        if (count >= 15) rest(count - 15);
        if (count) std::memcpy(out, in + from, count);
        out += count;
    };
    int done = 0;
    // No match may begin in the last 12 bytes, nor reach into the last 5.
    for (int at = 0; at + TAIL < size;) {
        int& last = seen[four(at) * 2654435761u >> (32 - BITS)];
        const int before = last;
        last = at;
        if (at - before > REACH || four(before) != four(at)) {
            ++at;
            continue;
        }
        int length = MATCH;
        while (at + length < size - LAST && in[before + length] == in[at + length]) ++length;
        literals(done, at - done, length - MATCH);
        *out++ = uint8_t(at - before);
        *out++ = uint8_t((at - before) >> 8);
        if (length - MATCH >= 15) rest(length - MATCH - 15);
        done = at += length;
    }
    literals(done, size - done, 0);
    return int(out - reinterpret_cast<uint8_t*>(target));
}
