"""What a float network's tensors range over: samples, ranges, clipping."""
