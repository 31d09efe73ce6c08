"""Random programs, legal and illegal, for comparing engines.

A legal program uses every operation the configuration has, with SYNCs from the hazard tracker. An illegal one is a
legal one with something broken; it still has one outcome (no program returned here races, see
:func:`~dovetail.sw.compiler.emit.hazards.races`).
"""
