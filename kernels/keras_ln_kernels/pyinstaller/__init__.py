"""PyInstaller's hook: the entry point `pyinstaller40` names this package."""


def hook_folders() -> list[str]:
    """Where PyInstaller finds the hook."""
    return list(__path__)
