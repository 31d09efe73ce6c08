"""Words of a language model: text to tokens and back, by a vocabulary file of llama2.c."""

from __future__ import annotations

import re
import struct
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from dovetail.sw.errors import NetworkError

BEGIN, END = 1, 2
"""Tokens that begin and end a text."""
_BYTES = 3
"""The first of 256 tokens that are single bytes."""
_BYTE = re.compile(rb"<0x([0-9A-F]{2})>")


@dataclass(frozen=True)
class Vocabulary:
    """The tokens of a model.

    Parameters
    ----------
    pieces: what each token stands for, in UTF-8.
    scores: of two neighbours that together are a token, those with the highest score are joined first.
    """

    pieces: tuple[bytes, ...]
    scores: tuple[float, ...]

    @classmethod
    def read(cls, path: Path) -> Vocabulary:
        """A file such as ``tokenizer.bin``: int32 length of the longest piece, then for each token float32 score, int32
        length, and the piece; little-endian.

        Raises NetworkError or OSError.
        """
        data, place = path.read_bytes(), 4
        pieces, scores = list[bytes](), list[float]()
        longest = struct.unpack_from("<i", data)[0] if len(data) >= place else -1
        while place + 8 <= len(data):
            score, length = struct.unpack_from("<fi", data, place)
            if not 0 <= length <= longest:
                break
            pieces.append(data[place + 8 : place + 8 + length])
            scores.append(score)
            place += 8 + length
        if not pieces or place != len(data):
            raise NetworkError(f"{path}: must be a vocabulary of llama2.c (tokenizer.bin), not damaged or another file")
        return cls(tuple(pieces), tuple(scores))

    @cached_property
    def _tokens(self) -> dict[bytes, int]:
        return {piece: number for number, piece in reversed([*enumerate(self.pieces)])}

    def encode(self, text: str) -> list[int]:
        """The tokens of a text, with the one that begins it. Raises NetworkError for bytes that are no tokens."""
        found = [BEGIN]
        for letter in f" {text}" if text else "":
            letters = letter.encode()
            known = self._tokens.get(letters)
            found += [_BYTES + byte for byte in letters] if known is None else [known]
        if max(found) >= len(self.pieces):
            raise NetworkError(f"prompt must be of letters that the vocabulary has, not {text!r}")
        while True:
            pairs = [
                (self.scores[token], -place, token)
                for place in range(1, len(found) - 1)
                if (token := self._tokens.get(self.pieces[found[place]] + self.pieces[found[place + 1]])) is not None
            ]
            if not pairs:
                return found
            _, place, token = max(pairs)
            found[-place : 2 - place] = [token]

    def decode(self, tokens: Iterable[int]) -> str:
        """The text of tokens; the space behind the token that begins a text is left out."""
        found, before = b"", -1
        for token in tokens:
            if token not in (BEGIN, END):
                piece = self.pieces[token]
                single = _BYTE.fullmatch(piece)
                piece = bytes([int(single[1], 16)]) if single else piece
                found += piece.removeprefix(b" ") if before == BEGIN else piece
            before = token
        return found.decode(errors="replace")
