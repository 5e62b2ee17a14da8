"""The task set: complete, checkable, and checked as its head says."""

from __future__ import annotations

import collections
import json

import pytest

from outrider.campaign.parity_tasks import Task, load_tasks

TASKS = {task.id: task for task in load_tasks()}


def an_answer(task: Task) -> str:
    accepted = task.accepted[0]
    return json.dumps(accepted) if task.check == "json" else str(accepted)


def test_the_set_is_large_and_varied_enough_for_an_interval():
    kinds = collections.Counter(task.kind for task in TASKS.values())
    assert len(TASKS) >= 100
    assert len(kinds) >= 8
    assert min(kinds.values()) >= 8
    assert len({task.ask for task in TASKS.values()}) == len(TASKS)


@pytest.mark.parametrize("task", TASKS.values(), ids=lambda t: t.id)
def test_every_task_is_solved_by_its_own_answer_and_not_by_silence(task):
    assert task.solved_by(an_answer(task))
    assert task.solved_by(f"Sure! {an_answer(task)}.")
    assert not task.solved_by("")
    assert not task.solved_by("I am sorry, that is beyond me.")


@pytest.mark.parametrize("task", TASKS.values(), ids=lambda t: t.id)
def test_no_task_of_another_kind_of_answer_is_solved_by_it(task):
    assert not task.solved_by("kangaroo")
    assert not task.solved_by("987654")
    assert not task.solved_by('{"unasked": []}')


@pytest.mark.parametrize(
    ("task", "text", "solved"),
    [
        ("arithmetic-01", "2 + 3 = 5", True),
        ("arithmetic-01", "2 + 3 is 5.0, because 5 follows 4.", False),
        ("arithmetic-01", "five", False),
        ("arithmetic-10", "11 times 11 is 121.", True),
        ("capitals-01", "The capital of France is **Paris**.", True),
        ("capitals-01", "Parisians know.", False),
        ("capitals-13", "It is New  Delhi!", True),
        ("yes_no-01", "Yes, ice is cold.", True),
        ("yes_no-01", "No. Yes.", False),
        ("yes_no-02", "There is no fish that flies: yes, really.", True),
        ("yes_no-02", "I know nothing.", False),
        ("json-01", '```json\n{"age": 31, "name": "Ada"}\n```', True),
        ("json-01", '{"name": "Ada", "age": "31"}', False),
        ("json-03", '{not json} but {"a": 1} is', True),
        ("json-05", '{"open": 1, "floor": 3}', False),
        ("copy-02", "quixotic", True),
        ("copy-06", "k7-xa-92", True),
        ("letters-01", "The order is a, b, c.", True),
    ],
)
def test_checks_accept_what_is_right_and_nothing_near_it(task, text, solved):
    assert TASKS[task].solved_by(text) is solved


def test_a_thousands_separator_is_part_of_a_number():
    task = Task("x", "x", "ask", "number", ("1250",))
    assert task.solved_by("That makes 1,250 in all")
    assert not task.solved_by("That makes 1, 250 to 300 in all")
