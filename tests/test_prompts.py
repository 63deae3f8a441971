"""What a role is told by its prompt; the rest of the wording is free."""

from __future__ import annotations

import re

import pytest

from comas.interaction.prompts import (
    EVALUATION,
    SCORING,
    SHIPPED,
    SOLUTION,
    Template,
    discussion_text,
    fill,
)
from comas.reward_formulation.interaction_reward import parse_score
from comas.types import DOMAINS, Domain

SUBJECTS = {
    "math": "math",
    "science": "physics, chemistry or biology",
    "coding": "program",
}


def prompt(template: Template, domain: Domain) -> str:
    texts = {"solution": "THE SOLUTION", "evaluation": "THE EVALUATION"}
    return fill(template, domain, question="QUESTION", **texts)


@pytest.mark.parametrize("domain", DOMAINS)
@pytest.mark.parametrize("template", [SOLUTION, EVALUATION, SCORING])
def test_every_prompt_names_its_domain(template: Template, domain: Domain):
    before, asked, _ = prompt(template, domain).partition("QUESTION")
    assert asked and SUBJECTS[domain] in before


@pytest.mark.parametrize("domain", DOMAINS)
def test_the_example_of_a_scoring_is_a_fatal_mistake_with_its_score(domain: Domain):
    text = prompt(SCORING, domain)
    [score] = re.findall(r"<score>(\d)</score>", text)
    assert score == "1"
    example = text.partition("for example: ")[2].partition("\n")[0]
    assert parse_score(example) == 1 and "makes the result wrong" in example


def test_a_scoring_sees_the_solution_and_its_evaluation_but_no_history():
    text = prompt(SCORING, "math")
    assert "THE SOLUTION" in text and "THE EVALUATION" in text
    assert discussion_text([]) not in text
    assert all("{discussion}" not in template for template in SHIPPED[SCORING].values())
