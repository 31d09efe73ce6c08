"""Nodes of a graph as ONNX models that ONNX Runtime computes with its integer kernels.

A model's inputs and outputs are int8, as the accelerator's memory has them; inside, activations are uint8 (128 higher),
for which ONNX Runtime has an integer kernel of every quantised operator. Tensors keep the graph's order, channels last;
operators that want channels first have transpositions around them.
"""
