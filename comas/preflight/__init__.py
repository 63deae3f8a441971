"""Before a run: its configuration, the machine, the models and questions, the sizes to expect.

Everything that can be wrong on this machine is found here, so no work is lost to it later.
"""
