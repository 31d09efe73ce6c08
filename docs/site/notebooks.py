"""Notebooks as pages: each is executed when the site is built, and stands there with what its cells show."""

from pathlib import Path
from typing import Any

import nbformat
from nbclient import NotebookClient

SLOW = "slow"
"""Tag of cells that take minutes, such as a build of the RTL: the site shows them without what they give."""
LIMIT = 600
"""Seconds of a cell."""


def executed(path: Path, folder: Path, *, slow: bool) -> nbformat.NotebookNode:
    """The notebook with what its cells show, run in ``folder``; slow ones only if ``slow``.

    Raises CellExecutionError with the traceback of a cell that fails.
    """
    notebook = nbformat.read(path, as_version=4)
    left = [] if slow else [cell for cell in notebook.cells if SLOW in cell.metadata.get("tags", ())]
    for cell in left:
        cell.cell_type = "raw"
    where = {"metadata": {"path": str(folder)}}
    NotebookClient(notebook, timeout=LIMIT, kernel_name="python3", resources=where).execute()
    for cell in left:
        cell.cell_type = "code"
    return notebook


def on_files(files: Any, config: Any, **_: Any) -> Any:
    """Add a page for each notebook, and its pictures; the notebook itself can be downloaded there."""
    from mkdocs.structure.files import File
    from nbconvert import MarkdownExporter
    from traitlets.config import Config

    for file in [file for file in files if file.src_uri.endswith(".ipynb")]:
        path = Path(file.abs_src_path)
        names = {"output_filename_template": path.stem + "_{cell_index}_{index}{extension}"}
        exporter = MarkdownExporter(config=Config({"ExtractOutputPreprocessor": names}))
        text, found = exporter.from_notebook_node(executed(path, path.parent, slow=False))
        text += f"\n[This page as a notebook]({path.name})\n"
        place = file.src_uri.removesuffix(path.name)
        files.append(File.generated(config, f"{place}{path.stem}.md", content=text))
        for name, data in found["outputs"].items():
            files.append(File.generated(config, place + name, content=data))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Links to a notebook lead to its page."""
    return markdown if page.file.generated_by else markdown.replace(".ipynb)", ".md)")
