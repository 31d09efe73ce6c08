"""cocotb benches as a library: drivers, monitors and model-backed scoreboards for the accelerator and its blocks, and
for modified ones with the same ports. Needs the extra ``cocotb``.

====================  =============================================================================================
``runner``            builds a design and runs a module of cocotb tests on it (outside the simulator)
``bench``             options, clock and reset, random pauses, an in-order scoreboard
``streams``           ready/valid streams: driver with random idle, sink with random back-pressure, monitor
``axi``               AXI4 memories with stalls, errors or exact timing; rules of a manager; the host on AXI4-Lite
``cores``             a unit's core: its control, the SRAM behind it, a scoreboard backed by the model
``accelerator``       the whole: cases, a scoreboard backed by the model
``suite``             runnable benches made of these, a module per kind of block
====================  =============================================================================================
"""
