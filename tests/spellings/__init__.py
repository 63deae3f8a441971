"""Equal answers in many spellings, and near misses, in whole responses.

A family (families.yaml) gives golds with spellings of their own, right and wrong; what may be done
to any answer (surfaces.py) is put around these at random. Both were written by somebody who had not
read the graders, and are not to be fitted to them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from random import Random

from comas.verification import Item
from spellings.families import Answer, LeftOutError, families, given
from spellings.surfaces import LEAD, NESTED, SPACED, SURFACES, TABLE, dress, respond

ALL_SURFACES = [*SURFACES, LEAD, NESTED, SPACED]


@dataclass(frozen=True)
class Case:
    """An answer, and whether it is right."""

    kind: str
    """Its group, the spelling that was drawn, and what was done to it beside that."""
    item: Item
    is_right: bool


def cases(num: int, *, seed: int, is_right: bool) -> list[Case]:
    """``num`` answers, all kinds with even weight; the same ones for the same seed."""
    return list(islice(_draw(Random(f"{seed}/{is_right}"), is_right), num))


def _draw(rng: Random, is_right: bool) -> Iterator[Case]:
    kinds = list(_kinds(is_right))
    while True:
        group, text = rng.choice(kinds)
        drawn = None
        while drawn is None:
            with suppress(LeftOutError):
                drawn = (_equal if is_right else _near_miss)(rng, group, text)
        yield drawn


def _kinds(is_right: bool) -> Iterator[tuple[str, str]]:
    """Groups with a spelling, a surface, a frame or an ending."""
    for family in families():
        for template in family.right if is_right else family.wrong:
            yield family.name, template
    if is_right:
        yield from (("surface", surface) for surface in ALL_SURFACES)
    else:
        yield from (("any", frame) for row in TABLE["wrong_frames"] for frame in row["frames"])
    endings = TABLE["right_endings" if is_right else "wrong_endings"]
    yield from (("prose", ending) for ending in endings)


def _equal(rng: Random, group: str, text: str) -> Case:
    """An equal answer of this kind; raises LeftOutError where what is drawn has none."""
    answer, is_own = _answer(rng, group)
    kinds = [f"{group}: {text}" if group != "surface" else text]
    if is_own:
        body = answer.spelled(text)
        given(body != answer.gold)
    else:
        body = rng.choice([answer.gold, answer.spelled(rng.choice(answer.family.right))])
    if group == "surface":
        given(answer.family.form != "choice")
        plain, body = body, dress(answer, body, text)
        given(body != plain or text in (NESTED, SPACED))
    body, further = _with_more(answer, body, kinds, most=rng.choice([0, 1, 1, 2]))
    ending = text if group == "prose" else rng.choice(TABLE["endings"])
    response = respond(answer, ending, body, further)
    return Case(" + ".join(further), (answer.family.form, response, answer.gold), True)


def _near_miss(rng: Random, group: str, text: str) -> Case:
    """A near miss of this kind; raises LeftOutError where what is drawn has none."""
    answer, is_own = _answer(rng, group)
    kinds, body, ending = [f"{group}: {text}"], "", rng.choice(TABLE["endings"])
    if group == "prose":
        ending = text
    elif is_own:
        body = answer.spelled(text)
        given(body != answer.gold)
    else:
        [shapes] = [row["shapes"] for row in TABLE["wrong_frames"] if text in row["frames"]]
        given(not shapes or answer.family.shape in shapes)
        body = text.replace("@", answer.gold).replace("#", answer.other)
    if body.strip():
        body, kinds = _with_more(
            answer, body, kinds, most=rng.choice([0, 0, 1]), groups=TABLE["neutral"]
        )
    response = respond(answer, ending, body, kinds)
    return Case(" + ".join(kinds), (answer.family.form, response, answer.gold), False)


def _answer(rng: Random, group: str) -> tuple[Answer, bool]:
    """An answer of the family ``group``, or of any where that is none, and whether it is one; its
    gold is at times in another spelling found in data sets."""
    own = [family for family in families() if family.name == group]
    answer = Answer(rng.choice(own or families()), rng)
    if answer.family.form == "math" and rng.random() < 0.3:
        answer.gold = SURFACES[rng.choice(TABLE["gold_habits"])](answer.gold, rng)
    return answer, bool(own)


def _with_more(
    answer: Answer, body: str, kinds: list[str], *, most: int, groups: Sequence[str] = ()
) -> tuple[str, list[str]]:
    """``body`` after up to ``most`` surfaces of other groups, by default of any, and all kinds."""
    if answer.family.form == "choice":
        return body, kinds
    used = {kind.split(":")[0] for kind in kinds}
    for surface in answer.rng.sample(ALL_SURFACES, 3 * most):
        group = surface.split(":")[0]
        if len(kinds) > most or group in used or (groups and group not in groups):
            continue
        dressed = dress(answer, body, surface)
        if dressed != body or group == "box":
            body, kinds, used = dressed, [*kinds, surface], used | {group}
    return body, kinds
