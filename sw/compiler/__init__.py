"""The compiler: from a graph and a configuration to instruction words."""
