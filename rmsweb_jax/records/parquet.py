"""Data sets as Parquet files with nested columns (extra `parquet`: pyarrow)."""

from __future__ import annotations

import itertools
import json
import types
import typing
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any, Literal, Union

import orjson
import pyarrow as pa
import pyarrow.parquet as pq
from pydantic import BaseModel

from rmsweb_jax.records.dataset import iter_records
from rmsweb_jax.records.files import replacing
from rmsweb_jax.records.images import ImageStore, record_images
from rmsweb_jax.records.schema import KINDS, Record
from rmsweb_jax.records.shards import Manifest, read_manifest
from rmsweb_jax.storage import AnyPath

_SCALARS: dict[Any, pa.DataType] = {
    str: pa.string(),
    int: pa.int64(),
    float: pa.float64(),
    bool: pa.bool_(),
}
# How Hugging Face `datasets` stores images; `cast_column("images", List(Image()))` decodes them.
_IMAGES = pa.field("images", pa.list_(pa.struct({"bytes": pa.binary(), "path": pa.string()})))
# A row group is held in memory; rows with screenshots are large.
_GROUP_ROWS = 1024
_GROUP_ROWS_WITH_IMAGES = 32


def export_parquet(folder: AnyPath, output: Path, images: bool = False) -> int:
    """Writes one row per record; `output` is replaced as a whole or not at all.

    Nested records are structs, tuples are lists, dictionaries are lists of `key`, `value` (Hugging Face
    `datasets` has no maps). The parts of a message have the fields of both kinds of part; those of the other
    kind are null.

    Args:
      images: True adds a column `images`: the bytes of a record's images, in order and each once.

    Returns:
      The number of records.

    Raises:
      UserError: as `read_dataset`, or a missing or damaged screenshot.
    """
    manifest, store = read_manifest(folder), ImageStore(folder)
    schema = arrow_schema(manifest, images)
    rows = (_row(record, schema, store if images else None) for record in iter_records(folder, manifest))
    with replacing(output) as temporary, pq.ParquetWriter(temporary, schema, compression="zstd") as writer:
        while group := list(itertools.islice(rows, _GROUP_ROWS_WITH_IMAGES if images else _GROUP_ROWS)):
            writer.write_table(pa.Table.from_pylist(group, schema))
    return manifest.records


def write_rows(output: Path, rows: Iterable[dict[str, Any]]) -> int:
    """Writes rows that have a column `images`, as structs of bytes; returns their number.

    The file's metadata tell Hugging Face `datasets` what the columns are, so that it decodes the images.
    """
    rows = iter(rows)
    first = list(itertools.islice(rows, _GROUP_ROWS_WITH_IMAGES))
    # Rows without images do not say what these are.
    fields = list(pa.Table.from_pylist(first).drop_columns("images").schema)
    features = {field.name: _feature(field.type) for field in fields}
    features["images"] = {"feature": {"_type": "Image"}, "_type": "List"}
    about = json.dumps({"info": {"features": features}})
    schema, count = pa.schema([*fields, _IMAGES], metadata={"huggingface": about}), 0
    with replacing(output) as temporary, pq.ParquetWriter(temporary, schema, compression="zstd") as writer:
        while group := first or list(itertools.islice(rows, _GROUP_ROWS_WITH_IMAGES)):
            writer.write_table(pa.Table.from_pylist(group, schema))
            count, first = count + len(group), []
    return count


def _feature(type_: pa.DataType) -> Any:
    """Describes a column of strings, structs and lists as `datasets` does."""
    if pa.types.is_struct(type_):
        return {field.name: _feature(field.type) for field in typing.cast(pa.StructType, type_)}
    if pa.types.is_list(type_):
        return {"feature": _feature(typing.cast(pa.ListType, type_).value_type), "_type": "List"}
    return {"dtype": "string", "_type": "Value"}


def arrow_schema(manifest: Manifest, images: bool) -> pa.Schema:
    """Makes the columns of a data set, with its provenance as the file's metadata."""
    fields = list(_struct([KINDS[manifest.kind]]))
    metadata = {"kind": manifest.kind, "provenance": orjson.dumps(manifest.provenance).decode()}
    return pa.schema([*fields, _IMAGES] if images else fields, metadata=metadata)


def _arrow_type(annotation: Any) -> pa.DataType:
    origin, args = typing.get_origin(annotation), typing.get_args(annotation)
    if annotation in _SCALARS:
        return _SCALARS[annotation]
    if origin is Annotated:
        return _arrow_type(args[0])
    if origin is Literal:
        return pa.string()
    if origin is tuple and len(set(args) - {...}) == 1:
        return pa.list_(_arrow_type(args[0]))
    if origin is dict:
        return pa.list_(pa.struct({"key": _arrow_type(args[0]), "value": _arrow_type(args[1])}))
    if origin in (Union, types.UnionType):
        args = [arg for arg in args if arg is not type(None)]
        return _arrow_type(args[0]) if len(args) == 1 else _struct(args)
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return _struct([annotation])
    raise TypeError(f"no Parquet column for {annotation}")


def _struct(models: typing.Sequence[type[BaseModel]]) -> pa.StructType:
    fields = {name: field.annotation for model in models for name, field in model.model_fields.items()}
    return pa.struct({name: _arrow_type(annotation) for name, annotation in fields.items()})


def _row(record: Record, schema: pa.Schema, store: ImageStore | None) -> dict[str, Any]:
    row = record.model_dump(mode="json")
    if store is not None:
        row["images"] = [{"bytes": store.get(name), "path": f"{name}.png"} for name in record_images(record)]
    return {field.name: _plain(row[field.name], field.type) for field in schema}


def _plain(value: Any, type_: pa.DataType) -> Any:
    """Converts dictionaries to lists of their items."""
    if value is None:
        return None
    if pa.types.is_struct(type_):
        struct = typing.cast(pa.StructType, type_)
        return {field.name: _plain(value.get(field.name), field.type) for field in struct}
    if pa.types.is_list(type_):
        items = value
        if isinstance(value, dict):
            items = [{"key": key, "value": item} for key, item in value.items()]
        return [_plain(item, typing.cast(pa.ListType, type_).value_type) for item in items]
    return value
