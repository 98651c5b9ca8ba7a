"""Deep potentials (DeePMD): energies and forces of atoms, learned from first-principles data."""
