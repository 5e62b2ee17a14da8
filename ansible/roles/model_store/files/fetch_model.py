#!/usr/bin/env python3
"""Brings one checkpoint into the model store: resumable, by revision, verified. Standard library only.

    python3 fetch_model.py ORG/MODEL --to DIR --source hub --revision COMMIT [--hub https://...] [--include '*.json']...
    python3 fetch_model.py ORG/MODEL --to DIR --source url --from https://files/model/  # has outrider-manifest.json
    python3 fetch_model.py ORG/MODEL --to DIR --source directory --from /mnt/usb/model

Every file is compared with the SHA-256 that the source states: the hub's for large files (and git's own checksum for
small ones), the manifest's otherwise. A directory without a manifest states none: then size and the copy's equality
with what was read are all that can be known. A file that was cut off lies beside its place as NAME.partial and goes
on from there. What is complete is listed in DIR/outrider-manifest.json, which `outrider` reads too; when that names
the same source, nothing is done. Prints {"changed": ..., "files": ..., "bytes": ...}; exit code 1 with a message on
standard error.
"""

import argparse
import fnmatch
import hashlib
import http.client
import json
import os
import shutil
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path, PurePosixPath

MANIFEST = "outrider-manifest.json"
CHUNK = 1 << 20
TRIES = 5
TIMEOUT_S = 60


class Fault(Exception):  # noqa: N818 - what is raised is a sentence, not a bug
    """What a person has to know and do."""


def opened(url, token, start=0):
    """The response to a request for `url` from byte `start` on."""
    headers = {"User-Agent": "outrider-model-store"}
    if token:
        headers["Authorization"] = f"Bearer {token}"
    if start:
        headers["Range"] = f"bytes={start}-"
    return urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=TIMEOUT_S)


def fetched_json(url, token):
    """A JSON document."""
    try:
        with opened(url, token) as answer:
            return json.load(answer)
    except urllib.error.HTTPError as error:
        hint = " Is a token needed (model_store_hub_token_file)?" if error.code in {401, 403} else ""
        raise Fault(f"{url}: HTTP {error.code}.{hint}") from error
    except (OSError, ValueError) as error:
        raise Fault(f"{url} cannot be read: {error}. Does the node reach it?") from error


def hub_listing(hub, repository, revision, token):
    """Files of a revision: name to size, and `sha256` or `git_sha1`."""
    if not revision or len(revision) != 40:
        raise Fault(f"{repository}: revision {revision!r} is no full commit; a branch moves. Name the commit.")
    facts = fetched_json(f"{hub}/api/models/{repository}/revision/{revision}?blobs=true", token)
    if facts.get("sha") != revision:
        raise Fault(f"{repository}: the hub answered with revision {facts.get('sha')}, asked for {revision}")
    listing = {}
    for file in facts["siblings"]:
        large = file.get("lfs")
        checksum = {"sha256": large["sha256"]} if large else {"git_sha1": file.get("blobId")}
        listing[file["rfilename"]] = {"size": (large or file)["size"], **checksum}
    return listing


def manifest_listing(document, where):
    """Files of an outrider-manifest.json."""
    try:
        return {name: {"size": int(f["size"]), "sha256": f["sha256"]} for name, f in document["files"].items()}
    except (KeyError, TypeError, ValueError) as error:
        raise Fault(f"{where} is no manifest: {error!r}") from error


def directory_listing(source):
    """Files of a directory: by its manifest if it has one, else as they lie there."""
    if not source.is_dir():
        raise Fault(f"{source} is not there. Is the disk mounted?")
    if (source / MANIFEST).is_file():
        return manifest_listing(json.loads((source / MANIFEST).read_text(encoding="utf-8")), source / MANIFEST)
    files = (path for path in sorted(source.rglob("*")) if path.is_file())
    return {str(path.relative_to(source)): {"size": path.stat().st_size} for path in files}


