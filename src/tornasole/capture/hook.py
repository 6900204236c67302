"""The hook as its user knows it: configuration, steps, modes, saving by hand, a clean end."""

from __future__ import annotations

import atexit
import concurrent.futures.thread  # noqa: F401 - pyarrow needs it, and at exit it loads no more
import logging
import math
import os
import platform
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime, timezone
from types import TracebackType
from typing import Any, ClassVar, TypeVar

import numpy as np

from tornasole._version import __version__
from tornasole.capture.adapter import Tensors, Unsavable
from tornasole.capture.arrays import Arrays
from tornasole.capture.buffers import BufferPool, WhenFull
from tornasole.capture.guard import Guard, NotOurs, OnError
from tornasole.capture.recorder import Recorder, asked_for
from tornasole.capture.worker import Worker, this_process
from tornasole.errors import (
    SMDebugError,
    SMDebugRuntimeError,
    SMDebugTypeError,
    SMDebugValueError,
    TrainingStopped,
)
from tornasole.format import StepRecords, Stop, StopSign, TrialWriter
from tornasole.selection import (
    Collection,
    CollectionKeys,
    ReductionConfig,
    SaveConfig,
    SaveConfigMode,
)
from tornasole.selection.builtin import Builtin, builtin_for
from tornasole.selection.collection import canonical_name
from tornasole.selection.json_config import HookConfig
from tornasole.selection.plan import Form, Plan
from tornasole.selection.reduction_config import RAW_TENSOR
from tornasole.selection.save_config import checked_integer
from tornasole.types import ModeKeys, Role

log = logging.getLogger("tornasole")

H = TypeVar("H", bound="Hook")

_QUEUE_BYTES = 1 << 30
_LOOK_SECONDS = 0.05
_END_OF_TIME = 253_402_300_800  # the year 10000, in seconds since the epoch


