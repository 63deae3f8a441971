"""The progress of an evaluation."""

from datetime import datetime, timedelta
from typing import Any

from comas.utils.progress import progress_bar

BAR = (
    "{desc}: {percentage:3.0f}%|{bar:20}| {n_fmt}/{total_fmt} "
    "[{elapsed}<{left}, ends {end}, {tasks_per_minute} tasks/min{postfix}]"
)


class TaskBar(progress_bar):
    """Counts tasks; on a terminal also with their number per minute and the expected end.

    Example::

        agent_0/gsm8k/debate:  40%|####    | 200/500 [02:10<03:15, ends Sat 14:32, 92 tasks/min]
    """

    def __init__(self, *, description: str, total: int, initial: int) -> None:
        super().__init__(
            description,
            unit="task",
            total=total,
            initial=initial,
            terminal_format=BAR,
            stays=True,
        )

    @property
    def format_dict(self) -> dict[str, Any]:
        """Adds the expected end and the tasks per minute."""
        values = super().format_dict
        num_counted = values["n"] - values["initial"]
        if not num_counted:
            return values | {"end": "?", "tasks_per_minute": "?"}
        # The mean over the whole session, because tasks end in bursts.
        seconds_per_task = values["elapsed"] / num_counted
        remaining = timedelta(seconds=seconds_per_task * (values["total"] - values["n"]))
        return values | {
            "end": f"{datetime.now() + remaining:%a %H:%M}",
            "tasks_per_minute": f"{60 / seconds_per_task:.0f}",
        }
