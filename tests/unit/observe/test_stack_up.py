"""`make dashboards`: the password, the directories, and what Compose is asked to start."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest
from typer.testing import CliRunner

from outrider.cli import app
from outrider.errors import RuntimeStateError
from outrider.observe import stack_up


class Docker:
    """Notes what it is asked for; has the load image or not."""

    def __init__(self, *, image: bool) -> None:
        self.image, self.asked, self.env = image, [], {}

    def require_image(self, image: str, how: str) -> str:
        if not self.image:
            raise RuntimeStateError(f"the image {image} is not here", next_step=how)
        return "sha256:0"

    def compose(self, file: Path, *words: str, env: dict[str, str]) -> None:
        assert file.is_file()
        self.asked.append(words)
        self.env = env


def test_the_password_is_random_the_owners_alone_and_made_once(own_dirs: Path) -> None:
    path = stack_up.password_file()
    assert stack_up.make_password(path)
    first = path.read_text()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert len(first) >= 32
    assert not stack_up.make_password(path)
    assert path.read_text() == first
    other = own_dirs / "other"
    stack_up.make_password(other)
    assert other.read_text() != first


def test_a_password_that_others_can_read_is_refused(own_dirs: Path) -> None:
    path = stack_up.password_file()
    stack_up.make_password(path)
    path.chmod(0o644)
    with pytest.raises(RuntimeStateError, match="others can read"):
        stack_up.up("smollm2-cpu", Docker(image=True))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("image", "gpu", "profiles"),
    [
        (False, False, []),
        (True, False, ["--profile", "exporter"]),
        (True, True, ["--profile", "gpu", "--profile", "exporter"]),
    ],
)
def test_gpus_and_the_exporter_are_started_where_they_can_be(
    own_dirs: Path, image: bool, gpu: bool, profiles: list[str]
) -> None:
    docker = Docker(image=image)
    chosen = stack_up.up("smollm2-cpu", docker, gpu=gpu)  # type: ignore[arg-type]
    assert docker.asked == [(*profiles, "up", "--detach")]
    assert chosen == [word for word in profiles if not word.startswith("--")]
    targets = own_dirs / "state" / "targets"
    assert docker.env["OUTRIDER_TARGETS"] == str(targets)
    assert stat.S_IMODE(targets.stat().st_mode) == 0o755
    assert Path(docker.env["OUTRIDER_GRAFANA_PASSWORD_FILE"]).is_file()
    assert (own_dirs / "results").is_dir()


def test_down_stops_every_profile_and_keeps_volumes(own_dirs: Path) -> None:
    docker = Docker(image=False)
    stack_up.down(docker)  # type: ignore[arg-type]
    assert docker.asked == [("--profile", "gpu", "--profile", "exporter", "down")]


def test_an_installed_wheel_says_that_a_checkout_is_needed(
    own_dirs: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(stack_up, "FILE", tmp_path / "nothing.yaml")
    with pytest.raises(RuntimeStateError, match="is not here"):
        stack_up.down(Docker(image=False))  # type: ignore[arg-type]


def test_render_check_passes_on_what_is_committed() -> None:
    result = CliRunner().invoke(app, ["observe", "render", "--check"])
    assert result.exit_code == 0, result.output
    assert result.output == ""
