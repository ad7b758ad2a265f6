"""A task of lettered questions; its rows stand here, and may as well be read from a file beside it."""

from __future__ import annotations

from collections.abc import Iterator

from bench.api import Format, PromptStyle, Question, Split, Task, TaskCard, task

# subject, question, options, index of the right one; dev rows are shown as examples, test rows are asked
ROWS: dict[Split, list[tuple[str, str, tuple[str, ...], int]]] = {
    "dev": [
        ("rivers", "Which sea does the Rhine end in?", ("North Sea", "Baltic Sea", "Black Sea"), 0),
        ("rivers", "Which city lies on the Seine?", ("Lyon", "Paris", "Nice"), 1),
        ("rivers", "Which sea does the Danube end in?", ("North Sea", "Adriatic Sea", "Black Sea"), 2),
        ("rivers", "Which river flows through Vienna?", ("Danube", "Elbe", "Rhine"), 0),
        ("rivers", "Which river is the longest?", ("Thames", "Nile", "Tiber"), 1),
    ],
    "test": [
        ("rivers", "Which city lies on the Thames?", ("London", "Rome", "Oslo"), 0),
        ("rivers", "Which river flows through Rome?", ("Po", "Tiber", "Arno"), 1),
        ("rivers", "Which continent is the Amazon in?", ("Africa", "Asia", "South America"), 2),
        ("rivers", "Which city lies on the Spree?", ("Berlin", "Munich", "Cologne"), 0),
        ("rivers", "Which sea does the Nile end in?", ("Red Sea", "Mediterranean Sea", "Black Sea"), 1),
        ("rivers", "Which river flows through Florence?", ("Po", "Tiber", "Arno"), 2),
    ],
}


@task("my-task")
class MyTask(Task):
    """Questions about rivers, with three options each."""

    format = Format.CHOICE
    card = TaskCard(
        license="CC0-1.0",
        version=1,  # one more with each change of a number
        splits={split: split for split in ROWS},  # with a "train" split methods can learn from it
        sizes={split: len(rows) for split, rows in ROWS.items()},
        options=(3, 3),  # fewest and most
        why="Five dev rows for each subject, as many as a prompt shows.",  # what a reader would ask about
    )
    style = PromptStyle(
        header="The following are multiple-choice questions (with answers) about {label}.",
        footer="Now, answer the next question.",
        context="Question:\n{text}\n\nChoices:\n{options}",
    )

    def questions(self, split: Split) -> Iterator[Question]:
        """The questions of a split, always in this order; an id is the same for ever."""
        for i, (subject, text, options, right) in enumerate(ROWS[split]):
            yield Question(f"my-task/{split}/{i}", subject, text, options, right)
