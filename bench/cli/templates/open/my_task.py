"""A task of questions without options; its rows stand here, and may as well be read from a file beside it."""

from __future__ import annotations

from collections.abc import Iterator

from bench.api import Format, PromptStyle, Question, Split, Task, TaskCard, task

# subject, question, right answer, wrong ones; dev rows are shown as examples, test rows are asked
ROWS: dict[Split, list[tuple[str, str, str, tuple[str, ...]]]] = {
    "dev": [
        ("rivers", "Which sea does the Rhine end in?", "North Sea", ("Baltic Sea", "Black Sea")),
        ("rivers", "Which river flows through Paris?", "Seine", ("Rhone", "Loire")),
        ("rivers", "Which sea does the Danube end in?", "Black Sea", ("North Sea", "Adriatic Sea")),
        ("rivers", "Which river flows through Vienna?", "Danube", ("Elbe", "Rhine")),
        ("rivers", "Which sea does the Nile end in?", "Mediterranean Sea", ("Red Sea", "Black Sea")),
    ],
    "test": [
        ("rivers", "Which river flows through London?", "Thames", ("Severn", "Trent")),
        ("rivers", "Which river flows through Rome?", "Tiber", ("Po", "Arno")),
        ("rivers", "Which continent is the Amazon in?", "South America", ("Africa", "Asia")),
        ("rivers", "Which river flows through Berlin?", "Spree", ("Oder", "Elbe")),
        ("rivers", "Which sea does the Volga end in?", "Caspian Sea", ("Black Sea", "Aral Sea")),
        ("rivers", "Which river flows through Florence?", "Arno", ("Po", "Tiber")),
    ],
}


@task("my-task")
class MyTask(Task):
    """Questions about rivers, to be answered in a few words."""

    format = Format.OPEN
    card = TaskCard(
        license="CC0-1.0",
        version=1,  # one more with each change of a number
        splits={split: split for split in ROWS},  # with a "train" split methods can learn from it
        sizes={split: len(rows) for split, rows in ROWS.items()},
        options=(3, 3),  # fewest and most texts of a question, the right one included
        why="Five dev rows for each subject, as many as a prompt shows.",  # what a reader would ask about
    )
    style = PromptStyle(
        header="The following are questions (with answers) about {label}.",
        footer="Now, answer the next question.",
        context="Question: {text}",
    )

    def questions(self, split: Split) -> Iterator[Question]:
        """The questions of a split, always in this order; an id is the same for ever."""
        for i, (subject, text, right, wrong) in enumerate(ROWS[split]):
            yield Question(f"my-task/{split}/{i}", subject, text, (right, *wrong), gold=0)
            # other names of the right answer: accepted=("the Thames",)
