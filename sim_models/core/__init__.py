"""Cycles of a whole program on a core, by command, without simulating it."""

from sim_models.core.queues import Prediction, predict

__all__ = ["Prediction", "predict"]
