"""The controller's figures as plain data, for the state file and the metrics made from it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from outrider.vllm_ext.step_time import typical

if TYPE_CHECKING:
    from outrider.vllm_ext.band import Band
    from outrider.vllm_ext.controller import Controller
    from outrider.vllm_ext.pace import Pace


def snapshot(controller: Controller | None, pace: Pace, *, fault: str | None, other_steps: int) -> dict[str, Any]:
    """What is exported; bands that were never used are left out.

    Args:
        controller: None if it could not be made.
        pace: what the controller took so far, and how many steps it takes in.
        fault: why the static schedule is in force; None while the controller works.
        other_steps: steps that did not count.
    """
    data: dict[str, Any] = {
        "fault": fault,
        "overhead_s": pace.total_s,
        "stride": pace.stride,
        "steps": {
            "clean": controller.clean_steps if controller else 0,
            "followed": pace.followed,
            "other": other_steps,
        },
        "tokens_per_step": {},
        "bands": [],
    }
    if controller is not None:
        tokens = {k: controller.acceptance.tokens(k) for k in controller.settings.ks}
        data["tokens_per_step"] = {str(k): value for k, value in tokens.items() if value is not None}
        data["bands"] = [_band(controller, band) for band in controller.bands if band.steps]
    return data


def _band(controller: Controller, band: Band) -> dict[str, Any]:
    ks = controller.settings.ks
    utilities = {k: controller.utility(band, k) for k in ks}
    return {
        "batch": band.label,
        "k": band.k,
        "testing": None if band.test is None else band.test.k,
        "steps": band.steps,
        "switches": band.switches,
        "tests": band.tests,
        "utility": {str(k): value for k, value in utilities.items() if value is not None},
        "cost": {str(k): value for k, value in band.cost.items()},
        "step_s": {str(k): typical(times.samples()) for k, times in band.times.items() if len(times)},
    }
