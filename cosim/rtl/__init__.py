"""The RTL under Verilator: builds and their cache, engines, boards, waves."""
