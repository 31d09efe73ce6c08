"""The Verilated RTL behind the engine interface, and the lockstep comparison."""
