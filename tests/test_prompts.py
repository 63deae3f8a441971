"""What a role is told by its prompt; the rest of the wording is free."""

from __future__ import annotations

import re

import pytest

from comas.interaction.prompts import SCORING, TEMPLATES, discussion_text, fill
from comas.reward_formulation.score_parsing import parse_score
from comas.types import DOMAINS, Domain, Role

SUBJECTS = {
    "math": "math",
    "science": "physics, chemistry or biology",
    "coding": "program",
}


def prompt(role: Role, domain: Domain) -> str:
    texts = {"solution": "SOLUTION", "evaluation": "EVALUATION"}
    return fill(TEMPLATES[role], domain, question="QUESTION", **texts)


@pytest.mark.parametrize("domain", DOMAINS)
@pytest.mark.parametrize("role", TEMPLATES)
def test_every_prompt_names_its_domain(role: Role, domain: Domain):
    before, asked, _ = prompt(role, domain).partition("QUESTION")
    assert asked and SUBJECTS[domain] in before


@pytest.mark.parametrize("domain", DOMAINS)
def test_the_example_of_a_scoring_is_a_fatal_mistake_with_its_score(domain: Domain):
    text = prompt("scoring", domain)
    [score] = re.findall(r"<score>(\d)</score>", text)
    assert score == "1"
    example = text.partition("for example: ")[2].partition("\n")[0]
    assert parse_score(example) == 1 and "makes the result wrong" in example


def test_a_scoring_sees_the_solution_and_its_evaluation_but_no_history():
    text = prompt("scoring", "math")
    assert "SOLUTION" in text and "EVALUATION" in text
    assert discussion_text([]) not in text
    assert all("{discussion}" not in template for template in SCORING.values())
