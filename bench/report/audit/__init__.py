"""Report of `bench audit`: the judgement of a comparison, for confidences that somebody already has."""

from bench.report.audit.compute import AuditTables, audit
from bench.report.audit.views import gate_sentence, views_of

__all__ = ["AuditTables", "audit", "gate_sentence", "views_of"]
