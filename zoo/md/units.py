"""Units of molecular dynamics here: angstrom, femtosecond, eV, atomic mass unit, kelvin. CODATA 2018."""

ACCELERATION = 9.648533212331e-3
"""A/fs^2 for a force of 1 eV/A on 1 u."""

BOLTZMANN = 8.617333262e-5
"""eV/K."""

BAR = 1 / 1.602176634e6
"""eV/A^3 in a bar."""
