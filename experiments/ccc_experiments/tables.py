# SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
"""Tables of raw data: as the laboratory writes them, and as they are kept.

The laboratory writes CSV. What is kept is Parquet: columns with their types,
and in each file how its data came to be.
"""

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
from pyarrow import csv, parquet

TABLES = ("flows", "goodput", "queue")
# Key of the description in a file's own metadata.
ABOUT = b"ccc"

# Types that a table without rows does not show.
_TYPES = {
    "time_s": pa.float64(),
    "vm": pa.string(),
    "flow": pa.int32(),
    "bytes": pa.int64(),
    "segments": pa.int64(),
    "bytes_acked": pa.int64(),
    "cwnd_packets": pa.int64(),
    "ssthresh_packets": pa.int64(),
    "srtt_us": pa.int64(),
    "retrans": pa.int64(),
    "state": pa.string(),
    "backlog_packets": pa.int64(),
    "backlog_bytes": pa.int64(),
    "sent_packets": pa.int64(),
    "dropped_packets": pa.int64(),
}


def read(raw: Path, name: str) -> dict[str, np.ndarray]:
    """The columns of a run's table, wherever it is kept."""
    kept = raw / f"{name}.parquet"
    table = parquet.read_table(kept) if kept.exists() else _read_csv(raw / f"{name}.csv")
    return {column: table[column].to_numpy() for column in table.column_names}


def about(raw: Path, name: str = "flows") -> dict:
    """How a kept table came to be."""
    return json.loads(parquet.read_schema(raw / f"{name}.parquet").metadata[ABOUT])


def keep(raw: Path, description: dict) -> None:
    """Turns a run's tables into self-describing columns."""
    text = json.dumps(description, sort_keys=True)
    for name in TABLES:
        written = raw / f"{name}.csv"
        table = _read_csv(written).replace_schema_metadata({ABOUT: text})
        parquet.write_table(table, raw / f"{name}.parquet", compression="zstd")
        written.unlink()


def _read_csv(path: Path) -> pa.Table:
    return csv.read_csv(path, convert_options=csv.ConvertOptions(column_types=_TYPES))
