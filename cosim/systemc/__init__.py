"""The accelerator for SystemC platforms: the Verilated RTL and the model's timed view behind TLM-2.0 sockets."""
