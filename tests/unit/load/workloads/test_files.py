"""Prompt files of users: every format is read, every mistake is located."""

from __future__ import annotations

import json

import polars as pl
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from outrider.errors import LoadError
from outrider.load.workloads import load_prompts_file

SHAREGPT = [
    {
        "id": "a",
        "conversations": [
            {"from": "human", "value": "Hi"},
            {"from": "gpt", "value": "Hello"},
            {"from": "human", "value": "More"},
        ],
    },
    {"id": "b", "conversations": [{"from": "gpt", "value": "cut off"}]},
    {"id": "c", "conversations": []},
    {"id": "d", "conversations": [{"from": "system", "value": "Be brief"}, {"from": "user", "value": "Why?"}]},
]


def lines(path, *rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def by_id(workload):
    return {p.id: p for p in workload.prompts}


def test_own_format_keeps_every_field(tmp_path):
    file = lines(
        tmp_path / "mine.jsonl",
        {"id": "one", "category": "x", "prompt": "Say hi", "max_tokens": 5, "turns": ["again"]},
        {"messages": [{"role": "system", "content": "s"}, {"role": "user", "content": "u"}]},
    )
    workload = load_prompts_file(file)
    one, two = by_id(workload)["one"], by_id(workload)["mine/000002"]
    assert (one.category, one.max_tokens, one.turns) == ("x", 5, ("again",))
    assert one.messages == ({"role": "user", "content": "Say hi"},)
    assert [m["role"] for m in two.messages] == ["system", "user"]
    assert workload.name == "mine"


def test_custom_format_reads_the_answer_length(tmp_path):
    file = lines(tmp_path / "c.jsonl", {"prompt": "Capital of Peru?", "output_tokens": 12})
    assert load_prompts_file(file).prompts[0].max_tokens == 12


@pytest.mark.parametrize("as_array", [True, False])
def test_sharegpt_takes_the_first_human_turn_and_counts_what_it_leaves_out(tmp_path, as_array):
    file = tmp_path / "s.json"
    file.write_text(json.dumps(SHAREGPT, indent=1)) if as_array else lines(file, *SHAREGPT)
    workload = load_prompts_file(file)
    prompts = by_id(workload)
    assert len(workload) == 2
    assert prompts["s/000001"].messages == ({"role": "user", "content": "Hi"},)
    assert prompts["s/000001"].turns == ("More",)
    assert [m["role"] for m in prompts["s/000004"].messages] == ["system", "user"]
    assert "2 rows that do not begin with a user's turn are left out" in workload.description


def test_spec_bench_keeps_category_and_later_turns(tmp_path):
    file = lines(
        tmp_path / "q.jsonl",
        {"question_id": 81, "category": "writing", "turns": ["First", "Second"], "reference": None},
    )
    prompt = load_prompts_file(file).prompts[0]
    assert (prompt.id, prompt.category, prompt.turns) == ("spec-bench/81", "writing", ("Second",))


@pytest.mark.parametrize(
    "row",
    [
        {
            "question_id": "ab",
            "category": "qa",
            "messages": [{"role": "user", "content": "First"}, {"role": "user", "content": "Second"}],
        },
        {
            "question_id": "ab",
            "category": "qa",
            "sub_category": "x",
            "turns": ["First", "Second"],
            "source": "s",
            "multiturn": True,
        },
    ],
)
def test_speed_bench_reads_prepared_and_published_rows(tmp_path, row):
    prompt = load_prompts_file(lines(tmp_path / "q.jsonl", row)).prompts[0]
    assert prompt.id == "speed-bench/ab"
    assert prompt.messages == ({"role": "user", "content": "First"},)
    assert prompt.turns == ("Second",)


def test_speed_bench_placeholders_are_refused_and_not_sent(tmp_path):
    text = "FULL BENCHMARK DATA SHOULD BE FETCHED FROM THE SOURCE USING SPECDEC_BENCH"
    file = lines(tmp_path / "q.jsonl", {"question_id": "ab", "category": "qa", "sub_category": "x", "turns": [text]})
    with pytest.raises(LoadError, match=r"prepare\.py"):
        load_prompts_file(file)


def test_speed_bench_parquet_is_read_as_published(tmp_path):
    file = tmp_path / "qualitative.parquet"
    pl.DataFrame(
        {
            "question_id": ["a", "b"],
            "category": ["qa", "math"],
            "sub_category": ["", ""],
            "turns": [["One"], ["Two", "Three"]],
        }
    ).write_parquet(file)
    prompts = by_id(load_prompts_file(file))
    assert prompts["speed-bench/b"].turns == ("Three",)


@pytest.mark.parametrize(
    ("second_line", "message"),
    [
        (
            '{"prompt": "x", "max_tokens": 0}',
            r"max_tokens: Input should be greater than or equal to 1\n  seen: .*m\.jsonl:2: 0",
        ),
        (
            '{"prompt": "x", "max_token": 5}',
            r"max_token: Extra inputs.*\n  seen: .*m\.jsonl:2.*\n  next: expected fields: .*max_tokens",
        ),
        ('{"prompt": "  "}', r"prompt: String should match.*\n  seen: .*m\.jsonl:2"),
        ('{"prompt": "x", "messages": []}', r"exactly one of `messages` and `prompt`\n  seen: .*m\.jsonl:2"),
        ('{"category": "x"}', r"exactly one of `messages` and `prompt`"),
        ('{"messages": [{"role": "assistant", "content": "x"}]}', r"must end with a message of role user"),
        (
            '{"messages": [{"role": "tool", "content": "x"}]}',
            r"messages\.0\.role: Input should be 'system', 'user' or 'assistant'",
        ),
        ('["x"]', r"the row: Input should be .*\n  seen: .*m\.jsonl:2"),
        ('{"prompt": "x"', r"not JSON.*\n  seen: .*m\.jsonl:2, column 15"),
        ('{"id": "first", "prompt": "x"}', r"id 'first' occurs twice\n  seen: .*m\.jsonl:2"),
    ],
)
def test_a_mistake_is_reported_with_line_field_and_expectation(tmp_path, second_line, message):
    file = tmp_path / "m.jsonl"
    file.write_text(f'{{"id": "first", "prompt": "fine"}}\n{second_line}\n')
    with pytest.raises(LoadError, match=message):
        load_prompts_file(file)


def test_a_mistake_in_an_array_is_reported_with_its_position(tmp_path):
    file = tmp_path / "s.json"
    file.write_text(json.dumps([*SHAREGPT, {"conversations": [{"from": "human"}]}]))
    with pytest.raises(LoadError, match=r"conversations\.0\.value: Field required\n  seen: .*s\.json, item 5"):
        load_prompts_file(file)


def test_broken_json_inside_an_array_is_reported_with_its_line(tmp_path):
    file = tmp_path / "s.json"
    file.write_text('[\n{"prompt": "a"},\n{"prompt": }\n]')
    with pytest.raises(LoadError, match=r"s\.json:3, column 12"):
        load_prompts_file(file)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is empty"),
        (b"\n\n", "is empty"),
        (b"[]", "is empty"),
        (b'{"text": "x"}\n', r"not recognised\n  seen: .*f\.jsonl:1: fields text"),
        (b'"x"\n', r"not recognised\n  seen: .*f\.jsonl:1: a str"),
        (b'{"prompt": "a"}\n{"prompt": "\xff"}\n', r"not UTF-8\n  seen: .*f\.jsonl:2"),
        (b"PAR1 and then nothing", "Parquet file cannot be read"),
    ],
)
def test_a_file_that_is_no_prompt_file_is_refused(tmp_path, content, message):
    file = tmp_path / "f.jsonl"
    file.write_bytes(content)
    with pytest.raises(LoadError, match=message):
        load_prompts_file(file)


