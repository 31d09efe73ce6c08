"""Formal proofs about blocks of the hardware: harnesses, and the list of proofs.

A harness is an ordinary component; :func:`dovetail.cosim.formal.prover.prove` and the command ``dovetail prove`` run
it. To prove something about a modified block, change the block, or build a :class:`Proof` around a harness of your own.
"""
