"""Natural language inference: CB, SNLI and the three rounds of ANLI.

A row: {"premise": "Two cooks share a stove.", "hypothesis": "They are alone", "label": 2}. Labels 0 to 2 of CB mean
entailment, contradiction, neutral; those of SNLI and ANLI mean entailment, neutral, contradiction.
"""

from __future__ import annotations

from dataclasses import replace

from bench.api import PromptStyle
from tasks.ct.data_set import FOLLOWING, DataSet, card_of, keep_labels, label, reader

COLUMNS = ("premise", "hypothesis", "label")
CB_OPTIONS = ("Yes", "No", "It's impossible to say")
OPTIONS = ("Yes", "It's impossible to say", "No")

LETTERED = "Premise:\n{premise}\n\nHypothesis:\n{text}\n\nChoices:\n{options}"
OPEN_HEADER = "The following are questions (with premise, hypothesis, and answers) about entailment."

CHOICE = PromptStyle(
    "The following are questions (with multiple-choice answers) about entailment.", FOLLOWING, LETTERED
)
OPEN = PromptStyle(
    OPEN_HEADER,
    FOLLOWING,
    (
        'Read the following premise and answer if the hypothesis is true. Respond with only "Yes", "No", or'
        ' "It\'s impossible to say" answer and no additional text.\n{premise}\nHypothesis: {text}'
    ),
)


CB = DataSet(
    name="cb",
    card=card_of("aps/super_glue", "cb", "3de24cf8022e94f4ee4b9d55a6f539891524d646", license="research use"),
    columns=COLUMNS,
    read=reader("hypothesis", lambda row: (CB_OPTIONS, label(row, "label", "012")), "premise"),
    choice=PromptStyle(OPEN_HEADER, FOLLOWING, LETTERED),
    open=PromptStyle(
        OPEN_HEADER,
        FOLLOWING,
        (
            'Read the following premise and answer if the hypothesis is true. Respond only with "Yes", "No", or'
            ' "It\'s impossible to say" and no additional text.\n{premise}\nHypothesis: {text}.'
        ),
    ),
)

SNLI = DataSet(
    name="snli",
    card=card_of("stanfordnlp/snli", "plain_text", "cdb5c3d5eed6ead6e5a341c8e56e669bb666725b", license="CC-BY-SA-4.0"),
    columns=COLUMNS,
    read=reader("hypothesis", lambda row: (OPTIONS, label(row, "label", "012")), "premise"),
    choice=CHOICE,
    open=OPEN,
    filter=keep_labels("label", (0, 1, 2)),
)


def _anli(n: int) -> DataSet:
    """Build the data set of round n of ANLI, whose rows are like those of SNLI.

    Its exemplars come from the dev split, so that this split can't be its validation split.
    """
    card = card_of(
        "facebook/anli",
        "plain_text",
        "8e4813d81f46d313dac7892e1c28076917cfcdf9",
        license="CC-BY-NC-4.0",
        splits={"train": f"train_r{n}", "dev": f"dev_r{n}"},
    )
    return replace(SNLI, name=f"anli_r{n}", card=card, pool="dev")


ANLI_R1, ANLI_R2, ANLI_R3 = (_anli(n) for n in (1, 2, 3))
