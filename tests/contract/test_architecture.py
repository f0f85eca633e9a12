"""The package's one-way rule: layers -> ops -> engine -> backend.

Nobody imports `analysis`, `compat` and `tuning`, and only the package itself
imports `convert`. A framework is imported by the backend modules of its name
and by no other file, however late in the program. What Keras does not export,
`_keras.py` uses alone, for everybody.
"""

import ast
from pathlib import Path

import keras_ln

PACKAGE = Path(keras_ln.__file__).parent

# What a part of the package may import of the rest of it. "" is
# keras_ln/__init__.py.
MAY_IMPORT = {
    "": {"_frameworks", "convert", "layers", "version"},
    "convert": {"convert", "layers", "ops", "engine"},
    "layers": {"layers", "ops", "engine"},
    "ops": {"ops", "engine", "backend"},
    "engine": {"engine", "backend"},
    "backend": {"backend"},
    "analysis": {"analysis", "layers", "ops", "engine"},
    "compat": {"compat", "layers", "engine"},
    "tuning": {"tuning", "layers", "ops", "engine"},
    "version": set(),
    "_frameworks": set(),
    "_keras": set(),
    "gpu": {"gpu", "", "layers", "ops", "backend"},
    "__main__": {"engine", "gpu", "layers", "version"},
}
# Of the standard library and torch.
PUBLIC = {"_fields", "_replace", "_current_level"}
PUBLIC |= {"_C", "_functorch", "_is_view", "_len_torch_dispatch_stack"}
PUBLIC |= {"_dispatch_key_parse", "_dispatch_keys"}
BACKEND_OF = {
    "tensorflow": "tensorflow",
    "jax": "jax",
    "jaxlib": "jax",
    "torch": "torch",
}


def run_nodes(tree):
    """All nodes but those that only type checkers read."""
    yield tree
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.If) and ast.unparse(node.test).endswith(
            "TYPE_CHECKING"
        ):
            for statement in node.orelse:
                yield from run_nodes(statement)
        else:
            yield from run_nodes(node)


def imported_names(source, path):
    """Dotted names that a file imports, anywhere in it."""
    package = ("keras_ln", *Path(path).parent.parts)
    for node in run_nodes(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1]
            prefix = ".".join(base) if node.level else ""
            module = ".".join(filter(None, (prefix, node.module)))
            yield from (f"{module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Call) and node.args:
            # importlib.import_module("jax"), __import__("jax")
            called = ast.unparse(node.func).rpartition(".")[2]
            name = node.args[0]
            if called in ("import_module", "__import__") and isinstance(
                name, ast.Constant
            ):
                yield name.value


def private_uses(source):
    """Private attributes of others than `self`, and questions of a version.

    A name counts as private where the file gives none of its own things that
    name.
    """
    tree = ast.parse(source)
    own = {
        node.attr
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and ast.unparse(node.value) == "self"
    }
    for node in ast.walk(tree):
        if not isinstance(node, ast.Attribute):
            continue
        name = node.attr
        asks = ast.unparse(node) in ("keras.__version__", "keras.version")
        private = name.startswith("_") and not name.startswith("__")
        if asks or (private and name not in own and name not in PUBLIC):
            yield ast.unparse(node)


def offences(source, path):
    """Sentences on what a file, at `path` below keras_ln/, imports wrongly."""
    found = []
    part = Path(path).parts[0].removesuffix(".py")
    part = "" if part == "__init__" else part
    for name in imported_names(source, path):
        root, *rest = name.split(".")
        if root == "keras_ln":
            target = rest[0] if rest else ""
            if target not in {"_keras", *MAY_IMPORT[part]}:
                found.append(f"{path} imports {name}")
                continue
        if name.startswith("keras.src"):
            # Keras passes the frameworks on there.
            if part != "_keras":
                found.append(f"{path} imports what Keras hides: {name}")
            continue
        if part == "backend" and root == "keras_ln":
            continue
        for component in (root, *rest):
            framework = BACKEND_OF.get(component)
            if framework and not path.startswith(f"backend/{framework}/"):
                found.append(f"{path} imports a framework: {name}")
    found += [
        f"{path} uses what Keras hides: {use}"
        for use in private_uses(source)
        if part != "_keras"
    ]
    return found


def test_every_file_of_the_package_keeps_the_rule():
    files = sorted(PACKAGE.rglob("*.py"))
    assert len(files) > len(MAY_IMPORT)
    wrong = [
        sentence
        for file in files
        for sentence in offences(
            file.read_text(), file.relative_to(PACKAGE).as_posix()
        )
    ]
    assert not wrong, "\n".join(wrong)
