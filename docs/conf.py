"""Settings of the site; `python docs/build.py` builds it."""

import os
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE / "extensions"), str(HERE.parent)]

# Before Keras is imported, here and by the notebooks' processes.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
os.environ["PYTHONPATH"] = os.pathsep.join(
    [str(HERE.parent), *filter(None, [os.environ.get("PYTHONPATH")])]
)

from repository import ADDRESS  # noqa: E402 (needs sys.path)

from keras_ln.version import __version__  # noqa: E402 (needs sys.path)

project = "keras_ln"
author = "The keras_ln authors"
project_copyright = "The keras_ln authors, Apache-2.0"
version = release = __version__

extensions = [
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx.ext.mathjax",
    # MathJax comes with the site.
    "sphinx-mathjax-offline",
    "myst_nb",
    "sphinx_copybutton",
    "docstrings",
    "from_github",
    "repository",
]
exclude_patterns = ["extensions", "_build"]
source_suffix = {".md": "myst-nb", ".ipynb": "myst-nb"}
myst_enable_extensions = ["dollarmath"]
myst_heading_anchors = 4

# A notebook that fails fails the build. The limit is for a cell; those that
# train take half a minute on an idle machine.
nb_execution_mode = "force"
nb_execution_timeout = 900
nb_execution_raise_on_error = True
# Frameworks log to it, differently on every machine.
nb_output_stderr = "remove"

nitpicky = False
autodoc_member_order = "bysource"
autodoc_typehints = "none"
# So single backticks are code, as they are in our docstrings.
default_role = "code"
napoleon_numpy_docstring = False
napoleon_use_rtype = False
napoleon_custom_sections = [("Call arguments", "params_style")]
add_module_names = False
maximum_signature_line_length = 70
toc_object_entries_show_parents = "hide"

html_theme = "furo"
html_title = f"keras_ln {__version__}"
html_static_path = ["static"]
html_css_files = ["wide_tables.css"]
html_copy_source = False
html_show_sphinx = False
html_theme_options = {
    "source_repository": f"{ADDRESS}/",
    "source_branch": "main",
    "source_directory": "docs/",
}
copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True
