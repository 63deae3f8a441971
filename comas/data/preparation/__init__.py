"""From public datasets to the record files that training and evaluation read.

A ``RecordSet`` says where a dataset is on the Hugging Face hub (``Source``) and how one of its
rows becomes an ``Item``, or a stated reason why not (``LeftOut``). ``build.build`` turns record
sets into files: one per benchmark, and the blend of training and validation questions, each of
which has proven that its own reference answer verifies, and repeats no benchmark's question.
"""

from comas.data.preparation.record_set import Item, LeftOut, RecordSet, Row, Source

__all__ = ["Item", "LeftOut", "RecordSet", "Row", "Source"]