def safe(listing):
    """The listing, if no name leads out of the directory."""
    for name in listing:
        parts = PurePosixPath(name).parts
        if not parts or name.startswith("/") or ".." in parts:
            raise Fault(f"the source lists {name!r}, which leads out of the directory; nothing was fetched")
    return listing


def hashes_of(path, size):
    """Hash objects that were fed a file's bytes: SHA-256, and git's checksum of a blob of that final size."""
    hashes = [hashlib.sha256(), hashlib.sha1(b"blob %d\0" % size)]  # git names blobs by it
    if path.exists():
        with path.open("rb") as file:
            while piece := file.read(CHUNK):
                for each in hashes:
                    each.update(piece)
    return hashes


def append(source, partial, hashes):
    """Write what a source still has to the end of a partial file."""
    with partial.open("ab") as file:
        while piece := source.read(CHUNK):
            file.write(piece)
            for each in hashes:
                each.update(piece)
        file.flush()
        os.fsync(file.fileno())


def bring(open_at, name, facts, to):
    """Bring one file to its place; gives its SHA-256.

    Args:
        open_at: gives a readable for the file from a byte on, and from which byte it really starts.
        name: for messages.
        facts: size, and checksums where known.
        to: where it goes.
    """
    to.parent.mkdir(parents=True, exist_ok=True)
    partial = to.with_name(f"{to.name}.partial")
    if partial.exists() and partial.stat().st_size > facts["size"]:
        partial.unlink()
    have = partial.stat().st_size if partial.exists() else 0
    hashes = hashes_of(partial, facts["size"])
    if have < facts["size"] or have == 0:
        source, start = open_at(have)
        with source:
            if start != have:  # the server does not resume
                partial.unlink(missing_ok=True)
                hashes = hashes_of(partial, facts["size"])
            append(source, partial, hashes)
    if partial.stat().st_size < facts["size"]:
        raise ConnectionError(f"{name} was cut off at {partial.stat().st_size} of {facts['size']} bytes")
    found = {"sha256": hashes[0].hexdigest(), "git_sha1": hashes[1].hexdigest()}
    wrong = [kind for kind in found if facts.get(kind) and facts[kind] != found[kind]]
    if partial.stat().st_size != facts["size"] or wrong:
        size = partial.stat().st_size
        partial.unlink()
        raise Fault(f"{name}: {size} bytes, {found}; the source states {facts}. What was fetched is removed.")
    partial.replace(to)
    return found["sha256"]


def patiently(work, name):
    """Do work that the network may interrupt, some times over; each goes on where the last one stopped."""
    for attempt in range(1, TRIES + 1):
        try:
            return work()
        except urllib.error.HTTPError as error:
            if error.code < 500 or attempt == TRIES:
                raise Fault(f"{name}: HTTP {error.code} from {error.url}") from error
        except (OSError, http.client.HTTPException) as error:
            if attempt == TRIES:
                raise Fault(f"{name}: {error}; {TRIES} tries. Run again: it goes on where it stopped.") from error
        time.sleep(2**attempt / 2)
    raise AssertionError("the last try returns or raises")


def from_web(base, token):
    """An `open_at` for files below an address."""

    def opener(name):
        def open_at(start):
            answer = opened(f"{base}/{urllib.request.quote(name)}", token, start)
            return answer, start if answer.status == http.client.PARTIAL_CONTENT else 0

        return open_at

    return opener


def from_directory(source):
    """An `open_at` for files below a directory."""

    def opener(name):
        def open_at(start):
            file = (source / name).open("rb")
            file.seek(start)
            return file, start

        return open_at

    return opener


