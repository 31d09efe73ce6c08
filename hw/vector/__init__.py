"""The vector unit: pooling, element-wise operations, activations, copies."""
