"""Does a hypothesis follow from a premise: CB, SNLI and the three rounds of ANLI.

A row: {"premise": "Two cooks share a stove.", "hypothesis": "They are alone", "label": 2}. The labels of CB are
entailment, contradiction, neutral; those of SNLI and ANLI entailment, neutral, contradiction.
"""

from __future__ import annotations

from bench.api import DataCard, PromptStyle, Row
from tasks.ct.data_set import FOLLOWING, DataSet, DraftQuestion, ReadOptions, label, labelled, piece, text

COLUMNS = ("premise", "hypothesis", "label")
CB_OPTIONS = ("Yes", "No", "It's impossible to say")
OPTIONS = ("Yes", "It's impossible to say", "No")

LETTERED = "Premise:\n{premise}\n\nHypothesis:\n{text}\n\nChoices:\n{options}"
OPEN_HEADER = "The following are questions (with premise, hypothesis, and answers) about entailment."

CHOICE = PromptStyle(
    header="The following are questions (with multiple-choice answers) about entailment.",
    footer=FOLLOWING,
    context=LETTERED,
)
OPEN = PromptStyle(
    header=OPEN_HEADER,
    footer=FOLLOWING,
    context=(
        'Read the following premise and answer if the hypothesis is true. Respond with only "Yes", "No", or'
        ' "It\'s impossible to say" answer and no additional text.\n{premise}\nHypothesis: {text}'
    ),
)


def _cb(row: Row, how: ReadOptions) -> DraftQuestion:
    del how
    return _item(row, CB_OPTIONS)


def _nli(row: Row, how: ReadOptions) -> DraftQuestion:
    del how
    return _item(row, OPTIONS)


def _item(row: Row, options: tuple[str, ...]) -> DraftQuestion:
    gold = label(row, "label", "012")
    return DraftQuestion(text(row, "hypothesis"), options, gold, (("premise", piece(row, "premise")),))


CB = DataSet(
    name="cb",
    card=DataCard(
        hub="aps/super_glue",
        config="cb",
        revision="3de24cf8022e94f4ee4b9d55a6f539891524d646",
        folder="ct/super_glue/cb",
        license="research use",
        splits={"train": "train", "validation": "validation"},
    ),
    columns=COLUMNS,
    read=_cb,
    choice=PromptStyle(header=OPEN_HEADER, footer=FOLLOWING, context=LETTERED),
    open=PromptStyle(
        header=OPEN_HEADER,
        footer=FOLLOWING,
        context=(
            'Read the following premise and answer if the hypothesis is true. Respond only with "Yes", "No", or'
            ' "It\'s impossible to say" and no additional text.\n{premise}\nHypothesis: {text}.'
        ),
    ),
)

SNLI = DataSet(
    name="snli",
    card=DataCard(
        hub="stanfordnlp/snli",
        config="plain_text",
        revision="cdb5c3d5eed6ead6e5a341c8e56e669bb666725b",
        folder="ct/snli/plain_text",
        license="CC-BY-SA-4.0",
        splits={"train": "train", "validation": "validation"},
    ),
    columns=COLUMNS,
    read=_nli,
    choice=CHOICE,
    open=OPEN,
    filter=labelled("label", (0, 1, 2)),
)


def _anli(n: int) -> DataSet:
    """A round; its dev split gives the exemplars, so that nothing is left for validation."""
    return DataSet(
        name=f"anli_r{n}",
        card=DataCard(
            hub="facebook/anli",
            config="plain_text",
            revision="8e4813d81f46d313dac7892e1c28076917cfcdf9",
            folder="ct/anli/plain_text",
            license="CC-BY-NC-4.0",
            splits={"train": f"train_r{n}", "dev": f"dev_r{n}"},
        ),
        columns=COLUMNS,
        read=_nli,
        choice=CHOICE,
        open=OPEN,
        filter=labelled("label", (0, 1, 2)),
        pool="dev",
    )


ANLI_R1, ANLI_R2, ANLI_R3 = (_anli(n) for n in (1, 2, 3))
