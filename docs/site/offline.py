"""After the build: nothing in the site comes from elsewhere, so it can be read without a network, and from a folder."""

import re
import shutil
from os.path import relpath
from pathlib import Path
from typing import Any

from mkdocs.exceptions import PluginError

SHIM = "https://unpkg.com/iframe-worker/shim"
"""What the theme loads so that search works in a page that was opened from a folder. `worker.js` does it here."""
WORKER = Path(__file__).with_name("worker.js")
FOREIGN = re.compile(r"""<(?:script|img|link|iframe|source)\b[^>]*?\b(?:src|href)=["']?(https?://[^"'\s>]+)""")


def on_post_build(config: Any, **_: Any) -> None:
    """Put our own script where the theme names a foreign one; refuse any other. Raises PluginError."""
    site = Path(config["site_dir"])
    script = site / "assets" / WORKER.name
    for file in (WORKER, WORKER.with_name("site.css")):
        shutil.copy(file, script.with_name(file.name))
    for page in sorted(site.rglob("*.html")):
        text = page.read_text(encoding="utf-8").replace(SHIM, relpath(script, page.parent))
        if found := FOREIGN.search(text):
            raise PluginError(f"{page.relative_to(site)} must load nothing from elsewhere, not {found[1]}")
        page.write_text(text, encoding="utf-8")
