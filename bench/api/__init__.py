"""Public interface for plugins: all that a method or a task may import from the harness.

The interface needs numpy and the standard library only. Saving a fitted method also needs safetensors, and scikit-learn
if the method holds estimators of scikit-learn.
"""

from bench.api.adapters import AdapterModel, AdapterRef, TrainAdapter, Validation
from bench.api.analyses import AnalysisInput, Findings, MeasureColumn, Measures, Piece, Step, Strip, Strips
from bench.api.batch import Batch, BoolArray, FloatArray, IntArray, OutputHead, Ragged
from bench.api.early_stopping import POINTS, EarlyStopping
from bench.api.errors import AbsentError, ContractError, UntrainableError, UserError
from bench.api.facts import ModelFacts, Projection, RunFacts
from bench.api.methods import ConfidenceMethod, Context, Needs, NumpyFormula, Preset
from bench.api.protocol import ValidationRule
from bench.api.question import Format, PromptStyle, Question, Split
from bench.api.registration import method, task
from bench.api.search import Choice, Search, Times, Uniform
from bench.api.signals import (
    Adapter,
    At,
    AttentionRows,
    ChoiceLogits,
    Followup,
    Hidden,
    Of,
    QueryLogits,
    Related,
    SampleAgreement,
    Samples,
    Signal,
    Text,
    TokenIds,
    TokenScores,
    Unembedding,
)
from bench.api.tasks import DataCard, Row, Source, Task, TaskCard

__all__ = [
    "POINTS", "AbsentError", "Adapter", "AdapterModel", "AdapterRef", "AnalysisInput", "At", "AttentionRows",
    "Batch", "BoolArray", "Choice", "ChoiceLogits", "ConfidenceMethod", "Context", "ContractError", "DataCard",
    "EarlyStopping", "Findings", "FloatArray", "Followup", "Format", "Hidden", "IntArray", "MeasureColumn",
    "Measures", "ModelFacts", "Needs", "NumpyFormula", "Of", "OutputHead", "Piece", "Preset", "Projection",
    "PromptStyle", "QueryLogits", "Question", "Ragged", "Related", "Row", "RunFacts", "SampleAgreement", "Samples",
    "Search", "Signal", "Source", "Split", "Step", "Strip", "Strips", "Task", "TaskCard", "Text", "Times",
    "TokenIds", "TokenScores", "TrainAdapter", "Unembedding", "Uniform", "UntrainableError", "UserError",
    "Validation", "ValidationRule", "method", "task",
]  # fmt: skip
