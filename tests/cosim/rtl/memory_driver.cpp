// Exposes the AXI memory alone, one cycle per call.
#include "Vdut.h"
#include "axi_memory.h"
#define EXPORT extern "C" __attribute__((visibility("default")))

struct Handle {
    dovetail::AxiMemory<8> memory;
    dovetail::AxiCycle bus;
    uint64_t now = 0;
};

EXPORT Handle* mem_new(uint8_t* data, uint64_t size, uint64_t read_latency, uint64_t write_latency, uint64_t beat_cycles) {
    Handle* h = new Handle;
    h->memory.data = data;
    h->memory.size = size;
    h->memory.timing = {read_latency, write_latency, beat_cycles};
    return h;
}
EXPORT void mem_broken(Handle* h, uint64_t address, uint64_t bytes) { h->memory.broken.push_back({address, bytes}); }
EXPORT void mem_stalls(Handle* h, uint64_t seed, uint32_t one_in, uint32_t longest) {
    h->memory.stalls = {one_in, longest, seed, 0};
}
EXPORT uint64_t mem_stalled(Handle* h) { return h->memory.stalls.total; }
EXPORT void mem_delete(Handle* h) { delete h; }
EXPORT const char* mem_violation(Handle* h) { return h->memory.violation ? h->memory.violation : ""; }

// in: arvalid, araddr, arlen, arsize, arburst, rready, awvalid, awaddr, awlen, wvalid, wlast, wstrb, wdata, bready.
// out: arready, rvalid, rlast, rresp, rdata, awready, wready, bvalid, bresp.
EXPORT void mem_cycle(Handle* h, const uint64_t* in, uint64_t* out) {
    dovetail::AxiCycle& b = h->bus;
    uint64_t rdata = 0;
    h->memory.begin(h->now, b, &rdata);
    b.arvalid = in[0], b.araddr = in[1], b.arlen = in[2], b.arsize = in[3], b.arburst = in[4], b.rready = in[5];
    b.awvalid = in[6], b.awaddr = in[7], b.awlen = in[8], b.awsize = 3, b.awburst = 1;
    b.wvalid = in[9], b.wlast = in[10], b.bready = in[13];
    out[0] = b.arready, out[1] = b.rvalid, out[2] = b.rlast, out[3] = b.rresp, out[4] = rdata;
    out[5] = b.awready, out[6] = b.wready, out[7] = b.bvalid, out[8] = b.bresp;
    h->memory.end(h->now++, b, &in[12], in[11]);
}
