"""Atoms in motion: neighbours, integrators, thermostats, relaxation."""
