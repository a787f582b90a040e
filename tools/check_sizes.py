#!/usr/bin/env python3
"""Tells which files and functions are longer than the house style likes; a warning, not a failure (`--strict` fails)."""

import ast
import pathlib
import re
import sys

HEADER_LINES, SOURCE_LINES, FUNCTION_LINES = 150, 400, 50
FOLDERS = ("hfta", "tests", "benchmarks", "examples", "python", "tools")
NOT_A_FUNCTION = re.compile(r"(namespace|class|struct|enum|union|extern|if|for|while|switch|else|do|try|catch|case|public|private)\b|[}/#]")


def long_cxx_functions(lines):
    """Yields (line, length) of each function over the limit, by the layout that clang-format gives."""
    for start, line in enumerate(lines):
        text = line.strip()
        indent = line[: len(line) - len(line.lstrip())]
        if len(indent) > 2 or not text.endswith("{") or ")" not in text or NOT_A_FUNCTION.match(text):
            continue
        end = next((i for i in range(start + 1, len(lines)) if lines[i].startswith(indent + "}")), start)
        if end - start + 1 > FUNCTION_LINES:
            yield start + 1, end - start + 1


def long_python_functions(text):
    """Yields (line, length) of each function over the limit."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and node.end_lineno - node.lineno + 1 > FUNCTION_LINES:
            yield node.lineno, node.end_lineno - node.lineno + 1


def check(root):
    """Returns one line for each file or function over its limit."""
    found = []
    for path in sorted(p for folder in FOLDERS for p in (root / folder).rglob("*") if p.suffix in {".h", ".cpp", ".cu", ".py"}):
        text = path.read_text()
        lines = text.splitlines()
        where = path.relative_to(root)
        limit = HEADER_LINES if path.suffix == ".h" else SOURCE_LINES
        if len(lines) > limit:
            found.append(f"{where}: {len(lines)} lines, the limit is about {limit}")
        functions = long_python_functions(text) if path.suffix == ".py" else long_cxx_functions(lines)
        found += [f"{where}:{line}: a function of {length} lines, the limit is about {FUNCTION_LINES}" for line, length in functions]
    return found


def main():
    arguments = [a for a in sys.argv[1:] if a != "--strict"]
    found = check(pathlib.Path(arguments[0] if arguments else ".").resolve())
    for line in found:
        print(f"check_sizes: {line}", file=sys.stderr)
    return 1 if found and "--strict" in sys.argv else 0


if __name__ == "__main__":
    sys.exit(main())
