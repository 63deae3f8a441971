"""Studies: configurations that are trained with several seeds and compared, seed by seed.

Started by scripts/reproduce.sh with a YAML file from configs/studies/.
"""
