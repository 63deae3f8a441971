"""Studies: configurations that are trained with several seeds and compared, seed by seed.

Started by scripts/reproduce.sh. A study is a YAML file with the keys of
``comas.reproduction.study``, as those in configs/studies/.
"""
