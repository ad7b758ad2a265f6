"""Data sets of the training corpora: card, prompt style, and the conversion of rows to questions.

The other modules of this package define the `DataSet`s; `composer` joins them.
"""

from __future__ import annotations

import sys
from array import array
from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple, overload

from bench.api import AbsentError, ContractError, DataCard, Format, PromptStyle, Question, Row, Source, Split, UserError
from tasks._choices import column_error
from tasks._choices import text as text
from tasks._choices import texts as texts

FOLLOWING = "Now, answer the following."
NEXT = "Now, answer the next question."
LETTERED = "Question:\n{text}\n\nChoices:\n{options}"


class ReadOptions(NamedTuple):
    """Options for reading one row as a question."""

    format: Format
    seed: int
    """Seed of the random choices that reading this row makes."""


class DraftQuestion(NamedTuple):
    """Question that a row was converted to, before it gets an id and a subject."""

    text: str
    choices: tuple[str, ...]
    gold: int
    parts: tuple[tuple[str, str], ...] = ()


Reader = Callable[[Row, ReadOptions], DraftQuestion]
"""Function that converts a row to a question; it raises a UserError that names the row if the row is invalid."""


class FilterVerdict(NamedTuple):
    """Decision of a filter: whether a row is kept, and the reason under which it is counted, if it is."""

    keep: bool
    why: str = ""
    """Reason under which the row is counted; empty if it is not counted."""


KEEP = FilterVerdict(keep=True)


@dataclass(frozen=True)
class Filter:
    """Decides which rows of a data set become questions (docs/methods.md §1.2).

    A filter raises no error. Filters by label leave out rows whose label is not a valid one, as unlabelled. Other
    invalid rows are kept, and the reader raises the error.
    """

    columns: tuple[str, ...]
    judge: Callable[[Row], FilterVerdict]


@dataclass(frozen=True, kw_only=True)
class DataSet:
    """One data set of the corpora, with its prompt styles in both formats (docs/methods.md §1.4)."""

    name: str
    """Name of the data set, which is the subject of its questions."""
    card: DataCard
    columns: tuple[str, ...]
    read: Reader
    choice: PromptStyle
    open: PromptStyle | None = None
    """Prompt style without options; None if the data set is not in the open corpus."""
    filter: Filter | None = None
    pool: Split = "train"
    """Split of the data set from which exemplars come."""
    published: DataSet | None = None
    """The same data set with the filter and reader of the published corpus; None if these are the filter and reader
    here."""

    def style(self, fmt: Format) -> PromptStyle:
        """Return the prompt style of the data set's questions in a format.

        Raises:
            ContractError: the format is open, and the data set is not in the open corpus.
        """
        style = self.choice if fmt is Format.CHOICE else self.open
        if style is None:
            raise ContractError(f"{self.name} has no open format")
        return style


def card_of(
    hub: str,
    config: str,
    revision: str,
    *,
    license: str,  # noqa: A002  # the card's own word
    splits: Mapping[Split, str] | None = None,
    is_script: bool = False,
) -> DataCard:
    """Build the card of a data set whose folder is named after its repository and configuration.

    Args:
        hub: id of the repository on the Hub.
        config: name of the configuration.
        revision: commit of the repository.
        license: license of the rows.
        splits: name of a split in confbench -> its name in the source; None if the names are the same, `train` and
            `validation`.
        is_script: whether the data set is a script on the Hub. Then its files come from the Hub's Parquet branch.
    """
    return DataCard(
        hub=hub,
        config=config,
        revision=revision,
        files=f"{config}/{{split}}/0000.parquet" if is_script else "",
        folder=f"ct/{hub.partition('/')[2]}/{config}",
        license=license,
        splits=splits or {"train": "train", "validation": "validation"},
    )


