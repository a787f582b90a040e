"""The stubs of the binding are in step with it: the same names, and for each function the same arguments."""

from __future__ import annotations

import ast
import pathlib
import re

import hfta
from hfta import _core

STUB = pathlib.Path(hfta.__file__).parent / "_core.pyi"


def declared() -> dict[str, ast.AST]:
    names: dict[str, ast.AST] = {}
    for node in ast.parse(STUB.read_text()).body:
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            names[node.name] = node
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and ast.unparse(node.annotation) != "TypeAlias":
            names[node.target.id] = node
    return names


def arguments_of(function: object) -> list[str] | None:
    """Names that the binding tells in the first line of its text."""
    line = (getattr(function, "__doc__", "") or "").splitlines()
    found = re.match(r"\w+\((.*)\) ->", line[0]) if line else None
    if found is None or "Overloaded" in "".join(line):
        return None
    names = re.findall(r"(?:^|, )\*{0,2}(\w+)(?=[:=,]|$)", re.sub(r"\[[^\[\]]*\]", "", re.sub(r"\[[^\[\]]*\]", "", found[1])))
    return [name for name in names if name != "self"]


def members_of(node: ast.ClassDef) -> dict[str, ast.AST]:
    found: dict[str, ast.AST] = {}
    for part in node.body:
        if isinstance(part, ast.FunctionDef):
            found[part.name] = part
        elif isinstance(part, ast.AnnAssign):
            found[part.target.id] = part  # type: ignore[union-attr]
    return found


def check_arguments(where: str, function: object, node: ast.AST) -> None:
    told = arguments_of(function)
    if told is None or not isinstance(node, ast.FunctionDef) or any(re.fullmatch(r"arg\d+|args|kwargs", name) for name in told):
        return
    names = [a.arg for a in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs) if a.arg != "self"]
    assert names == told, f"{where}: the stub has {names}, the binding {told}"


def test_stubs_name_what_the_binding_has():
    stub = declared()
    public = {name for name in vars(_core) if not name.startswith("_")}
    assert public == set(stub)
    for name, node in stub.items():
        if not isinstance(node, ast.ClassDef):
            check_arguments(name, getattr(_core, name), node)
            continue
        members = members_of(node)
        own = {n for n in vars(getattr(_core, name)) if not n.startswith("_")}
        assert own == {n for n in members if not n.startswith("_")}, name
        for member, part in members.items():
            check_arguments(f"{name}.{member}", getattr(getattr(_core, name), member, None), part)


def test_stubs_and_marker_are_in_the_package():
    assert (STUB.parent / "py.typed").exists()
