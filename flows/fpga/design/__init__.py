"""The design of a board around the accelerator: boards, clock, PLL, top."""
