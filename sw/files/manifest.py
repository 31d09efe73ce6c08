"""YAML of manifests: plain values in bounds. Aliases, by which a small text unfolds into a large one, are refused."""

from __future__ import annotations

from typing import Any

import yaml

MOST_BYTES = 16 << 20
"""Of a text."""


class _Loader(yaml.SafeLoader):
    """The safe loader without aliases."""

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        if self.check_event(yaml.AliasEvent):
            raise yaml.YAMLError("aliases are not allowed")
        return super().compose_node(parent, index)


def parse_yaml(data: bytes) -> Any:
    """The value of a YAML text. Raises ValueError with the reason in one line."""
    if len(data) > MOST_BYTES:
        raise ValueError(f"a manifest must be at most {MOST_BYTES} bytes, not {len(data)}")
    try:
        return yaml.load(data, _Loader)  # safe: a subclass of the safe loader
    except RecursionError:
        raise ValueError("a manifest must be nested less deeply") from None
    except (yaml.YAMLError, ValueError) as error:
        raise ValueError(" ".join(str(error).split())[:200]) from None
