"""`outrider provision` with real ansible-runner on small playbooks over a local connection."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import psutil
import pytest
import yaml

SECRET = "correct-horse-battery"
# The command line with another tree of playbooks.
_MAIN = (
    "import sys; from pathlib import Path; from outrider.provision import session; "
    "tree = Path(sys.argv.pop(1)); session.tree = lambda: tree; from outrider.cli import main; main()"
)


class Site:
    """A tree of playbooks, an inventory of two local nodes, and the command line over them."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.inventory = directory / "inventory.yml"
        self.env = os.environ | {
            "OUTRIDER_RESULTS": str(directory / "results"),
            "OUTRIDER_STATE": str(directory / "state"),
            "COLUMNS": "200",
            "MY_TOKEN": SECRET,
            "ANSIBLE_BECOME_PASSWORD": SECRET,
        }
        self.nodes("a", "b")

    def nodes(self, *names: str, **variables: Any) -> None:
        """Make the inventory."""
        local = {"ansible_connection": "local", "ansible_python_interpreter": sys.executable, **variables}
        hosts = dict.fromkeys(names, local)
        self.inventory.write_text(yaml.safe_dump({"serving_nodes": {"hosts": hosts}}))

    def role(self, name: str, *tasks: dict[str, Any]) -> None:
        """Add a role to site.yml, in the order of the calls."""
        path = self.directory / "tree" / "roles" / name / "tasks" / "main.yml"
        path.parent.mkdir(parents=True)
        path.write_text(yaml.safe_dump(list(tasks)))
        site = self.directory / "tree" / "site.yml"
        play = {"hosts": "serving_nodes", "gather_facts": False, "roles": []}
        if site.is_file():
            (play,) = yaml.safe_load(site.read_text())
        play["roles"].append(name)
        site.write_text(yaml.safe_dump([play]))

    def argv(self, *words: str) -> list[str]:
        """The command line's argv."""
        tree = str(self.directory / "tree")
        return [sys.executable, "-c", _MAIN, tree, "provision", "-i", str(self.inventory), *words]

    def __call__(self, *words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(self.argv(*words), capture_output=True, text=True, check=False, timeout=120, env=self.env)

    def run_directory(self) -> Path:
        """The newest run's."""
        return max((self.directory / "results" / "provision").iterdir())

    def summary(self) -> dict[str, Any]:
        """Its run.json."""
        return dict(json.loads((self.run_directory() / "run.json").read_text()))


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path)


def shell(command: str, name: str = "Run something", **more: Any) -> dict[str, Any]:
    return {"name": name, "ansible.builtin.shell": command, **more}


def test_all_nodes_come_through_and_the_next_run_knows_how_long_it_takes(site: Site) -> None:
    site.role("driver", shell("true"))
    first = site()
    assert first.returncode == 0, first.stdout + first.stderr
    assert "a: ok, 1 tasks, 1 changed" in first.stdout
    assert ", about " not in first.stdout
    summary = site.summary()
    assert (summary["status"], set(summary["phases"]), summary["partial"]) == ("done", {"driver"}, False)
    assert ", about 0:0" in site().stdout


def test_one_node_fails_and_the_other_finishes(site: Site) -> None:
    site.role(
        "preflight",
        {"name": "Require GPUs", "ansible.builtin.assert": {"that": "inventory_hostname == 'a'", "fail_msg": "no GPU"}},
    )
    site.role("driver", shell("true"))
    done = site()
    assert done.returncode == 1
    assert "b failed at 'preflight: Require GPUs'" in done.stdout
    assert "wrong: no GPU" in done.stdout
    assert "a: ok, 2 tasks" in done.stdout
    nodes = site.summary()["nodes"]
    assert (nodes["a"]["verdict"], nodes["b"]["verdict"]) == ("ok", "failed")
    assert nodes["b"]["failure"]["role"] == "preflight"


def test_a_failure_that_the_playbook_rescues_is_none(site: Site) -> None:
    site.role("driver", {"name": "Try", "block": [shell("false")], "rescue": [shell("true", "Go back")]})
    assert site().returncode == 0


def test_a_node_that_ssh_does_not_reach_is_called_that(site: Site) -> None:
    site.nodes("c", ansible_connection="ssh", ansible_host="127.0.0.1", ansible_port=1)
    site.role("driver", shell("true"))
    done = site()
    assert done.returncode == 1
    assert "c not reachable over SSH at 'driver: Run something'" in done.stdout
    assert "onnection refused" in done.stdout


def test_secrets_stay_out_of_arguments_artifacts_and_output(site: Site, tmp_path: Path) -> None:
    password = tmp_path / "vault-password"
    password.write_text(SECRET)
    password.chmod(0o600)
    site.nodes("a", key=SECRET)
    site.role(
        "service",
        shell("tr '\\0' '\\n' < /proc/$PPID/cmdline; env", "Look around"),
        shell("echo {{ key }}; false", "Handle a key", no_log=True),
    )
    done = site("--vault-password-file", str(password), "--become-password-file", str(password))
    assert done.returncode == 1
    assert "no_log" in done.stdout
    assert SECRET not in done.stdout + done.stderr
    tree = site.run_directory()
    assert tree.stat().st_mode & 0o077 == 0
    files = [path for path in tree.rglob("*") if path.is_file()]
    assert any(path.name == "command" for path in files)
    assert [path for path in files if SECRET in path.read_text(errors="replace")] == []


