"""The LOAD and STORE units: between AXI4 and SRAM."""
