"""The prompt of one question of a task, for `bench show --example`."""

from __future__ import annotations

from bench.api import Split, Task, UserError
from bench.api.protocol import PRESETS
from bench.prompts import templates
from bench.prompts.exemplars import exemplars, indices_in_subject


def example_prompt(task: Task, row: int) -> dict[str, str]:
    """Prompt of test question number `row` of a task, role -> text, with its right answer.

    Raises:
        UserError: there is no such row.
    """
    split: Split = "test" if "test" in task.card.splits else "train"
    questions = list(task.questions(split))
    if not 0 <= row < len(questions):
        raise UserError(f"--example {row}: task {task.name!r} has {split} questions 0 to {len(questions) - 1}.")
    question = questions[row]
    protocol = PRESETS["fixed"]
    shots = exemplars(
        task, question, indices_in_subject(questions)[question.id], task.pools().get(question.subject, ()), protocol
    )
    prompt = templates.build(question, shots, task.style_of(question), task.format, protocol)
    answer = templates.target(question, task.format, protocol.letters)
    return {**{message.role: message.content for message in prompt.messages}, "right answer": answer}
