#!/usr/bin/env python3
"""Fails where a layer includes one that is not to its left.

base -> {program, ops} -> lanes -> optim -> {data, plan} -> train -> {tune, zoo, burst} -> {cli, python}
"""

import pathlib
import re
import sys

LAYERS = [
    {"base"},
    {"program", "ops"},
    {"lanes"},
    {"optim"},
    {"data", "plan"},
    {"train"},
    {"tune", "zoo", "burst"},
    {"cli", "python"},
]
LEVEL = {name: level for level, names in enumerate(LAYERS) for name in names}
INCLUDE = re.compile(r'^\s*#\s*include\s+["<]([^">]+)[">]')
SLOW_HEADERS = {"torch/torch.h", "torch/all.h", "torch/extension.h"}


def sources(root):
    """Yields (layer, file) of every C++ file that belongs to a layer."""
    for pattern in ("hfta/*/**/*", "python/src/**/*"):
        for path in sorted(root.glob(pattern)):
            if path.suffix in {".h", ".cpp", ".cu"}:
                parts = path.relative_to(root).parts
                yield ("python" if parts[0] == "python" else parts[1]), path


def check(root):
    """Returns one line for each include that breaks the order."""
    faults = []
    for layer, path in sources(root):
        where = path.relative_to(root)
        if layer not in LEVEL:
            faults.append(f'{where}: the folder "{layer}" is no layer; known: {", ".join(LEVEL)}')
            continue
        for number, line in enumerate(path.read_text().splitlines(), 1):
            included = INCLUDE.match(line)
            if not included:
                continue
            header = included[1]
            if layer != "python" and header in SLOW_HEADERS:
                faults.append(f"{where}:{number}: <{header}> costs 14 s of parsing; include ATen/ops/<op>.h or torch/nn/module.h")
            if not header.startswith("hfta/"):
                continue
            other = header.split("/")[1]
            if other == "hfta.h":
                faults.append(f"{where}:{number}: hfta/hfta.h is for users only")
            elif other not in LEVEL:
                faults.append(f'{where}:{number}: "{header}" is in no layer')
            elif other != layer and LEVEL[other] >= LEVEL[layer]:
                faults.append(f'{where}:{number}: {layer} includes "{header}", but {other} is not to its left')
    return faults


def main():
    root = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else ".").resolve()
    faults = check(root)
    for fault in faults:
        print(f"check_layers: {fault}", file=sys.stderr)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
