"""The page of a run: one HTML file that needs no server and no network.

The report that training writes and the viewer, with every discussion, are the same page.
"""