class Hook:
    """Saves what a training job computes, at the steps and in the form asked for.

    Used as it is, it serves a loop of your own: call ``begin_step`` at the start of each iteration
    and ``save_scalar`` or ``save_tensor`` within. The hooks of the frameworks derive from it.

    Args:
        out_dir: Where the trial goes: a new or empty folder, or an address with a scheme.
        export_tensorboard: Not available yet; asking for it is said in the log.
        tensorboard_dir: Likewise.
        dry_run: Do everything but write.
        reduction_config: The form in which tensors are saved, unless their collection has its own;
            default: raw.
        save_config: When tensors are saved, unless their collection says otherwise.
        include_regex: Save tensors whose names contain one of these patterns (collection
            ``default``).
        include_collections: Save these collections, beside those that the framework always saves.
        save_all: Save every tensor (collection ``all``).
        include_workers: ``"one"`` or ``"all"`` of a job's processes save.
        on_error: What a fault inside the hook does: ``"warn"`` logs it, and training goes on
            without the hook; ``"raise"`` raises it into training.
        when_full: What happens when raw values come faster than they can be written: training waits
            (``"wait"``), or they are dropped and their rows say so (``"drop"``).
        queue_bytes: How many bytes of raw values may wait to be written.
    """

    framework: ClassVar[str] = "numpy"
    collection_class: ClassVar[type[Collection]] = Collection
    save_steps_override: ClassVar[bool] = False
    """Whether ``save_steps`` are instead of ``save_interval``, not beside it."""

    def __init__(
        self,
        out_dir: str | os.PathLike[str] | None = None,
        export_tensorboard: bool = False,
        tensorboard_dir: str | None = None,
        dry_run: bool = False,
        reduction_config: ReductionConfig | None = None,
        save_config: SaveConfig | SaveConfigMode | Mapping[Any, Any] | None = None,
        include_regex: str | Sequence[str] | None = None,
        include_collections: str | Sequence[Any] | None = None,
        save_all: bool = False,
        include_workers: str = "one",
        *,
        on_error: OnError = "warn",
        when_full: WhenFull = "wait",
        queue_bytes: int = _QUEUE_BYTES,
    ) -> None:
        builtin = self._builtin()
        self.out_dir = _checked_out_dir(out_dir)
        self.dry_run = _flag("dry_run", dry_run)
        self.save_all = _flag("save_all", save_all)
        self.include_workers = _one_of("include_workers", include_workers, ("one", "all"))
        _one_of("when_full", when_full, ("wait", "drop"))
        if reduction_config is not None and not isinstance(reduction_config, ReductionConfig):
            raise SMDebugTypeError(
                f"reduction_config must be a ReductionConfig, not {reduction_config!r}."
            )
        self.reduction_config = reduction_config or RAW_TENSOR
        default = SaveConfigMode(save_interval=builtin.save_interval)
        self.save_config = SaveConfig.parse(default if save_config is None else save_config)
        if _flag("export_tensorboard", export_tensorboard) or tensorboard_dir is not None:
            log.warning(
                "TensorBoard export is not available in this version; everything else is saved."
            )

        self._collections: dict[str, Collection] = self._first_collections()
        self._included = set(builtin.included) | {
            canonical_name(name) for name in _flat("include_collections", include_collections)
        }
        self.include_regex = _flat("include_regex", include_regex)
        if self.include_regex:
            self._collections[CollectionKeys.DEFAULT].include(self.include_regex)
            self._included.add(CollectionKeys.DEFAULT)
        if self.save_all:
            self._included.add(CollectionKeys.ALL)

        self._worker = self._find_worker()
        self._writes = not self.dry_run and (self.include_workers == "all" or self._worker.is_chief)
        self._guard = Guard(on_error, self._detach, self._what_remains)
        self._writer = TrialWriter.open(self.out_dir, self._worker.name) if self._writes else None
        plan = Plan(
            self._collections,
            self._included,
            self.save_config,
            self.reduction_config,
            default,
            self.save_steps_override,
        )
        hurry = self._writer.hurry if self._writer else lambda: None
        self._recorder = Recorder(
            plan,
            (*self._tensors(), Arrays()),
            BufferPool(checked_integer("queue_bytes", queue_bytes, least=1), when_full, hurry),
            self._submit,
            keeps=self._writes or self.dry_run,
        )
        self._plan = plan
        self._thread: threading.Thread | None = None
        self._observers: list[tuple[Callable[[StepRecords], None], Callable[[], None]]] = []
        self._sign = None if self.dry_run else StopSign.of(self.out_dir)
        self._next_look = 0.0
        self._stop: Stop | None = None
        self._stopped: str | None = None
        self._closed = self._prepared = False
        self._closing = threading.Lock()
        self._connect()
        if self._writer is not None and (self._worker.is_chief or self._worker.joins):
            try:
                self._writer.claim(self._about(), join=self._worker.joins)
                if self._worker.joins:
                    self._put_collections()  # which claims the worker's own folder
            except OSError as error:
                raise SMDebugRuntimeError(
                    f"out_dir {self.out_dir} cannot be written to: {error}"
                ) from error
        atexit.register(self._close_at_exit)
        _remember(self)

    @classmethod
    def create_from_json_file(
        cls: type[H], json_file_path: str | os.PathLike[str] | None = None, **options: Any
    ) -> H:
        """A hook by a configuration file.

        Args:
            json_file_path: The file; by default the one that ``SMDEBUG_CONFIG_FILE_PATH`` names, or
                else ``/opt/ml/input/config/debughookconfig.json``.
            options: Keyword arguments that the file does not cover, such as ``on_error``.
        """
        interval = builtin_for(cls.framework).save_interval
        config = HookConfig.from_file(json_file_path, default_save_interval=interval)
        hook = cls(
            out_dir=config.out_dir,
            export_tensorboard=config.export_tensorboard,
            tensorboard_dir=config.tensorboard_dir,
            dry_run=config.dry_run,
            reduction_config=config.reduction_config,
            save_config=config.save_config,
            include_regex=config.include_regex,
            include_collections=config.include_collections,
            save_all=config.save_all,
            include_workers=config.include_workers,
            **options,
        )
        for collection in config.collections:
            hook.get_collection(collection.name).merge(collection)
        return hook

    # -- what a framework's hook overrides ---------------------------------------------------------

    def _builtin(self) -> Builtin:
        """What the hook starts with."""
        return builtin_for(self.framework)

    def _first_collections(self) -> dict[str, Collection]:
        """The collections that exist before the user makes any."""
        return dict(self._builtin().collections(self.collection_class))

    def _tensors(self) -> tuple[Tensors, ...]:
        """How to look into the framework's tensors."""
        return ()

    def _find_worker(self) -> Worker:
        return Worker.from_environment()

    def _versions(self) -> dict[str, str]:
        """Versions worth knowing when the trial is read years later."""
        return {}

    def _connect(self) -> None:
        """Makes the adapter, while the hook is being made."""

    def _detach(self) -> None:
        """Lets go of the model: nothing of ours remains on it."""

    def _prepare(self) -> None:
        """Called once before the first step: a collection that cannot be saved is left out."""
        for name, problem in self._plan.problems().items():
            self._guard.tell(problem)
            self._included.discard(name)
        self._put_collections()

    # -- steps and modes ---------------------------------------------------------------------------

    @property
    def step(self) -> int:
        """The current global step; -1 before the first."""
        return self._recorder.step

    @property
    def mode(self) -> ModeKeys:
        """The mode of the steps that begin from now on."""
        return self._recorder.mode

    @property
    def mode_steps(self) -> dict[ModeKeys, int]:
        """The latest step of each mode that has had one."""
        return dict(self._recorder.mode_steps)

    @property
    def last_saved_step(self) -> int | None:
        """The latest global step at which something was saved."""
        return self._recorder.last_saved_step

    @property
    def worker(self) -> str:
        """The name under which this process saves."""
        return self._worker.name

    @property
    def chief_worker(self) -> str:
        """The name under which the job's first process saves."""
        return self.worker if self._worker.is_chief else Worker().name

    @property
    def save_all_workers(self) -> bool:
        """Whether every process saves."""
        return self.include_workers == "all"

    @property
    def include_collections(self) -> list[str]:
        """The collections that are saved."""
        return sorted(self._included)

    def set_mode(self, mode: ModeKeys) -> None:
        """Says what the steps from now on are for."""
        if mode not in ModeKeys.__members__.values():
            known = ", ".join(f"modes.{each.name}" for each in ModeKeys)
            raise SMDebugValueError(f"set_mode takes one of {known}, not {mode!r}.")
        self._recorder.mode = mode

    def begin_step(self) -> None:
        """Begins the next step; the one before is over. Frameworks' hooks do this by themselves."""
        if not self._closed:
            self._guard.run(self._begin_step)

    @property
    def _stands_aside(self) -> bool:
        """Whether nothing is saved any more: closed, failed, or a copy in a forked process."""
        return self._closed or self._guard.fault is not None

    def _begin_step(self, trains: bool = True) -> None:
        if not self._prepared:
            self._prepared = True
            self._prepare()
        self._recorder.begin_step(trains)
        self._obey_stop()

    # -- watching and stopping ---------------------------------------------------------------------

    def observe(
        self, observer: Callable[[StepRecords], None], at_end: Callable[[], None] = lambda: None
    ) -> None:
        """Has a function called with the records of each saved step, on the training thread.

        It is called when the step is over, before its records are written, and only where this
        process saves.

        Args:
            at_end: Called when the hook is closed, after the last step.
        """
        self._observers.append((observer, at_end))

    def stop_training(self, reason: str) -> None:
        """Has ``TrainingStopped`` raised where the next step would begin, in all of the workers.

        May be called from any thread.
        """
        self._stop = Stop(reason)

    def _obey_stop(self) -> None:
        alone, wish = self._worker.count == 1, self._stop
        if wish is None or not alone:
            wish = self._sign_seen(alone) or wish
        if wish is None:
            return
        if not alone and self._sign is not None and wish.at_step is None:
            # A worker that has seen the step stops there, and none can be further than that: in
            # each step, workers wait for one another.
            at_step = self.step + 1 if self._worker.is_chief else None
            try:
                self._sign.put(Stop(wish.reason, at_step))
                return
            except (OSError, SMDebugError) as error:
                log.error("The other workers cannot be told to stop: %s", error)
        if wish.at_step is not None and self.step < wish.at_step:
            return
        self._recorder.take_back_step()
        self._stopped = wish.reason
        self._close(None)
        raise NotOurs(TrainingStopped(wish.reason))

    def _sign_seen(self, alone: bool) -> Stop | None:
        """Somebody else's wish; one worker alone need not look for it at every step."""
        now = time.monotonic()
        if self._sign is None or (alone and now < self._next_look):
            return None
        self._next_look = now + _LOOK_SECONDS
        try:
            return self._sign.look()
        except (OSError, SMDebugError) as error:
            self._recorder.note("a wish to stop", f"it cannot be read ({error})")
            return None

    # -- collections -------------------------------------------------------------------------------

    def get_collection(self, name: str, create: bool = True) -> Any:
        """The collection of that name; one that does not exist yet is made.

        Raises:
            SMDebugError: It does not exist, and ``create`` is false.
        """
        if not isinstance(name, str):
            raise SMDebugTypeError(
                f"The name of a collection is a string, not {type(name).__name__}."
            )
        name = canonical_name(name)
        if name not in self._collections:
            if not create:
                raise SMDebugError(
                    f"There is no collection {name!r}; there are "
                    f"{', '.join(sorted(self._collections))}."
                )
            self._collections[name] = self.collection_class(name)
        return self._collections[name]

    def get_collections(self) -> dict[str, Collection]:
        """Every collection by its name."""
        return self._collections

    def add_collection(self, collection: Collection) -> None:
        """Adds a collection in place of the one of its name; a built-in one keeps its roles."""
        if not isinstance(collection, Collection):
            raise SMDebugTypeError(
                f"add_collection takes a Collection, not {type(collection).__name__}."
            )
        name = canonical_name(collection.name)
        if name in self._collections:
            collection.merge(Collection(name, roles=self._collections[name].roles))
        self._collections[name] = collection

    # -- saving by hand ----------------------------------------------------------------------------

    def save_scalar(
        self, name: str, value: Any, sm_metric: bool = False, timestamp: float | None = None
    ) -> None:
        """Saves one number as ``scalar/<name>`` at the current step, due or not.

        Args:
            name: Its name.
            value: A number, or a tensor with one element.
            sm_metric: Put it into the collection ``sm_metrics`` too.
            timestamp: When it was measured, in seconds since the epoch; default: now.

        Raises:
            SMDebugTypeError: The value is not one number.
        """
        if not isinstance(name, str):
            raise SMDebugTypeError(f"The name of a scalar is a string, not {type(name).__name__}.")
        if timestamp is not None and not 0 <= timestamp < _END_OF_TIME:  # NaN too
            raise SMDebugValueError(
                f"timestamp must be seconds since the epoch, not {timestamp!r}."
            )
        collections = ["default", "sm_metrics"] if sm_metric else ["default"]
        number = self._one_number(name, value)
        form = asked_for(self._and_all(collections), True, frozenset())
        self._save(f"scalar/{name}", Role.SCALAR, number, form, timestamp)

    def save_tensor(
        self,
        tensor_name: str,
        tensor_value: Any,
        collections_to_write: str | Sequence[str] = "default",
    ) -> None:
        """Saves a tensor at the current step, whether or not the step is due.

        It is saved raw, or in the form of a collection's own ``reduction_config``. A collection
        that does not exist is made. Saving the same name again within a step replaces the value.
        What cannot be saved is noted in the log.
        """
        if not isinstance(tensor_name, str):
            raise SMDebugTypeError(
                f"The name of a tensor is a string, not {type(tensor_name).__name__}."
            )
        names = [
            canonical_name(name) for name in _flat("collections_to_write", collections_to_write)
        ] or [CollectionKeys.DEFAULT]
        configs = [self.get_collection(name).reduction_config or RAW_TENSOR for name in names]
        form = asked_for(
            self._and_all(names),
            any(config.save_raw_tensor for config in configs),
            frozenset().union(*(config.statistics for config in configs)),
        )
        self._save(tensor_name, Role.CUSTOM, tensor_value, form)

    def _and_all(self, collections: list[str]) -> list[str]:
        """Everything belongs to ``all``, where that is saved."""
        every = CollectionKeys.ALL
        return [*collections, every] if every in self._included else collections

    def _save(
        self, name: str, role: Role, value: Any, form: Form, when: float | None = None
    ) -> None:
        if self._closed:
            self._recorder.note(
                name, "the hook is closed, or belongs to the process that this one is a copy of"
            )
        else:
            self._guard.run(self._recorder.save, name, role, value, form, when)

    def _one_number(self, name: str, value: Any) -> Any:
        kind = next(kind for kind in (*self._tensors(), Arrays()) if kind.admits(value))
        try:
            plain = kind.plain(value)
        except Unsavable as reason:
            raise SMDebugTypeError(f"Scalar {name!r} is not a number: {reason}.") from None
        dtype, shape, _ = kind.describe(plain)
        if dtype == "string" or math.prod(shape) != 1:
            raise SMDebugTypeError(
                f"Scalar {name!r} must be one number, not {dtype} of shape {shape}; "
                "save_tensor takes any."
            )
        return plain

    # -- the end -----------------------------------------------------------------------------------

    def close(self) -> None:
        """Writes what is left and lets go of the model. Done at exit, too; twice is no error."""
        self._close(None)

    def _close_at_exit(self) -> None:
        # What ended the program, if an error did; in an interactive session it may be an old one.
        self._close(None if hasattr(sys, "ps1") else getattr(sys, "last_value", None))

    def __enter__(self: H) -> H:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._close(error)

    def _close(self, error: BaseException | None) -> None:
        with self._closing:
            if self._closed:
                return
            self._closed = True
        atexit.unregister(self._close_at_exit)
        _forget(self)
        if self._recorder.step < 0 and self._writes:
            log.warning(
                "The hook for %s saw no step: it was in no training. Nothing but what was "
                "saved by hand is in its trial.",
                self.out_dir,
            )
        try:
            self._guard.run(self._recorder.finish)
            for _, at_end in self._observers:
                self._guard.run(at_end)
        finally:
            with self._guard.lock:
                self._detach()
            self._finish_writing(error)

    def _finish_writing(self, error: BaseException | None) -> None:
        if self._writer is None:
            return
        self._writer.finish()
        if self._thread is None:
            self._guard.run_apart(self._writer.run)
        else:
            self._thread.join()
        fault = self._guard.fault
        reason = None if _is_clean(error) else f"{type(error).__name__}: {error}"
        if fault is not None:
            reason = f"saving failed: {type(fault).__name__}: {fault}"
        self._guard.fault = None  # the last word is worth a try even after a fault
        self._guard.run(self._put_end, reason)
        self._guard.meet()

    def _put_end(self, reason: str | None) -> None:
        assert self._writer is not None
        self._put_collections()
        recorder = self._recorder
        self._writer.put_end(
            {
                "clean": reason is None,
                "reason": reason,
                **({} if self._stopped is None else {"stopped": self._stopped}),
                "last_step": recorder.step,
                "mode_steps": {mode.name: step for mode, step in recorder.mode_steps.items()},
                "time": _now(),
                "lost": {"raw_values_dropped": recorder.dropped} if recorder.dropped else {},
            }
        )

    def _what_remains(self) -> str:
        last = -1 if self._writer is None else self._writer.last_step
        extent = f"steps up to {last}, and nothing later" if last >= 0 else "no step"
        return f"{self.out_dir} holds {extent}."

    # -- between the recorder and the writer -------------------------------------------------------

    def _submit(self, step: StepRecords) -> None:
        for observer, _ in self._observers:
            observer(step)
        if self._writer is None:
            if self.dry_run:
                _describe(step)
            step.release()
            return
        # What the last step leaves is written by close itself: at exit no thread can be started any
        # more.
        if self._thread is None and not self._closed:
            self._thread = threading.Thread(
                target=self._guard.run_apart,
                args=(self._writer.run,),
                name="tornasole-writer",
                daemon=True,
            )
            self._thread.start()
        self._writer.submit(step)

    def _flush(self) -> None:
        """Ends the current step, and returns when all steps up to it can be read."""
        self._recorder.finish()
        if self._writer is not None:
            self._writer.flush()

    def _put_collections(self) -> None:
        if self._writer is None:
            return
        members = self._recorder.members
        for name in members:
            for member in members[name]:
                self.get_collection(name).note_tensor_name(member)
        content = {}
        for name, collection in self._collections.items():
            content[name] = collection.to_json_dict()
            own = collection.asked_names | members.get(name, set())
            content[name]["tensor_names"] = sorted(own)
            content[name]["save_config"] = self._plan.save_config_of(collection).to_json_dict()
            content[name]["reduction_config"] = self._plan.reduction_config_of(
                collection
            ).to_json_dict()
        count = self._worker.count if self.include_workers == "all" else 1
        self._writer.put_collections(
            {"collections": content, "_meta": {"num_workers": count, "process": this_process()}}
        )

    def _about(self) -> dict[str, Any]:
        return {
            "created": _now(),
            "workers": self._worker.count if self.include_workers == "all" else 1,
            "framework": self.framework,
            "versions": {
                "tornasole": __version__,
                "python": platform.python_version(),
                "numpy": np.__version__,
                **self._versions(),
            },
        }

    def _abandon(self) -> None:
        """In a forked child: the trial is the parent's: this copy must neither write nor wait."""
        self._closed = True
        self._writer = None
        self._thread = None
        self._guard.fault = SMDebugRuntimeError("this process was forked from the one that saves")
        self._detach()

    # A hook pickles to nothing, so that a model that holds its hook can be saved and copied.

    def __getstate__(self) -> dict[str, Any]:
        return {}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Makes a hook that can be called like any other, and saves nothing."""
        current = get_hook()
        type(self).__init__(self, "", dry_run=True)
        self.close()
        if current is not None:
            set_hook(current)

    def __repr__(self) -> str:
        kind = type(self).__name__
        return f"<{kind} out_dir={self.out_dir!r} step={self.step} mode={self.mode.name}>"


# -- the process's current hook --------------------------------------------------------------------

_open_hooks: weakref.WeakSet[Hook] = weakref.WeakSet()
_current: Hook | None = None
_watches_forks = False


def get_hook() -> Hook | None:
    """The hook made last in this process, or set since; none after it was closed."""
    return _current


def hook_of(
    kind: type[H], json_config_path: str | os.PathLike[str] | None, create: bool
) -> H | None:
    """The current hook if it is of that kind, or one by a configuration file.

    Args:
        kind: A framework's hook.
        json_config_path: The file; default: as in ``create_from_json_file``.
        create: Whether to make one if there is none. There is still none without such a file, or
            with ``USE_SMDEBUG=0`` in the environment.
    """
    if isinstance(_current, kind):
        return _current
    if not create or os.environ.get("USE_SMDEBUG", "1").lower() in ("0", "false", "no", "off"):
        return None
    try:
        return kind.create_from_json_file(json_config_path)
    except FileNotFoundError:
        return None


def set_hook(custom_hook: Hook) -> None:
    """Makes the hook the current one."""
    if not isinstance(custom_hook, Hook):
        raise SMDebugTypeError(f"set_hook takes a hook, not {type(custom_hook).__name__}.")
    global _current  # noqa: PLW0603
    _current = custom_hook


def del_hook() -> None:
    """Forgets the current hook; it goes on saving until it is closed."""
    global _current  # noqa: PLW0603
    _current = None


def _remember(hook: Hook) -> None:
    global _watches_forks  # noqa: PLW0603
    set_hook(hook)
    _open_hooks.add(hook)
    if not _watches_forks and hasattr(os, "register_at_fork"):
        _watches_forks = True
        os.register_at_fork(after_in_child=_abandon_all)


def _abandon_all() -> None:
    for hook in list(_open_hooks):
        hook._abandon()


def _forget(hook: Hook) -> None:
    _open_hooks.discard(hook)
    if _current is hook:
        del_hook()


# -- arguments -------------------------------------------------------------------------------------


def _checked_out_dir(out_dir: object) -> str:
    if out_dir is None:
        raise SMDebugRuntimeError("A hook needs out_dir, a new or empty folder for its trial.")
    if not isinstance(out_dir, (str, os.PathLike)):
        raise SMDebugTypeError(f"out_dir must be a string or a path, not {type(out_dir).__name__}.")
    return os.path.expanduser(os.fspath(out_dir))


def _flag(field: str, value: object) -> bool:
    if not isinstance(value, bool):
        raise SMDebugTypeError(f"{field} must be True or False, not {value!r}.")
    return value


def _one_of(field: str, value: object, allowed: tuple[str, ...]) -> str:
    if value not in allowed:
        raise SMDebugValueError(f"{field} must be one of {allowed}, not {value!r}.")
    return str(value)


def _flat(field: str, value: object) -> list[str]:
    """A string, or nested lists of strings, as one list."""
    if value is None:
        return []
    if isinstance(value, str):
        return [value]
    if not isinstance(value, Iterable):
        raise SMDebugTypeError(f"{field} must be a string or a list of strings, not {value!r}.")
    return [item for each in value for item in _flat(field, each)]


def _describe(step: StepRecords) -> None:
    """Says in the log what a dry run would have saved."""
    log.info(
        "Dry run: step %d (%s step %d) would save %d tensors: %s.",
        step.step,
        step.mode.name,
        step.mode_step,
        len(step.records),
        ", ".join(record.name for record in step.records),
    )


def _is_clean(error: BaseException | None) -> bool:
    """Whether a program that ends with this did what it was meant to."""
    return error is None or (isinstance(error, SystemExit) and not error.code)


def _now() -> str:
    return datetime.now(timezone.utc).isoformat()
