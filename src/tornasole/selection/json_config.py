"""A hook's configuration as a JSON file, as SageMaker writes it, made into finished objects."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tornasole.errors import SMDebugError, SMDebugValueError
from tornasole.selection.collection import Collection, canonical_name
from tornasole.selection.patterns import choose_from, compiled
from tornasole.selection.reduction_config import RAW_TENSOR, ReductionConfig
from tornasole.selection.save_config import (
    DEFAULT_SAVE_INTERVAL,
    FIELDS,
    SaveConfig,
    SaveConfigMode,
    checked_integer,
)
from tornasole.types import ModeKeys

CONFIG_FILE_PATH_ENV_STR = "SMDEBUG_CONFIG_FILE_PATH"
TORNASOLE_CONFIG_FILE_PATH_ENV_STR = "TORNASOLE_CONFIG_FILE_PATH"
DEFAULT_CONFIG_FILE_PATH = "/opt/ml/input/config/debughookconfig.json"
DEFAULT_OUT_DIR = "/opt/ml/output/tensors"

_TENSORBOARD_CONFIG_FILE_PATH_ENV_STR = "TENSORBOARD_CONFIG_FILE_PATH"
_DEFAULT_TENSORBOARD_CONFIG_FILE_PATH = "/opt/ml/input/config/tensorboardoutputconfig.json"
_DEFAULT_TENSORBOARD_DIR = "/opt/ml/output/tensorboard"
_SAGEMAKER_JOB_ENV_STR = "TRAINING_JOB_NAME"

_SAVE_KEYS = (*FIELDS, *(f"{mode.name.lower()}.{field}" for mode in ModeKeys for field in FIELDS))
_FORM_KEYS = ("reductions", "save_raw_tensor", "save_shape")
_HOOK_KEYS = (
    "dry_run",
    "save_all",
    "include_workers",
    "include_regex",
    "export_tensorboard",
    "tensorboard_dir",
    *_FORM_KEYS,
    *_SAVE_KEYS,
)
_COLLECTION_KEYS = ("include_regex", "save_histogram", *_FORM_KEYS, *_SAVE_KEYS)
_OUTPUT_KEYS = ("S3OutputPath", "S3Path", "LocalPath")
_TOP_KEYS = (*_OUTPUT_KEYS, "HookParameters", "CollectionConfigurations")
_ENTRY_KEYS = ("CollectionName", "CollectionParameters")

_Schedule = Mapping[ModeKeys, Mapping[str, Any]]


@dataclass(frozen=True)
class HookConfig:
    """The arguments of a hook, and the collections to configure on it.

    ``collections`` know nothing of a framework: the hook merges each into its own of that name.
    """

    out_dir: str
    include_collections: list[str]
    collections: list[Collection]
    save_config: SaveConfig
    reduction_config: ReductionConfig | None
    include_regex: list[str]
    save_all: bool
    include_workers: str
    export_tensorboard: bool
    tensorboard_dir: str | None
    dry_run: bool

    @classmethod
    def from_file(
        cls,
        json_file_path: str | os.PathLike[str] | None = None,
        *,
        default_save_interval: int = DEFAULT_SAVE_INTERVAL,
        environ: Mapping[str, str] = os.environ,
    ) -> HookConfig:
        """Read the file given, else the one an environment variable names, else SageMaker's.

        Raises:
            FileNotFoundError: There is no such file; the message says why it was looked for.
            SMDebugValueError: The file is not JSON, or asks for what does not exist.
        """
        path, reason = _config_path(json_file_path, environ)
        if not path.exists():
            raise FileNotFoundError(f"No hook configuration at {path} ({reason})")
        with _located(str(path)):
            return cls.from_json(
                path.read_bytes(),
                default_save_interval=default_save_interval,
                environ=environ,
            )

    @classmethod
    def from_json(
        cls,
        text: str | bytes,
        *,
        default_save_interval: int = DEFAULT_SAVE_INTERVAL,
        environ: Mapping[str, str] = os.environ,
    ) -> HookConfig:
        """Read JSON text."""
        return cls.from_dict(
            _parsed(text), default_save_interval=default_save_interval, environ=environ
        )

    @classmethod
    def from_dict(
        cls,
        config: Mapping[str, Any],
        *,
        default_save_interval: int = DEFAULT_SAVE_INTERVAL,
        environ: Mapping[str, str] = os.environ,
    ) -> HookConfig:
        """Read the parsed JSON.

        Args:
            config: As SageMaker writes it; flags and numbers may be strings, and lists
                may be strings with commas between the items.
            default_save_interval: The interval where neither hook nor collection gives one.
            environ: Where to learn that this is a SageMaker job, and its TensorBoard folder.
        """
        top = _checked_keys("The hook configuration", config, _TOP_KEYS)
        hook = _checked_keys("HookParameters", top.get("HookParameters"), _HOOK_KEYS)
        with _located("HookParameters"):
            schedule = _by_mode(
                {mode: {"save_interval": default_save_interval} for mode in ModeKeys}, hook
            )
            form = _form(hook, None)
            export_tensorboard, tensorboard_dir = _tensorboard(hook, environ)
            arguments: dict[str, Any] = {
                "save_config": _save_config(schedule),
                "reduction_config": form,
                "include_regex": _regexes(hook),
                "save_all": _flag(hook, "save_all", False),
                "include_workers": _workers(hook),
                "export_tensorboard": export_tensorboard,
                "tensorboard_dir": tensorboard_dir,
                "dry_run": _flag(hook, "dry_run", False),
            }
        entries = top.get("CollectionConfigurations", [])
        if not isinstance(entries, list):
            raise SMDebugValueError(f"CollectionConfigurations must be a list, not {entries!r}")
        collections = [_collection(entry, schedule, form) for entry in entries]
        return cls(
            out_dir=top.get("LocalPath") or DEFAULT_OUT_DIR,
            include_collections=list(dict.fromkeys(c.name for c in collections)),
            collections=collections,
            **arguments,
        )


def _config_path(
    argument: str | os.PathLike[str] | None, environ: Mapping[str, str]
) -> tuple[Path, str]:
    if argument is not None:
        return Path(argument), "given as argument"
    for variable in (TORNASOLE_CONFIG_FILE_PATH_ENV_STR, CONFIG_FILE_PATH_ENV_STR):
        if value := environ.get(variable):
            return Path(value), f"from the environment variable {variable}"
    return Path(DEFAULT_CONFIG_FILE_PATH), (
        f"the default path: no argument was given and {CONFIG_FILE_PATH_ENV_STR} is not set"
    )


@contextmanager
def _located(where: str) -> Iterator[None]:
    """Say in an error where in the configuration it is."""
    try:
        yield
    except SMDebugError as error:
        raise SMDebugValueError(f"{where}: {error}") from error


def _parsed(text: str | bytes) -> Any:
    try:
        return json.loads(text)
    except UnicodeDecodeError as error:
        raise SMDebugValueError(f"not text: {error}") from error
    except json.JSONDecodeError as error:
        raise SMDebugValueError(
            f"not valid JSON at line {error.lineno}, column {error.colno}: {error.msg}"
        ) from error


def _checked_keys(where: str, params: object, known: tuple[str, ...]) -> Mapping[str, Any]:
    """The dict without its nulls; a key that nobody knows is refused."""
    if params is None:
        return {}
    if not isinstance(params, Mapping):
        raise SMDebugValueError(f"{where} must be an object with keys, not {params!r}")
    for key in params:
        if key not in known:
            raise SMDebugValueError(f"{where} has no key {key!r}: {choose_from(key, known)}")
    return {key: value for key, value in params.items() if value is not None}


def _collection(
    entry: object, schedule: _Schedule, hook_form: ReductionConfig | None
) -> Collection:
    entry = _checked_keys("An entry of CollectionConfigurations", entry, _ENTRY_KEYS)
    name = entry.get("CollectionName")
    if not isinstance(name, str) or not name:
        raise SMDebugValueError(f"CollectionConfigurations: no CollectionName in {dict(entry)!r}")
    where = f"CollectionParameters of {name!r}"
    params = _checked_keys(where, entry.get("CollectionParameters"), _COLLECTION_KEYS)
    with _located(where):
        return Collection(
            canonical_name(name),
            include_regex=_regexes(params),
            reduction_config=_form(params, hook_form),
            save_config=(
                _save_config(_by_mode(schedule, params))
                if params.keys() & set(_SAVE_KEYS)
                else None
            ),
            save_histogram=_flag(params, "save_histogram", True),
        )


def _by_mode(below: _Schedule, params: Mapping[str, Any]) -> _Schedule:
    """The save fields of each mode: its prefixed keys over the unprefixed over those from below."""
    plain = {key: _save_field(key, params[key]) for key in FIELDS if key in params}
    schedule = {}
    for mode in ModeKeys:
        prefix = f"{mode.name.lower()}."
        own = {
            field: _save_field(prefix + field, params[prefix + field])
            for field in FIELDS
            if prefix + field in params
        }
        schedule[mode] = {**below[mode], **plain, **own}
    return schedule


def _save_field(key: str, value: Any) -> Any:
    field = key.rpartition(".")[2]
    if field == "save_steps":
        return [checked_integer(key, item) for item in _items(key, value)]
    if field == "when_nan":
        value = _items(key, value)
    with _located(key):
        return getattr(SaveConfigMode(**{field: value}), field)


def _save_config(schedule: _Schedule) -> SaveConfig:
    return SaveConfig({mode: SaveConfigMode(**fields) for mode, fields in schedule.items()})


def _form(params: Mapping[str, Any], below: ReductionConfig | None) -> ReductionConfig | None:
    """The form asked for; flags without reductions change those of the form from below."""
    if not params.keys() & set(_FORM_KEYS):
        return None
    fields = {} if "reductions" in params else (below or RAW_TENSOR).to_json_dict()
    for key in _FORM_KEYS:
        if key in params:
            fields[key] = params[key] if key == "reductions" else _flag(params, key, False)
    return ReductionConfig.from_dict(fields)


def _tensorboard(hook: Mapping[str, Any], environ: Mapping[str, str]) -> tuple[bool, str | None]:
    """Whether and where; on SageMaker a file of the platform decides, not the hook's parameters."""
    if _SAGEMAKER_JOB_ENV_STR not in environ:
        return _flag(hook, "export_tensorboard", False), hook.get("tensorboard_dir")
    variable, default = _TENSORBOARD_CONFIG_FILE_PATH_ENV_STR, _DEFAULT_TENSORBOARD_CONFIG_FILE_PATH
    path = Path(environ.get(variable) or default)
    if not path.exists():
        return False, None
    with _located(str(path)):
        output = _checked_keys("It", _parsed(path.read_bytes()), _OUTPUT_KEYS)
        return True, output.get("LocalPath") or _DEFAULT_TENSORBOARD_DIR


