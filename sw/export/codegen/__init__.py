"""C code of a compiled network's inference: a static schedule, portable kernels, the driver, and a weights file.

What a node of the host computes in integers, the generated code computes exactly. Float softmax and norms are computed
in integers and rounded once, where ONNX Runtime rounds every step.
"""
