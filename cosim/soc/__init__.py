"""Programs in C on the simulated SoC: processor, accelerator and memory."""
