"""Writes recorded episodes in formats of other tools: ATIF documents, and sessions for the Hub's viewer."""

from collection.traces.atif import atif_document
from collection.traces.hub import hub_session
from collection.traces.writing import FORMATS, TraceCounts, write_traces

__all__ = [
    "FORMATS",
    "TraceCounts",
    "atif_document",
    "hub_session",
    "write_traces",
]
