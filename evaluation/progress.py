"""The progress bar of an evaluation."""

from datetime import datetime, timedelta
from typing import Any

from tqdm import tqdm


class TaskBar(tqdm):
    """Counts tasks, with their number per minute and the expected end; on terminals only.

    Example::

        agent_0/gsm8k/debate:  40%|####    | 200/500 [02:10<03:15, ends Sat 14:32, 92 tasks/min]
    """

    def __init__(self, *, description: str, total: int, initial: int) -> None:
        super().__init__(
            desc=description,
            total=total,
            initial=initial,
            disable=None,
            # The mean over the whole session, because tasks end in bursts.
            smoothing=0,
            bar_format=(
                "{desc}: {percentage:3.0f}%|{bar:20}| {n_fmt}/{total_fmt} "
                "[{elapsed}<{remaining}, ends {end}, {tasks_per_minute} tasks/min{postfix}]"
            ),
        )

    @property
    def format_dict(self) -> dict[str, Any]:
        """Adds the expected end and the tasks per minute."""
        values = super().format_dict
        num_counted = values["n"] - values["initial"]
        if not num_counted:
            return values | {"end": "?", "tasks_per_minute": "?"}
        seconds_per_task = values["elapsed"] / num_counted
        remaining = timedelta(seconds=seconds_per_task * (values["total"] - values["n"]))
        return values | {
            "end": f"{datetime.now() + remaining:%a %H:%M}",
            "tasks_per_minute": f"{60 / seconds_per_task:.0f}",
        }
