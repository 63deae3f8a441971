"""Taxi of gymnasium as a multi-turn environment of the verifiers library, for
``verifiers_env.py``: ten moves a discussion, and the sum of their rewards."""

from gymnasium.envs.toy_text.taxi import TaxiEnv
from verifiers.envs.experimental.gym_env import GymEnv

PLACES = ("red", "green", "yellow", "blue", "taxi")
TOLD = (
    "The taxi is in row {}, column {}, the passenger at {}, bound for {}. Say 0 to go south, 1 "
    "north, 2 east, 3 west, 4 to pick up, 5 to drop off."
)


def told(seen: int) -> str:
    return TOLD.format(seen // 100, seen // 20 % 5, PLACES[seen // 4 % 5], PLACES[seen % 4])


def load_environment() -> GymEnv:
    return GymEnv(
        TaxiEnv,
        action_parser=lambda text: next(int(c) for c in f"{text}0" if c in "012345"),
        obs_to_text=told,
        num_train_episodes=100,
        num_eval_episodes=0,
        max_episode_steps=10,
    )
