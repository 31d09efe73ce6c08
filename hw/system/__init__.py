"""Several accelerators as one design: their interconnect to one memory, their registers on one host port."""
