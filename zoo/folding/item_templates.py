"""The templates of every chain of an item: the user's own structures, or those that a search has found."""

from __future__ import annotations

import dataclasses
import datetime
from pathlib import Path

from zoo.errors import UserError
from zoo.folding.inputs import Item
from zoo.folding.item_alignments import chain_letter, hits_of_chain
from zoo.folding.options import PredictOptions
from zoo.proteins.experiments import STRUCTURES
from zoo.proteins.hits import read_hits
from zoo.proteins.known_templates import Template, found_templates, own_templates, read_once, structure_files
from zoo.proteins.problems import Problem


def item_templates(item: Item, options: PredictOptions) -> tuple[list[list[Template]], list[Problem]]:
    """Templates of each chain; the same for copies of a chain.

    Returns:
        the templates, and notes on what was left out.
    """
    assert item.record is not None
    own = item.record.templates or options.templates
    by_sequence: dict[str, list[Template]] = {}
    problems: list[Problem] = []
    for number, sequence in enumerate(item.record.chains):
        if sequence in by_sequence:
            continue
        found: list[Template] = []
        if own is not None:
            found, notes = own_templates(sequence, structure_files(own))
            problems += [dataclasses.replace(note, reason=of_chain(item, number, note.reason)) for note in notes]
        if options.structures is not None and not found:
            found, notes = searched(item, number, options)
            problems += notes
        by_sequence[sequence] = [dataclasses.replace(one, report=of_chain(item, number, one.report)) for one in found]
    return [by_sequence[sequence] for sequence in item.record.chains], problems


def of_chain(item: Item, number: int, text: str) -> str:
    """The text, with the chain of a complex that it is about."""
    assert item.record is not None
    return text if len(item.record.chains) == 1 else f"{text} (over chain {chain_letter(number)})"


def unreadable(templates: Path) -> list[Problem]:
    """The files of the user's own templates that cannot be read.

    Raises:
        UserError: there is none that can.
    """
    files = structure_files(templates)
    wrong = [problems[0] for known, problems in map(read_once, files) if known is None]
    if len(wrong) == len(files):
        why = f": {wrong[0]}" if wrong else f"; expected files that end in {', '.join(STRUCTURES)} (also packed)"
        raise UserError(f"templates={templates} holds no structure that can be read{why}")
    return [dataclasses.replace(one, fatal=False) for one in wrong]


def searched(item: Item, number: int, options: PredictOptions) -> tuple[list[Template], list[Problem]]:
    """Templates of one chain from its files of hits."""
    assert item.record is not None and options.structures is not None
    record, sequence = item.record, item.record.chains[number]
    folder = options.hits or item.folder or options.alignments
    files = hits_of_chain(dataclasses.replace(record, name=item.name) if item.folder else record, folder, number)
    if not files:
        where = Path(str(folder or "hits="))
        return [], [Problem(str(where), f"no template hits of chain {number + 1}", record.name, fatal=False)]
    latest = options.max_template_date
    found: list[Template] = []
    problems: list[Problem] = []
    for path in files:
        hits, wrong = read_hits(path, sequence, record.name)
        problems += [dataclasses.replace(problem, fatal=False) for problem in wrong]
        templates, notes = found_templates(
            sequence, hits, options.structures, datetime.date.fromisoformat(latest) if latest else None
        )
        found, problems = found + templates, problems + notes
    return found, problems
