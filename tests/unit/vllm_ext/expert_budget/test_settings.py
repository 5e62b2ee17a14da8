"""Settings of the expert budget: what is refused, and how large B is at each step."""

from __future__ import annotations

import pytest

from outrider.predict.experts import distinct_experts
from outrider.vllm_ext.expert_budget.settings import VARIABLE, Settings, SettingsError, expected_union, read_settings


def test_without_the_variable_there_is_no_budget() -> None:
    assert read_settings({}) is None


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("{", "no JSON"),
        ("64", "must be an object"),
        ("{}", "one of experts and share"),
        ('{"experts": 64, "share": 0.5}', "one of experts and share"),
        ('{"experts": 0}', "whole number"),
        ('{"experts": true}', "whole number"),
        ('{"experts": 6.5}', "whole number"),
        ('{"share": 0}', "above 0"),
        ('{"share": "half"}', "above 0"),
        ('{"experts": 64, "mode": "skip"}', "reroute, drop"),
        ('{"experts": 64, "report_every": -1}', "report_every"),
        ('{"experts": 64, "report_evry": 1}', "only these fields"),
    ],
)
def test_settings_that_cannot_be_used_say_why(text: str, says: str) -> None:
    with pytest.raises(SettingsError, match=says) as caught:
        read_settings({VARIABLE: text})
    assert VARIABLE in str(caught.value)


def test_a_fixed_budget_is_the_same_at_every_size_and_never_above_all() -> None:
    assert [Settings(experts=64).budget(tokens, 384, 8) for tokens in (1, 16, 512)] == [64, 64, 64]
    assert Settings(experts=999).budget(4, 384, 8) == 384


def test_a_fixed_budget_below_top_k_is_refused() -> None:
    with pytest.raises(SettingsError, match="below top_k 8"):
        Settings(experts=7).budget(4, 384, 8)


def test_a_share_follows_the_expected_union_and_never_falls_below_top_k() -> None:
    half = Settings(share=0.5)
    assert half.budget(1, 384, 8) == 8, "one token reads top_k whatever the share"
    assert half.budget(16, 384, 8) == 55, "half of 109.9"
    assert Settings(share=1.0).budget(10**6, 384, 8) == 384


@pytest.mark.parametrize("tokens", [1, 4, 32, 500])
def test_the_expected_union_is_the_one_that_predict_uses(tokens: int) -> None:
    assert expected_union(tokens, 384, 8) == pytest.approx(float(distinct_experts([tokens], 384, 8)[0]))
