"""A repository on a model hub, read by ranged requests: its listing, small files, and headers.

URL layout of the Hugging Face hub: `/api/models/REPO/revision/REV?blobs=true` lists files with sizes,
`/REPO/resolve/REV/FILE` is a file (large ones redirect to storage that honours `Range`).
`HF_ENDPOINT` names another hub, `HF_TOKEN` is sent to it as a bearer token.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Self
from urllib.parse import quote

import httpx

from outrider.errors import ModelError

if TYPE_CHECKING:
    from types import TracebackType

_DEFAULT_ENDPOINT = "https://huggingface.co"
_PARTIAL = 206


class RemoteFiles:
    """A checkpoint in a repository at a revision. Nothing is written to disk.

    Args:
        repository: `org/name`.
        revision: commit, tag or branch.
        endpoint: hub to ask; None takes `HF_ENDPOINT`, else the public hub.
        timeout_s: seconds for connecting and for each read.
    """

    def __init__(
        self, repository: str, revision: str | None = None, *, endpoint: str | None = None, timeout_s: float = 30.0
    ) -> None:
        self._repository = repository
        self._revision = revision or "main"
        self._endpoint = (endpoint or os.environ.get("HF_ENDPOINT") or _DEFAULT_ENDPOINT).rstrip("/")
        token = os.environ.get("HF_TOKEN")
        self._client = httpx.Client(
            timeout=timeout_s,
            follow_redirects=True,
            # Compressed answers would make byte ranges meaningless.
            headers={"Accept-Encoding": "identity"} | ({"Authorization": f"Bearer {token}"} if token else {}),
        )
        self._sizes: dict[str, int | None] | None = None
        self.label = f"{repository}@{self._revision}"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._client.close()

    def names(self) -> frozenset[str]:
        """Files of the repository at the revision."""
        return frozenset(self._listing())

    def size(self, name: str) -> int | None:
        """Size as the hub lists it."""
        return self._listing().get(name)

    def read(self, name: str, start: int, length: int) -> bytes:
        """Ask for one range; a server that ignores it is read up to the range's end and then hung up on."""
        if length <= 0:
            return b""
        url = f"{self._endpoint}/{self._repository}/resolve/{quote(self._revision, safe='')}/{quote(name)}"
        try:
            with self._client.stream("GET", url, headers={"Range": f"bytes={start}-{start + length - 1}"}) as response:
                if response.status_code == httpx.codes.REQUESTED_RANGE_NOT_SATISFIABLE:
                    return b""
                response.raise_for_status()
                skip = 0 if response.status_code == _PARTIAL else start
                return _take(response, skip, length)
        except httpx.HTTPError as error:
            raise self._failure(f"cannot read {name}", error) from error

    def _listing(self) -> dict[str, int | None]:
        if self._sizes is None:
            url = f"{self._endpoint}/api/models/{self._repository}/revision/{quote(self._revision, safe='')}"
            try:
                response = self._client.get(url, params={"blobs": "true"})
                response.raise_for_status()
                siblings = response.json()["siblings"]
                self._sizes = {str(item["rfilename"]): item.get("size") for item in siblings}
            except httpx.HTTPError as error:
                raise self._failure("cannot list the repository", error) from error
            except (ValueError, KeyError, TypeError, AttributeError) as error:
                raise ModelError(
                    "the hub's listing has another form than expected",
                    evidence=f"{url}: {error}",
                    next_step="check HF_ENDPOINT",
                ) from error
        return self._sizes

    def _failure(self, what: str, error: httpx.HTTPError) -> ModelError:
        hint = "check the network and HF_ENDPOINT, or give local files"
        if isinstance(error, httpx.HTTPStatusError) and error.response.status_code in {401, 403, 404}:
            hint = "check repository and revision in the stack; a gated repository needs HF_TOKEN"
        return ModelError(f"{what} of {self.label}", evidence=str(error) or type(error).__name__, next_step=hint)


def _take(response: httpx.Response, skip: int, length: int) -> bytes:
    """`length` bytes of the body after the first `skip`; stops reading there."""
    parts = bytearray()
    for part in response.iter_raw(chunk_size=min(max(length, 1), 1 << 16)):
        if skip >= len(part):
            skip -= len(part)
            continue
        parts += part[skip:]
        skip = 0
        if len(parts) >= length:
            break
    return bytes(parts[:length])
