"""Makes tests/data/golden_v1 anew: only to change format version 1 before its first release.

    PYTHONPATH=src .venv/bin/python tests/data/make_golden_v1.py

After the release its files must be readable for good: a change of meaning is then a new version of
the format, with golden files of its own beside these.
"""

import json
import shutil
from pathlib import Path

import numpy as np

from tornasole.format import Record, StepRecords, TrialWriter
from tornasole.format.segment import COUNTS, STATISTICS
from tornasole.store import open_store
from tornasole.types import ModeKeys

FOLDER = Path(__file__).parent / "golden_v1"
TIME = 1_750_000_000.5

RAW = {
    "bool": np.array([True, False, True]),
    "uint8": np.array([0, 255], "u1"),
    "int8": np.array([-128, 127], "i1"),
    "uint16": np.array([65535], "<u2"),
    "int16": np.array([-32768], "<i2"),
    "uint32": np.array([2**32 - 1], "<u4"),
    "int32": np.array([-(2**31)], "<i4"),
    "uint64": np.array([2**64 - 1], "<u8"),
    "int64": np.array([-(2**63), 2**63 - 1], "<i8"),
    "float16": np.array([[1.5, -2.25]], "<f2"),
    "float32": np.array([[1.0, 2.0, 3.0], [np.nan, np.inf, -np.inf]], "<f4"),
    "float64": np.array([0.1, 5e-324], "<f8"),
    "complex64": np.array([1 + 2j], "<c8"),
    "complex128": np.array([[1 - 2j, 0.5j]], "<c16"),
}
# NumPy has no such types: the bytes of 1.0, and of another value.
BYTES = {
    "bfloat16": bytes.fromhex("803f80bf"),
    "float8_e4m3fn": bytes.fromhex("387f"),
    "float8_e5m2": bytes.fromhex("3c7c"),
    "float8_e4m3fnuz": bytes.fromhex("4080"),
    "float8_e5m2fnuz": bytes.fromhex("4080"),
    "float8_e8m0fnu": bytes.fromhex("7fff"),
}


def raw(name: str, dtype: str, shape: tuple[int, ...], data: bytes, **more: object) -> Record:
    return Record(
        name, "weight", ("weights", "all"), dtype, shape, TIME, raw=memoryview(data), **more
    )


def steps() -> list[StepRecords]:
    every = {name: float(i) for i, name in enumerate(STATISTICS)}
    every |= {name: 100 + i for i, name in enumerate(COUNTS)}
    first = [
        *(raw(f"raw/{name}", name, array.shape, array.tobytes()) for name, array in RAW.items()),
        *(raw(f"raw/{name}", name, (2,), data) for name, data in BYTES.items()),
        raw("raw/string", "string", (2,), json.dumps(["grün", ""]).encode()),
        raw("raw/empty", "float32", (0, 3), b""),
        raw("raw/scalar", "float32", (), np.array(7, "<f4").tobytes(), value=7.0),
    ]
    second = [
        Record("loss", "loss", ("losses",), "float32", (), TIME + 1, value=float("nan")),
        Record("grad:0 / ü", "gradient", (), "float16", (4, 5), TIME + 1, statistics=every),
        Record("some", "output", (), "float32", (2,), TIME + 1, statistics={"max": float("inf")}),
    ]
    third = [
        Record("loss", "loss", ("losses",), "float32", (), TIME + 2, value=0.5),
        Record("lost", "output", (), "float32", (9,), TIME + 2, lost="The queue was full."),
        raw("raw/float32", "float32", (2,), np.array([1, 2], "<f4").tobytes()),
        raw("raw/uint8", "uint8", (3,), b"\1\2\3"),
    ]
    return [
        StepRecords(0, ModeKeys.TRAIN, 0, first),
        StepRecords(1, ModeKeys.EVAL, 0, second),
        StepRecords(2, ModeKeys.TRAIN, 1, third),
    ]


def main() -> None:
    shutil.rmtree(FOLDER, ignore_errors=True)
    writer = TrialWriter(open_store(FOLDER), "worker_0")
    writer.claim(
        {
            "created": "2025-06-15T15:06:40+00:00",
            "workers": 1,
            "framework": "none",
            "versions": {"tornasole": "0.1.0"},
        }
    )
    collections = {"weights": {"tensor_names": []}, "losses": {"tensor_names": ["loss"]}}
    writer.put_collections({"collections": collections})
    first, second, third = steps()
    writer._write([first])
    writer._write([second])
    writer._merge(0, 2)
    writer._write([third])
    writer.put_end(
        {
            "clean": True,
            "reason": None,
            "last_step": 2,
            "mode_steps": {"GLOBAL": 2, "TRAIN": 1, "EVAL": 0},
            "time": "2025-06-15T15:06:43+00:00",
            "lost": {},
        }
    )


if __name__ == "__main__":
    main()
