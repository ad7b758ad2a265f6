"""Prompt of one question of a task, to be printed by `bench show --example`."""

from __future__ import annotations

from bench.api import Split, Task, UserError
from bench.api.protocol import PRESETS
from bench.prompts import templates
from bench.prompts.exemplars import exemplars, indices_in_subject


def example_prompt(task: Task, row: int) -> dict[str, str]:
    """Return a question's prompt as role -> text, with the right answer under the key `right answer`.

    Args:
        task: the task. The prompt is that of the preset `fixed`.
        row: index of the question in the first split that the task has of test, train, validation and dev.

    Raises:
        UserError: the split has no question with this index.
    """
    splits: tuple[Split, ...] = ("test", "train", "validation", "dev")
    split = next(split for split in splits if split in task.card.splits)
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
    return {"id": question.id, **{message.role: message.content for message in prompt.messages}, "right answer": answer}
