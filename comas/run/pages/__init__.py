"""Pages for researchers: one self-contained HTML file each, without a server or a network.

The report of a run, which a training writes at its end, and the viewer, which also holds every
discussion, are the same page with different discussions in it.
"""
