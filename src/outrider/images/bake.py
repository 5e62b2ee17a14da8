"""Runs inside an image build: applies the patch ledger, writes the bill of materials.

    python -m outrider.images.bake --patches /opt/outrider/patches --sbom /opt/outrider/sbom.json

Needs pydantic and PyYAML, which every engine brings along. A patched place that has drifted fails the build.
"""

from __future__ import annotations

import argparse
import json
import sys
from importlib import metadata
from pathlib import Path
from typing import Any

from outrider.errors import OutriderError
from outrider.patches.ledger import PatchError, load_ledger
from outrider.patches.state import State, apply, check

_DPKG = Path("/var/lib/dpkg/status")


def apply_ledger(directory: Path, python: str) -> list[str]:
    """Apply every patch that fits this interpreter's packages; gives the names of those in force.

    Raises:
        PatchError: a patched place is not what the ledger knows.
    """
    found = [s for s in check(load_ledger(directory), [python]) if s.entry.kind == "patch"]
    drifted = [s for s in found if s.state in {State.DRIFTED, State.OTHER_VERSION}]
    if drifted:
        raise PatchError(
            "the engine of this image is not the one that the patch ledger knows",
            evidence="\n".join(f"{s.entry.id}: {s.evidence}" for s in drifted),
            next_step="pin the engine version that the stack names, or renew the entry in patches/ledger.yaml",
        )
    for status in found:
        apply(status, directory)
    return [s.entry.id for s in found if s.state in {State.TO_APPLY, State.APPLIED}]


def python_components() -> list[dict[str, str]]:
    """Installed Python distributions as CycloneDX components, by name."""
    found = {
        (dist.metadata["Name"], dist.version): {
            "type": "library",
            "name": dist.metadata["Name"],
            "version": dist.version,
            "purl": f"pkg:pypi/{dist.metadata['Name'].lower().replace('_', '-')}@{dist.version}",
        }
        for dist in metadata.distributions()
        if dist.metadata["Name"]
    }
    return [found[key] for key in sorted(found)]


def debian_components(status: str) -> list[dict[str, str]]:
    """Installed Debian packages as CycloneDX components, from the text of dpkg's status file."""
    out = []
    for block in status.split("\n\n"):
        fields = dict(line.split(": ", 1) for line in block.splitlines() if ": " in line and not line.startswith(" "))
        if fields.get("Status", "").endswith(" installed"):
            name, version = fields["Package"], fields["Version"]
            purl = f"pkg:deb/debian/{name}@{version}?arch={fields.get('Architecture', 'all')}"
            out.append({"type": "library", "name": name, "version": version, "purl": purl})
    return sorted(out, key=lambda c: c["name"])


def bill_of_materials(components: list[dict[str, str]], patches: list[str]) -> dict[str, Any]:
    """A CycloneDX 1.6 document; without a clock or a serial number, so that equal images have equal bills."""
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {"properties": [{"name": "outrider:patch", "value": name} for name in patches]},
        "components": components,
    }


def main() -> None:
    """Bake."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--patches", type=Path)
    parser.add_argument("--expect", help="comma-separated patches that must be in force, as the image's label says")
    parser.add_argument("--sbom", type=Path, required=True)
    asked = parser.parse_args()
    patches = apply_ledger(asked.patches, sys.executable) if asked.patches else []
    expected = [name for name in (asked.expect or "").split(",") if name]
    if asked.expect is not None and sorted(patches) != sorted(expected):
        raise PatchError(
            "the patches in this image are not those of its label",
            evidence=f"in force: {', '.join(patches) or 'none'}; label: {', '.join(expected) or 'none'}",
            next_step="build through `outrider image build`, which derives the label from the ledger",
        )
    components = python_components()
    if _DPKG.is_file():
        components += debian_components(_DPKG.read_text(encoding="utf-8", errors="replace"))
    asked.sbom.parent.mkdir(parents=True, exist_ok=True)
    asked.sbom.write_text(json.dumps(bill_of_materials(components, patches), indent=1) + "\n", encoding="utf-8")
    sys.stdout.write(f"patches in force: {', '.join(patches) or 'none'}; {len(components)} components\n")


if __name__ == "__main__":
    try:
        main()
    except OutriderError as problem:
        sys.exit(str(problem))
