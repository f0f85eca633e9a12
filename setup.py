"""What an index shows of the package: README.md with absolute links."""

import re
from configparser import ConfigParser
from pathlib import Path

from setuptools import setup

HERE = Path(__file__).resolve().parent
RELATIVE = re.compile(r"(!?)\[([^\]]*)\]\((?!\w+:|#)([^)]*)\)")


def described(text: str, address: str) -> str:
    """A page of the repository as others show it, for example the index."""

    def absolute(match: re.Match[str]) -> str:
        image, label, target = match.groups()
        kind = "raw" if image else "blob"
        return f"{image}[{label}]({address}/{kind}/main/{target})"

    return RELATIVE.sub(absolute, text)


if __name__ == "__main__":
    settings = ConfigParser()
    settings.read(HERE / "setup.cfg", encoding="utf-8")
    address = settings["metadata"]["url"]
    setup(
        long_description=described(
            (HERE / "README.md").read_text(encoding="utf-8"), address
        ),
        long_description_content_type="text/markdown",
        project_urls={
            "Documentation": f"{address}/tree/main/docs",
            "Changelog": f"{address}/blob/main/CHANGELOG.md",
            "Issues": f"{address}/issues",
        },
    )
