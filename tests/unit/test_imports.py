"""Imports inside the package go one way, and nothing in it grows too long."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[2] / "src" / "headwater"
MAX_MODULE_LINES = 400
MAX_FUNCTION_LINES = 60

CORE = {"errors", "algebra"}
ENGINE = CORE | {"sql", "delta", "catalog", "graph"}
API = ENGINE | {"reference", "postgres", "spark", "results", "embedded", "cron"}
SCHEDULE = API | {"api"}
TOP = SCHEDULE | {"schedule", "database", "__init__"}

# What each part of the package may import, besides itself.
MAY_IMPORT = {
    "errors": set[str](),
    "algebra": {"errors"},
    "sql": CORE,
    "delta": CORE,
    "reference": CORE,
    "graph": set[str](),
    "cron": set[str](),
    "embedded": {"errors"},
    "catalog": {"errors", "graph"},
    "results": {"catalog"},
    "postgres": ENGINE,
    "spark": ENGINE | {"postgres"},  # which applies what Spark computed
    "api": API,
    "database": SCHEDULE | {"__init__"},  # the verbs again, by way of the server
    "__init__": SCHEDULE,
    "schedule": SCHEDULE,
    "status": TOP,
    "bench": TOP,
    "cli": TOP | {"status", "bench"},
    "__main__": {"cli"},
}
SPARK_ONLY = {"pyspark", "delta", "deltalake"}


def test_imports_go_one_way() -> None:
    assert list(wrong_imports(SOURCE)) == []


def test_modules_are_short() -> None:
    assert list(long_modules(SOURCE)) == []


def test_functions_are_short() -> None:
    assert list(long_functions(SOURCE)) == []


@pytest.mark.parametrize(
    ("path", "text", "fault"),
    [
        ("algebra/ops.py", "from headwater.delta import rules", "algebra imports delta"),
        ("algebra/ops.py", "from headwater import sql", "algebra imports sql"),
        ("algebra/ops.py", "from ..sql.lower import lower", "algebra imports sql"),
        ("algebra/__init__.py", "from .. import api", "algebra imports api"),
        ("catalog/model.py", "import headwater.algebra.ops", "catalog imports algebra"),
        ("api.py", "def f():\n    import headwater.cli", "api imports cli"),
        ("postgres/apply.py", "from headwater import __version__", "postgres imports __init__"),
        ("cli/main.py", "import pyspark.sql", "cli imports pyspark"),
        ("novel/x.py", "", "novel is not in MAY_IMPORT"),
    ],
)
def test_a_wrong_import_is_found(tmp_path: Path, path: str, text: str, fault: str) -> None:
    write(tmp_path / path, text)
    assert list(wrong_imports(tmp_path)) == [f"{path}: {fault}"]


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("algebra/ops.py", "import dataclasses\nfrom . import expr\nfrom .expr import Expr"),
        ("algebra/ops.py", "from ..errors import InvalidPlan"),
        ("postgres/apply.py", "from headwater import catalog, delta"),
        ("spark/session.py", "import pyspark, deltalake\nfrom delta import tables"),
        ("cli/bench.py", "from headwater import __version__, bench"),
    ],
)
def test_a_right_import_is_let_through(tmp_path: Path, path: str, text: str) -> None:
    write(tmp_path / path, text)
    assert list(wrong_imports(tmp_path)) == []


def test_length_is_found(tmp_path: Path) -> None:
    body = "    pass\n" * MAX_FUNCTION_LINES
    write(tmp_path / "api.py", f"def f():\n{body}" + "\n" * MAX_MODULE_LINES)
    assert list(long_functions(tmp_path)) == ["api.py: f has 61 lines"]
    assert list(long_modules(tmp_path)) == ["api.py: 461 lines"]


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def modules(source: Path) -> Iterator[tuple[Path, str]]:
    """Yield each module's path below `source`, and its text."""
    for path in sorted(source.rglob("*.py")):
        yield path.relative_to(source), path.read_text()


def long_modules(source: Path) -> Iterator[str]:
    for path, text in modules(source):
        lines = len(text.splitlines())
        if lines > MAX_MODULE_LINES:
            yield f"{path}: {lines} lines"


def long_functions(source: Path) -> Iterator[str]:
    for path, text in modules(source):
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                lines = (node.end_lineno or node.lineno) - node.lineno + 1
                if lines > MAX_FUNCTION_LINES:
                    yield f"{path}: {node.name} has {lines} lines"


def wrong_imports(source: Path) -> Iterator[str]:
    for path, text in modules(source):
        part = path.with_suffix("").parts[0]
        if part not in MAY_IMPORT:
            yield f"{path}: {part} is not in MAY_IMPORT"
            continue
        read = {name for node in ast.walk(ast.parse(text)) for name in targets(node, path)}
        for target in sorted(read):
            if not is_allowed(part, target):
                yield f"{path}: {part} imports {target.rpartition('.')[2]}"


def is_allowed(part: str, target: str) -> bool:
    """Judge `target`, a part as "headwater.<part>" or another package by its name."""
    package, _, inner = target.partition(".")
    if package == "headwater":
        return inner == part or inner in MAY_IMPORT[part]
    return part == "spark" or package not in SPARK_ONLY


def targets(node: ast.AST, path: Path) -> Iterator[str]:
    """Yield what an import in the module at `path` reads, in the form `is_allowed` judges."""
    match node:
        case ast.Import(names=names):
            yield from (shorten(name.name) for name in names)
        case ast.ImportFrom(module=module, names=names, level=level):
            base = [*absolute(path, level), *(module.split(".") if module else ())]
            yield from (shorten(".".join([*base, name.name])) for name in names)


def absolute(path: Path, level: int) -> tuple[str, ...]:
    """Return the package that `level` dots mean in the module at `path`; nothing for no dot."""
    package = ("headwater", *path.parent.parts)
    return package[: len(package) + 1 - level] if level else ()


def shorten(name: str) -> str:
    """Cut a dotted name to its package, and one of ours to its part."""
    package, *rest = name.split(".")
    if package != "headwater":
        return package
    return f"headwater.{rest[0] if rest and rest[0] in MAY_IMPORT else '__init__'}"
