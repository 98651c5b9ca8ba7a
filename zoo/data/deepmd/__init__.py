"""Frames of atoms with energies, forces and virials: the formats they come in, statistics, batches."""