def test_a_password_file_that_others_can_read_is_refused(site: Site, tmp_path: Path) -> None:
    password = tmp_path / "password"
    password.write_text(SECRET)
    password.chmod(0o644)
    site.role("driver", shell("true"))
    done = site("--vault-password-file", str(password))
    assert done.returncode == 1
    assert "chmod 600" in done.stderr


@pytest.mark.parametrize(
    ("words", "said"),
    [(("--set", "oops"), "NAME=VALUE"), (("nonsense",), "nonsense"), (("--inventory", "/none"), "does not exist")],
)
def test_wrong_usage_is_exit_2(site: Site, words: tuple[str, ...], said: str) -> None:
    site.role("driver", shell("true"))
    done = site(*words)
    assert done.returncode == 2
    assert said in done.stderr


def test_a_broken_playbook_is_said_in_its_own_words(site: Site) -> None:
    site.role("driver", {"name": "Misspelt", "ansible.builtin.shel": "true"})
    done = site()
    assert done.returncode == 1
    assert "ansible.builtin.shel" in done.stderr
    assert site.summary()["status"] == "failed"


def test_variables_and_the_stacks_expectations_reach_the_roles(site: Site) -> None:
    wanted = "outrider_weights_gb == 601 or outrider_weights_gb > 601"
    site.role(
        "preflight",
        {"name": "Look", "ansible.builtin.assert": {"that": [wanted, "preflight_gpus_min == 8", "branch == 590"]}},
    )
    assert site("--stack", "kimi-k2.5-rtx6000x8", "--set", "branch=590").returncode == 0


def test_check_mode_changes_nothing(site: Site, tmp_path: Path) -> None:
    site.role("driver", {"name": "Write", "ansible.builtin.copy": {"dest": str(tmp_path / "made"), "content": "x"}})
    done = site("--check")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "a would be changed by\n  driver: Write\n" in done.stdout
    assert not (tmp_path / "made").exists()
    shown = done.stdout.split("line by line: ")[1].strip()
    assert "+x" in Path(shown).read_text()


def test_node_reports_become_findings_a_page_and_an_exit_code(site: Site) -> None:
    report = {"schema": 1, "modules": ["nouveau"], "novelty": 1}
    write = {"content": json.dumps(report), "dest": "{{ outrider_run_dir }}/nodes/{{ inventory_hostname }}.json"}
    site.role("node_report", {"name": "Write", "ansible.builtin.copy": write})
    done = site("--json", "-")
    assert done.returncode == 1
    outcome = json.loads(done.stdout)
    assert {one["code"] for one in outcome["findings"]["a"]} == {"NODE026", "NODE031"}
    assert "NODE026" in (site.run_directory() / "report.html").read_text()


@pytest.fixture
def waiting(site: Site, tmp_path: Path) -> tuple[Site, Path]:
    """A run whose first task waits until a file is there; the path of a pipe that tells when it has begun."""
    pipe = tmp_path / "begun"
    os.mkfifo(pipe)
    site.nodes("a")
    site.role("driver", shell(f"echo $$ > {pipe}; exec sleep 600"), shell(f"touch {tmp_path}/second"))
    return site, pipe


def told(pipe: Path, process: subprocess.Popen[str]) -> str:
    """What comes out of a pipe; a process that ends without a word is a failure, not a wait."""
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    ended = os.pidfd_open(process.pid)
    try:
        ready, _, _ = select.select([reader, ended], [], [], 60)
        assert reader in ready, "".join(process.communicate(timeout=10))
        return os.read(reader, 100).decode()
    finally:
        os.close(reader)
        os.close(ended)


def test_ctrl_c_leaves_nothing_running_and_says_how_to_go_on(waiting: tuple[Site, Path], tmp_path: Path) -> None:
    site, pipe = waiting
    process = subprocess.Popen(site.argv(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=site.env)
    task = psutil.Process(int(told(pipe, process)))
    family = psutil.Process(process.pid).children(recursive=True)
    assert task in family
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 130, out + err
    assert "run the same command again" in out
    assert "Traceback" not in out + err
    assert [one for one in family if one.is_running() and one.status() != psutil.STATUS_ZOMBIE] == []
    assert site.summary()["status"] == "interrupted"
    assert not (tmp_path / "second").exists()
    # It had the time to end by itself: what a task was doing is not torn off.
    (printed,) = tmp_path.rglob("artifacts/ansible/stdout")
    assert "User interrupted execution" in printed.read_text()


def test_two_runs_over_one_inventory_do_not_mix(waiting: tuple[Site, Path]) -> None:
    site, pipe = waiting
    process = subprocess.Popen(site.argv(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=site.env)
    told(pipe, process)
    second = site()
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=60)
    assert second.returncode == 1
    assert "another run over" in second.stderr
    assert f"pid {process.pid}" in second.stderr
    assert process.returncode == 143
