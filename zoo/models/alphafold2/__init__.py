"""AlphaFold2 and AlphaFold-Multimer (Jumper et al. 2021, Evans et al. 2021) for inference."""
