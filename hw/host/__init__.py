"""The host's side: registers behind AXI4-Lite."""
