"""Room 1: a training step becomes records. Frameworks plug in here; nothing here imports one."""

from tornasole.capture.hook import Hook, del_hook, get_hook, set_hook

__all__ = ["Hook", "del_hook", "get_hook", "set_hook"]
