"""The names that klaud uses of motley-slayer, in one place. Import this through ``klaud.encoder.slayer`` only."""

from __future__ import annotations

from slayer.core.models import DatasourceConfig, SlayerModel  # type: ignore[import-untyped]  # ships no type information
from slayer.core.query import SlayerQuery  # type: ignore[import-untyped]
from slayer.engine.ingestion import ingest_datasource_report  # type: ignore[import-untyped]
from slayer.engine.query_engine import SlayerQueryEngine  # type: ignore[import-untyped]
from slayer.sql import engine_factory  # type: ignore[import-untyped]
from slayer.storage.yaml_storage import YAMLStorage  # type: ignore[import-untyped]

__all__ = [
    "DatasourceConfig",
    "SlayerModel",
    "SlayerQuery",
    "SlayerQueryEngine",
    "YAMLStorage",
    "engine_factory",
    "ingest_datasource_report",
]
