"""Check of the folder that a command writes into, before the work begins."""

from pathlib import Path

from dovetail.sw.errors import DovetailError


def check_output_folder(option: str, folder: Path) -> None:
    """Raise DovetailError where ``folder`` is a file, or lies below one; a folder that is not there yet is fine."""
    for path in (folder, *folder.parents):
        if path.exists():
            if not path.is_dir():
                raise DovetailError(f"{option} must be a folder, not {folder} ({path} is a file)")
            return