def test_an_absent_file_is_named(tmp_path):
    with pytest.raises(LoadError, match=r"No such file.*\n  seen: .*nowhere\.jsonl"):
        load_prompts_file(tmp_path / "nowhere.jsonl")


def test_an_unknown_format_lists_the_known_ones(tmp_path):
    file = lines(tmp_path / "f.jsonl", {"prompt": "x"})
    with pytest.raises(LoadError, match=r"no prompt format 'alpaca'.*\n  next: .*sharegpt"):
        load_prompts_file(file, format="alpaca")


def test_a_wrong_format_is_an_error_and_not_an_empty_workload(tmp_path):
    file = lines(tmp_path / "f.jsonl", {"prompt": "x"})
    with pytest.raises(LoadError, match="conversations: Field required"):
        load_prompts_file(file, format="sharegpt")


def test_a_file_of_fragments_only_is_refused(tmp_path):
    file = lines(tmp_path / "f.jsonl", *SHAREGPT[1:3])
    with pytest.raises(LoadError, match="none that can be sent"):
        load_prompts_file(file)


def test_a_byte_order_mark_does_no_harm(tmp_path):
    file = tmp_path / "f.jsonl"
    file.write_bytes(b'\xef\xbb\xbf{"prompt": "x"}\r\n')
    assert load_prompts_file(file).prompts[0].messages[0]["content"] == "x"


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(texts=st.lists(st.text(min_size=1).filter(lambda t: t.strip()), min_size=1, max_size=8), seed=st.integers(0, 5))
def test_any_text_survives_the_file(tmp_path, texts, seed):
    """Line separators such as U+2028 may stand inside a JSON string and must not split a row."""
    file = tmp_path / "any.jsonl"
    file.write_text(
        "".join(json.dumps({"prompt": t}, ensure_ascii=False) + "\n" for t in texts), encoding="utf-8", newline=""
    )
    workload = load_prompts_file(file, seed=seed)
    read = sorted(p.messages[0]["content"] for p in workload.prompts)
    assert read == sorted(texts)
