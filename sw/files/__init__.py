"""Files of arrays, of inputs, of networks that are packed into one."""
