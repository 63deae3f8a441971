"""Questions and their answer keys from files or the hub, and the batch of every step."""

from comas.data.batches import count_steps, draw_batch, fixed_subset
from comas.data.records import RECORDS, DataError, Invalid, QuestionSet, Record, load_questions
