"""Proteins as data: residues, sequences, alignments, templates, structures; numpy only."""
