"""The array unit: CONV, CONV_RELU, DEPTH_CONV and MAT_MUL."""