def _workers(hook: Mapping[str, Any]) -> str:
    workers = hook.get("include_workers", "one")
    if workers not in ("one", "all"):
        raise SMDebugValueError(
            f"include_workers cannot be {workers!r}: {choose_from(workers, ('one', 'all'))}"
        )
    return str(workers)


def _regexes(params: Mapping[str, Any]) -> list[str]:
    regexes = _items("include_regex", params.get("include_regex", []))
    compiled("include_regex", regexes)
    return regexes


def _items(key: str, value: object) -> list[Any]:
    """A JSON list, or a string with commas between the items."""
    if isinstance(value, str):
        return [item for item in map(str.strip, value.split(",")) if item]
    if isinstance(value, list):
        return value
    raise SMDebugValueError(
        f"{key} must be a list, or a string with commas between the items, not {value!r}"
    )


def _flag(params: Mapping[str, Any], key: str, default: bool) -> bool:
    try:
        return parse_bool(params.get(key), default)
    except SMDebugValueError as error:
        raise SMDebugValueError(f"{key}: {error}") from None


def parse_bool(arg: bool | str | None, default: bool) -> bool:
    """A flag as configurations spell it; ``None`` means the default."""
    if arg is None:
        return default
    if isinstance(arg, bool):
        return arg
    if isinstance(arg, str) and arg.strip().lower() in ("true", "false"):
        return arg.strip().lower() == "true"
    raise SMDebugValueError(f"must be true or false, not {arg!r}")


def parse_list_from_str(arg: str | list[str] | None, delimiter: str = ",") -> list[str]:
    """The items of a string, not stripped; a list stays as it is."""
    if not arg:
        return []
    return arg if isinstance(arg, list) else arg.split(delimiter)
