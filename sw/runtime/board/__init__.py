"""A real board at a serial port: the host link, and the engine ``board`` on top of it."""
