"""Room 3a: what the bytes of a trial mean. Write side and read side meet here and nowhere else."""

from tornasole.format.reader import TrialReader
from tornasole.format.records import Record, StepRecords
from tornasole.format.stop_sign import Stop, StopSign
from tornasole.format.writer import TrialWriter

__all__ = ["Record", "StepRecords", "Stop", "StopSign", "TrialReader", "TrialWriter"]
