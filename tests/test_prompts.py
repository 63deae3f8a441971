"""What a role is told by its prompt; the rest of the wording is free."""

import pytest
from tables import cases

from comas.interaction.prompts import (
    EVALUATION,
    EVALUATION_WITH_JUDGMENT,
    RATING,
    SCORING,
    SCORING_ALONE,
    SHIPPED,
    SOLUTION,
    Template,
    discussion_text,
    fill,
)
from comas.reward_formulation.interaction_reward import parse_score
from comas.reward_formulation.judgment_reward import parse_judgment
from comas.reward_formulation.self_rewarding import parse_rating
from comas.types import ALL_DOMAINS, DOMAINS, Domain

SUBJECTS = {"math": "math", "science": "physics, chemistry or biology", "coding": "program"}


def prompt(template: Template, domain: Domain) -> str:
    texts = {"solution": "THE SOLUTION", "evaluation": "THE EVALUATION"}
    return fill(template, domain, question="QUESTION", **texts)


@pytest.mark.parametrize("domain", DOMAINS)
@pytest.mark.parametrize("template", [SOLUTION, EVALUATION, SCORING])
def test_every_prompt_names_its_domain(template, domain):
    before, asked, _ = prompt(template, domain).partition("QUESTION")
    assert asked and SUBJECTS[domain] in before


@pytest.mark.parametrize("domain", ALL_DOMAINS)
@cases(
    "template, parse, shown",
    (SCORING, parse_score, 1),
    (SCORING_ALONE, parse_score, 1),
    (EVALUATION_WITH_JUDGMENT, parse_judgment, "incorrect"),
    (RATING, parse_rating, 2),
)
def test_the_example_in_a_prompt_can_be_read(template, parse, shown, domain):
    text = prompt(template, domain)
    assert "QUESTION" in text and "THE SOLUTION" in text
    assert ("THE EVALUATION" in text) == (template == SCORING)
    example = text.partition("for example: ")[2].partition("\n")[0]
    assert parse(example) == shown


def test_a_scoring_sees_the_solution_and_its_evaluation_but_no_history():
    text = prompt(SCORING, "math")
    assert "THE SOLUTION" in text and "THE EVALUATION" in text
    assert discussion_text([]) not in text
    assert all("{discussion}" not in template for template in SHIPPED[SCORING].values())
