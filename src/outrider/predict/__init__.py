"""Step time of a served model from physics and a few fitted factors: predicts what was not measured."""

from outrider.predict.errors import PredictError
from outrider.predict.fit import Fit, fit
from outrider.predict.model import step_parts, step_s
from outrider.predict.observations import Observation, read_observations
from outrider.predict.places import Places
from outrider.predict.traffic import Machine, machine_of

__all__ = [
    "Fit",
    "Machine",
    "Observation",
    "Places",
    "PredictError",
    "fit",
    "machine_of",
    "read_observations",
    "step_parts",
    "step_s",
]
