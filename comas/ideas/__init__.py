"""Ideas beyond the paper: one file each, named in a configuration as any plug-in is.

Each says where it is from, what a study found of it, and when; its configuration is
``configs/ideas/NAME.yaml``. Nothing of the core imports them, and they import only what a user's
plug-in may.
"""
