"""Front ends, graph, compiler, fast model, runtime and network zoo."""