def lies_here(directory, source, listing):
    """Whether the manifest here names the same source and the files still have their sizes."""
    try:
        manifest = json.loads((directory / MANIFEST).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    files = manifest.get("files", {})
    same = manifest.get("from") == source and set(listing) <= set(files)
    return same and all(
        (directory / n).is_file() and (directory / n).stat().st_size == files[n]["size"] for n in listing
    )


def require_room(directory, listing, reserve_gb):
    """Refuse before anything is fetched if it will not fit."""
    sizes = {name: facts["size"] for name, facts in listing.items()}
    here = sum(min((directory / n).stat().st_size, size) for n, size in sizes.items() if (directory / n).is_file())
    here += sum(p.stat().st_size for p in directory.rglob("*.partial"))
    needed = sum(sizes.values()) - here + reserve_gb * 1e9
    free = shutil.disk_usage(directory).free
    if needed > free:
        raise Fault(
            f"{directory}: {needed / 1e9:.1f} GB needed ({reserve_gb} GB of it in reserve), {free / 1e9:.1f} GB free. "
            "Mount a larger disk there (model_store_device), or lower model_store_reserve_gb."
        )


def fetch(asked, token=None):
    """Do what the command line says; gives what it prints."""
    directory = asked.to
    source = {"repository": asked.name, "source": asked.source, "revision": asked.revision, "from": asked.origin}
    source = {key: value for key, value in source.items() if value}
    if asked.source == "hub":
        listing = hub_listing(asked.hub, asked.name, asked.revision, token)
        opener = from_web(f"{asked.hub}/{asked.name}/resolve/{asked.revision}", token)
    elif asked.source == "url":
        base = (asked.origin or "").rstrip("/")
        listing = manifest_listing(fetched_json(f"{base}/{MANIFEST}", token), f"{base}/{MANIFEST}")
        opener = from_web(base, token)
    else:
        listing = directory_listing(Path(asked.origin or ""))
        opener = from_directory(Path(asked.origin or ""))
    wanted = [n for n in safe(listing) if not asked.include or any(fnmatch.fnmatch(n, p) for p in asked.include)]
    listing = {name: listing[name] for name in wanted if name != MANIFEST}
    if not listing:
        raise Fault(f"{asked.name}: the source has no files that are asked for")
    total = {"files": len(listing), "bytes": sum(facts["size"] for facts in listing.values())}
    if lies_here(directory, source, listing):
        return {"changed": False, **total}
    if asked.check:
        return {"changed": True, **total}
    directory.mkdir(parents=True, exist_ok=True)
    require_room(directory, listing, asked.reserve_gb)
    known = {}
    for name, facts in listing.items():
        place = directory / name
        if place.is_file() and place.stat().st_size == facts["size"]:
            # Complete, but of a run that did not end: trusted only if its checksum says so.
            found = [each.hexdigest() for each in hashes_of(place, facts["size"])]
            if facts.get("sha256") == found[0] or facts.get("git_sha1") == found[1]:
                known[name] = {"size": facts["size"], "sha256": found[0]}
                continue
        checksum = patiently(lambda name=name, facts=facts, to=place: bring(opener(name), name, facts, to), name)
        known[name] = {"size": facts["size"], "sha256": checksum}
    text = json.dumps({"from": source, "files": known}, indent=2, sort_keys=True)
    (directory / MANIFEST).write_text(text + "\n", encoding="utf-8")
    return {"changed": True, **total}


def main():
    """Fetch, and print what was done."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("name")
    parser.add_argument("--to", type=Path, required=True)
    parser.add_argument("--source", choices=["hub", "url", "directory"], required=True)
    parser.add_argument("--from", dest="origin")
    parser.add_argument("--revision")
    parser.add_argument("--hub", default="https://huggingface.co")
    parser.add_argument("--include", action="append", default=[])
    parser.add_argument("--token-file", type=Path)
    parser.add_argument("--reserve-gb", type=float, default=20)
    parser.add_argument("--check", action="store_true", help="only say whether something would be done")
    asked = parser.parse_args()
    try:
        token = asked.token_file.read_text(encoding="utf-8").strip() if asked.token_file else None
        print(json.dumps(fetch(asked, token)))
    except (Fault, OSError) as fault:
        sys.exit(f"{asked.name}: {fault}")


if __name__ == "__main__":
    main()
