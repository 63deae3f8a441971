"""Builds the record files that training and evaluation read from public datasets.

A ``RecordSet`` describes a dataset on the Hugging Face hub (``Source``) and converts its rows into
``Item`` or ``LeftOut`` (with a reason). ``build.build`` writes one file per benchmark, and the
blend of training and validation questions, each of which verifies by its own reference answer and
repeats no benchmark's question.
"""

from comas.data.preparation.record_set import Item, LeftOut, RecordSet, Row, Source