@dataclass(eq=False, repr=False)
class SplitQuestions(Sequence[Question]):
    """Lazy sequence of the questions of one split of a data set, in row order, without filtered rows.

    Questions are built on access. Rows are filtered only as far as needed, since SNLI has 550,000.

    Args:
        source: provides the rows.
        data_set: the data set.
        split: a split that the data set's card lists.
        how: format of the questions, and a seed. Question i is read with this seed plus i.
        counts: reason -> number of rows that were filtered out or are unusual; updated as rows are read.
    """

    _source: Source
    _data_set: DataSet
    _split: Split
    _how: ReadOptions
    _counts: MutableMapping[str, int]
    _selected_rows: array[int] = field(default_factory=lambda: array("q"), init=False)  # numbers of the rows so far

    @cached_property
    def _rows(self) -> Sequence[Row]:
        return self._source.rows(self._data_set.card, self._split, self._data_set.columns)

    @cached_property
    def _remaining_rows(self) -> Iterator[tuple[int, Row]]:
        row_filter = self._data_set.filter
        return enumerate(self._source.rows(self._data_set.card, self._split, row_filter.columns) if row_filter else ())

    def __len__(self) -> int:
        return self.count_up_to(sys.maxsize)

    @overload
    def __getitem__(self, index: int) -> Question: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Question]: ...
    def __getitem__(self, index: int | slice) -> Question | Sequence[Question]:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        position = index + len(self) if index < 0 else index
        if position < 0 or self.count_up_to(position + 1) <= position:
            raise IndexError(index)
        name = self._data_set.name
        row = self._rows[position if self._data_set.filter is None else self._selected_rows[position]]
        # the official code seeds with the index among the selected rows, not with the row number
        how = ReadOptions(self._how.format, self._how.seed + position)
        item = self._data_set.read(Row(row.index, f"{row.where} ({name})", row.values), how)
        return Question(f"ct/{name}/{self._split}/{row.index}", name, item.text, item.choices, item.gold, item.parts)

    def count_up_to(self, most: int) -> int:
        """Return the number of questions, at most `most`; later rows are not read.

        Raises:
            AbsentError: all rows are filtered out.
        """
        row_filter = self._data_set.filter
        if row_filter is None:
            return min(most, len(self._rows))
        while len(self._selected_rows) < most:
            index, row = next(self._remaining_rows, (-1, None))
            if row is None:
                if self._selected_rows:
                    break
                prefix = f"{self._data_set.name} {self._split}: "
                reasons = ", ".join(what.removeprefix(prefix) for what in self._counts if what.startswith(prefix))
                raise AbsentError(
                    f"Expected questions in the {self._split} split of {self._data_set.name}, but every row is left out"
                    f" ({reasons or 'it has none'}); use a split with labels, in the columns of the Hub"
                )
            keep, why = row_filter.judge(row)
            if keep:
                self._selected_rows.append(index)
            if why:
                what = f"{self._data_set.name} {self._split}: {why}"
                self._counts[what] = self._counts.get(what, 0) + 1
        return min(most, len(self._selected_rows))


# --- reading columns --------------------------------------------------------------------------------------------------


def reader(question: str, options: Callable[[Row], tuple[tuple[str, ...], int]], *parts: str) -> Reader:
    """Build a function that reads a row whose question is the text of one column.

    Args:
        question: name of the question's column.
        options: function that reads a row's options and the index of the right one.
        parts: columns with further parts of the prompt; each replaces `{column}` in the data set's prompt style.
    """

    def read(row: Row, how: ReadOptions) -> DraftQuestion:
        del how
        return DraftQuestion(
            text(row, question), *options(row), tuple((part, column_text(row, part)) for part in parts)
        )

    return read


HIDDEN = ("", "-1", "None")
"""Values in a label column which mean that the true label is not published."""


def column_text(row: Row, column: str) -> str:
    """Return the text of a column, which may be empty.

    Raises:
        UserError: the value is not a text; the message names row and column.
    """
    value = row.values[column]
    if not isinstance(value, str):
        raise column_error(row, column, "a text", value)
    return value


def column_options(row: Row, *columns: str) -> tuple[str, ...]:
    """Return the options of a row, each the text of one column."""
    return tuple(column_text(row, column) for column in columns)


def label(row: Row, column: str, labels: str) -> int:
    """Return the index of the right option, for which a column has one character of `labels`.

    The column's value may be a text or a number.
    """
    value = row.values[column]
    label_text = str(value).strip()
    if label_text in HIDDEN:
        raise _hidden(row, column, value)
    if label_text not in list(labels):
        raise column_error(row, column, f"a label from {labels[0]} to {labels[-1]}", value)
    return labels.index(label_text)


def keyed(row: Row, least: int, most: int) -> tuple[tuple[str, ...], int]:
    """Return a row's options and the index of the right one.

    The column `choices` has the texts and the labels of all options; `answerKey` has the label of the right one.
    """
    choices, key = row.values["choices"], column_text(row, "answerKey").strip()
    if not isinstance(choices, dict) or not {"text", "label"} <= set(choices):
        raise column_error(row, "choices", "texts with labels", choices)
    options = texts(row, "choices", choices["text"], least, most)
    labels = texts(row, "choices", choices["label"], len(options), len(options))
    if not key:
        raise _hidden(row, "answerKey", key)
    if key not in labels:  # "1" may be the label of the first option: its position in the alphabet tells nothing
        raise column_error(row, "answerKey", f"one of the labels {', '.join(labels)}", key)
    return options, labels.index(key)


def _hidden(row: Row, column: str, value: object) -> UserError:
    return UserError(
        f"{row.where}: expected a label in column {column!r}, got {value!r}: the labels of this split are hidden;"
        " use a split with labels"
    )


# --- filters ----------------------------------------------------------------------------------------------------------

UNLABELLED = FilterVerdict(keep=False, why="rows without a label, left out")
REPEATED = FilterVerdict(keep=False, why="rows with two equal options, left out")


def keep_labels(column: str, labels: Sequence[int]) -> Filter:
    """Build a filter that keeps the rows whose label in a column is one of `labels`."""
    return Filter((column,), lambda row: KEEP if row.values[column] in labels else UNLABELLED)


def keep_distinct_columns(*columns: str) -> Filter:
    """Build a filter that keeps the rows whose options all differ; each column holds one option."""
    return Filter(columns, lambda row: keep_differing([row.values[column] for column in columns]))


def keep_differing(options: object) -> FilterVerdict:
    """Return the verdict of a filter that keeps rows whose options differ, and invalid rows, which fail later."""
    if not isinstance(options, list) or not all(isinstance(option, str) for option in options):
        return KEEP
    return KEEP if len(set(options)) == len(options) else REPEATED
