"""Files of results: rows by name, each with its own date and machine, so that a table may be recorded in parts."""

from __future__ import annotations

import datetime
import json
import re
import subprocess
from pathlib import Path

FORMAT = 2


def commit(folder: Path) -> str:
    """The checkout's commit; "+" where files other than results were changed since, empty outside a checkout."""

    def git(*arguments: str) -> str:
        try:
            return subprocess.run(["git", "-C", str(folder), *arguments], capture_output=True, text=True, check=True).stdout.strip()
        except (OSError, subprocess.CalledProcessError):
            return ""

    name = git("rev-parse", "--short=12", "HEAD")
    changed = git("status", "--porcelain", "--untracked-files=no", "--", ":(top)", ":(top,exclude)benchmarks/results")
    return name + "+" if name and changed else name


def folder_of(processor: str) -> str:
    """The folder of a processor's results: its name in small letters, words joined by "-" (of "Intel(R) Xeon(R)": "intel-xeon")."""
    return "-".join(re.findall("[a-z0-9]+", re.sub(r"\((r|tm)\)", "", processor.lower()))) or "unnamed"


def stamped(row: dict, facts: dict, folder: Path) -> dict:
    """The row with where and when it was measured."""
    now = datetime.datetime.now(datetime.timezone.utc).replace(microsecond=0)
    return row | {"date": now.isoformat(), "commit": commit(folder), "machine": facts}


def read(path: Path) -> list[dict]:
    """Rows of a file; none where there is no file, or one of another format."""
    if not path.exists():
        return []
    content = json.loads(path.read_text())
    if content.get("format") != FORMAT:
        print(f"bench: {path} is of format {content.get('format')}, not {FORMAT}: it is written anew")
        return []
    return content["rows"]


def merged(old: list[dict], new: list[dict], order: list[str]) -> list[dict]:
    """New rows in the place of old ones of their name; in this order, rows that it does not name at the end."""
    rows = {row["row"]: row for row in [*old, *new]}
    places = {name: place for place, name in enumerate(order)}
    return sorted(rows.values(), key=lambda row: places.get(row["row"], len(places)))


def write(path: Path, rows: list[dict]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_suffix(".json.new")
    temporary.write_text(json.dumps({"format": FORMAT, "rows": rows}, indent=1) + "\n")
    temporary.replace(path)


def record(path: Path, row: dict, order: list[str]) -> list[dict]:
    """Puts the row into the file. Returns all its rows."""
    rows = merged(read(path), [row], order)
    write(path, rows)
    return rows
