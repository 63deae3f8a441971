"""Ideas beyond the paper: one plug-in file each, with its source and what a study found.

Configurations are in ``configs/ideas/``. The core never imports ideas, and they import only what
any plug-in may.
"""
