"""Prove properties of the hardware's blocks for every input: by k-induction, or to a bounded depth."""

import argparse
from dataclasses import asdict
from pathlib import Path

from rich.text import Text

from dovetail.cosim.formal.catalogue import PROOFS, manual
from dovetail.cosim.formal.proof import Proof, Sentences
from dovetail.cosim.formal.prover import Verdict, prove
from dovetail.flows.output.printable import Block, block
from dovetail.flows.output.reply import Report
from dovetail.flows.output.tables import new_table
from dovetail.isa.common.build_cache import default_cache
from dovetail.isa.common.files import write_atomically
from dovetail.sw.errors import DovetailError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("names", metavar="NAME", nargs="*", help="proofs to run; default: all that take seconds")
    parser.add_argument("--all", action="store_true", help="the slow ones too")
    parser.add_argument("--list", action="store_true", help="list the proofs; proves nothing")
    parser.add_argument("--manual", action="store_true", help="describe the proofs in Markdown; proves nothing")
    parser.add_argument("--output", metavar="FILE", type=Path, help="where the manual goes, instead of stdout")
    parser.add_argument(
        "--depth", type=int, metavar="N", help="induction depth k, or cycles, instead of the proof's own"
    )
    parser.add_argument("--waves", type=Path, metavar="FOLDER", help="folder for waves of violations, as VCD")


def run(args: argparse.Namespace) -> Report:
    if args.depth is not None and args.depth < 1:
        raise DovetailError(f"--depth must be positive, not {args.depth}")
    if args.manual:
        return _manual(args.output)
    proofs = selected(args.names, everything=args.all or args.list)
    if args.list:
        return _listing(proofs)
    verdicts = {p.name: prove(p, default_cache(), depth=args.depth, waves=args.waves) for p in proofs}
    colours = {"proved": "green", "failed": "red"}
    rows = []
    for proof in proofs:
        v = verdicts[proof.name]
        verdict = Text(v.result, colours.get(v.result, "yellow"))
        rows.append((proof.name, proof.mode, str(v.depth), verdict, f"{v.seconds:.1f}"))
    shown = new_table("", ("proof", "mode", "depth", "verdict", "seconds"), rows)
    troubles = [trouble(name, v) for name, v in verdicts.items() if not v.passed]
    last = block(troubles) if troubles else "everything is proved"
    data = {"ok": not troubles, "proofs": [{"name": n, **asdict(v)} for n, v in verdicts.items()]}
    return Report(data, [shown, last], int(bool(troubles)))


def selected(names: list[str], *, everything: bool) -> list[Proof]:
    """The proofs of these names; without names all, slow ones if ``everything``. Raises :class:`DovetailError`."""
    for name in names:
        if name not in PROOFS:
            raise DovetailError(f"unknown proof {name!r}; known: {', '.join(PROOFS)}")
    if names:
        return [PROOFS[name] for name in names]
    return [proof for proof in PROOFS.values() if everything or not proof.slow]


def trouble(name: str, verdict: Verdict) -> str:
    """What a verdict that is not "proved" means, for a reader."""
    meaning = {
        "failed": "violated",
        "unknown": "not proved by induction at this depth, and not violated within it",
        "unreached": "proved, but never reached",
    }[verdict.result]
    more = [*verdict.sentences, *([f"waves: {verdict.waves}"] if verdict.waves else [])]
    return block([f"{name}: {meaning}:", *(f"    {sentence}" for sentence in more)])


def _listing(proofs: list[Proof]) -> Report:
    """The sentences of proofs."""
    rows, shown = [], []
    for proof in proofs:
        s = Sentences(proof.rtlil())
        rows.append(
            {
                "name": proof.name,
                "block": proof.block,
                "parameters": proof.parameters,
                "mode": proof.mode,
                "depth": proof.depth,
                "properties": s.properties,
                "assumptions": s.assumptions,
                "covers": s.covers,
                "slow": proof.slow,
            }
        )
        title = f"{proof.name}: {proof.block} ({proof.parameters}), {proof.mode} {proof.depth}"
        kinds = (("proves", s.properties), ("assumes", s.assumptions), ("reaches", s.covers))
        lines = [(kind, sentence) for kind, sentences in kinds for sentence in sentences]
        shown.append(new_table(title, ("", "sentence"), lines))
    return Report({"proofs": rows}, shown)


def _manual(output: Path | None) -> Report:
    """The manual, on stdout or in a file."""
    text = manual()
    if output is None:
        return Report({"manual": text}, [Block(text)])
    write_atomically(output, text.encode())
    return Report({"output": str(output)}, [f"wrote {output}"])
