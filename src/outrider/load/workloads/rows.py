"""One row of each prompt-file format, checked, and what it means as a prompt.

Formats, with the sources of their field names:

- `outrider`: our own; `messages` (OpenAI chat form) or `prompt`, optionally `id`, `category`, `max_tokens`,
  `turns`.
- `custom`: `prompt` and optionally `output_tokens`, as `vllm bench serve --dataset-name custom` reads it.
- `sharegpt`: `conversations` of `from`/`value`, as in ShareGPT_V3_unfiltered_cleaned_split.json.
- `spec-bench`: `question_id`, `category`, `turns` (github.com/hemingkx/Spec-Bench, question.jsonl; MT-Bench too).
- `speed-bench`: `question_id`, `category`, and `messages` (prepared) or `turns` (as published by
  huggingface.co/datasets/nvidia/SPEED-Bench, whose restricted rows hold a placeholder instead of a text).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, model_validator

from outrider.load.workloads.prompt import Message, Prompt, user

if TYPE_CHECKING:
    from collections.abc import Mapping

Text = Annotated[str, StringConstraints(min_length=1, pattern=r"\S")]
PLACEHOLDER = "SHOULD BE FETCHED FROM THE SOURCE"


class MessageRow(BaseModel):
    """One chat message with plain text content."""

    model_config = ConfigDict(extra="forbid")
    role: Literal["system", "user", "assistant"]
    content: Text

    def message(self) -> Message:
        """As it goes into a request."""
        return {"role": self.role, "content": self.content}


class OutriderRow(BaseModel):
    """`outrider`: unknown fields are refused, since a misspelt `max_tokens` would go unnoticed."""

    model_config = ConfigDict(extra="forbid")
    id: Text | None = None
    category: Text = "custom"
    prompt: Text | None = None
    messages: list[MessageRow] | None = None
    max_tokens: int | None = Field(default=None, ge=1)
    turns: list[Text] = []

    @model_validator(mode="after")
    def _one_source(self) -> OutriderRow:
        if (self.prompt is None) == (self.messages is None):
            raise ValueError("expected exactly one of `messages` and `prompt`")
        if self.messages is not None and (not self.messages or self.messages[-1].role != "user"):
            raise ValueError("`messages` must end with a message of role user")
        return self

    def as_prompt(self, fallback_id: str) -> Prompt:
        """The prompt of this row."""
        messages = tuple(m.message() for m in self.messages or ()) or (user(self.prompt or ""),)
        return Prompt(self.id or fallback_id, self.category, messages, self.max_tokens, tuple(self.turns))


class CustomRow(BaseModel):
    """`custom`: a prompt and, optionally, the length of its answer."""

    prompt: Text
    output_tokens: int | None = Field(default=None, ge=1)

    def as_prompt(self, fallback_id: str) -> Prompt:
        """The prompt of this row."""
        return Prompt(fallback_id, "custom", (user(self.prompt),), self.output_tokens)


class ShareGptTurn(BaseModel):
    """One turn of a shared conversation."""

    sender: str = Field(alias="from")
    value: str


class ShareGptRow(BaseModel):
    """`sharegpt`: the first human turn is the prompt, later human turns are `turns`."""

    conversations: list[ShareGptTurn]

    def as_prompt(self, fallback_id: str) -> Prompt | None:
        """The prompt of this row; None where the conversation does not begin with a human (or is empty).

        The data set holds tens of thousands of such fragments; every reader of it leaves them out.
        """
        turns = [turn for turn in self.conversations if turn.value.strip()]
        system: list[Message] = []
        if turns and turns[0].sender == "system":
            system = [{"role": "system", "content": turns.pop(0).value}]
        if not turns or turns[0].sender not in {"human", "user"}:
            return None
        asked = [turn.value for turn in turns if turn.sender in {"human", "user"}]
        return Prompt(fallback_id, "sharegpt", (*system, user(asked[0])), None, tuple(asked[1:]))


class SpecBenchRow(BaseModel):
    """`spec-bench`: the first turn is the prompt."""

    question_id: int | str
    category: Text
    turns: list[Text] = Field(min_length=1)

    def as_prompt(self, _fallback_id: str) -> Prompt:
        """The prompt of this row."""
        return Prompt(
            f"spec-bench/{self.question_id}",
            self.category,
            (user(self.turns[0]),),
            None,
            tuple(self.turns[1:]),
        )


class SpeedBenchRow(BaseModel):
    """`speed-bench`: `messages` of a prepared file, or the `turns` of the published one."""

    question_id: int | str
    category: Text
    sub_category: str | None = None
    messages: list[MessageRow] | None = None
    turns: list[Text] | None = None

    @model_validator(mode="after")
    def _usable(self) -> SpeedBenchRow:
        texts = self._texts()
        if not texts:
            raise ValueError("expected user messages in `messages`, or `turns`")
        if any(PLACEHOLDER in text for text in texts):
            raise ValueError("the text is a placeholder: run the data set's own prepare.py, which fetches the sources")
        return self

    def _texts(self) -> list[str]:
        if self.messages:
            return [m.content for m in self.messages if m.role == "user"]
        return list(self.turns or ())

    def as_prompt(self, _fallback_id: str) -> Prompt:
        """The prompt of this row."""
        first, *rest = self._texts()
        system = tuple(m.message() for m in self.messages or () if m.role == "system")
        return Prompt(f"speed-bench/{self.question_id}", self.category, (*system, user(first)), None, tuple(rest))


Row = OutriderRow | CustomRow | ShareGptRow | SpecBenchRow | SpeedBenchRow
FORMATS: dict[str, type[Row]] = {
    "outrider": OutriderRow,
    "custom": CustomRow,
    "sharegpt": ShareGptRow,
    "spec-bench": SpecBenchRow,
    "speed-bench": SpeedBenchRow,
}


def detect_format(row: Mapping[str, Any]) -> str | None:
    """Name the format by the fields of one row; None if it looks like none of them."""
    if "conversations" in row:
        return "sharegpt"
    if "question_id" in row and "category" in row:
        return "speed-bench" if "messages" in row or "sub_category" in row else "spec-bench"
    if "output_tokens" in row:
        return "custom"
    return "outrider" if "messages" in row or "prompt" in row else None
