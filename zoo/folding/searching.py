"""The stage before inference: alignments and template hits of every item from the user's own databases, or a server's alignments.

What is found is kept in OUTPUT/NAME/msas, in the layout of the original, with a note of what was searched with which sequence; a
search is repeated only where one of both has changed.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from zoo.errors import Stopped, UserError
from zoo.folding.inputs import Item
from zoo.folding.item_alignments import PAIRING, chain_alignments, chain_letter
from zoo.folding.options import PredictOptions
from zoo.folding.results import write_text
from zoo.proteins import programs, search, server
from zoo.proteins.alignments import Alignment, parse_a3m, parse_stockholm, single
from zoo.proteins.features import MOST_ROWS
from zoo.proteins.problems import Problem
from zoo.proteins.programs import Database

Say = Callable[[str], None]
TEMPLATE_DATABASE = "pdb"  # pdb_seqres as FASTA, pdb70 or pdb100 of the HH-suite
PROFILE = "uniref90"  # of its hits the profile is made with which templates are searched
NOTE = "search.json"
SERVED = "colabfold.a3m"  # of all chains, from a server


def with_alignments(
    items: list[Item],
    options: PredictOptions,
    output: Path,
    say: Say,
    stopped: Callable[[], bool] = lambda: False,
) -> list[Item]:
    """The items with what was found for them, now or by an earlier run; those with alignments of their own stay as they are.

    Raises:
        UserError: a database cannot be read or its program is missing, or `stage=msa` has no databases.
        Stopped: `stopped()` was true before a search; those before it are kept.
    """
    if options.msa == "single":
        return items
    if options.databases is None and options.msa_server is None and options.stage == "msa":
        raise UserError(
            "stage=msa needs databases=FOLDER, which holds FASTA files such as uniref90.fasta, or msa_server=https://HOST"
        )
    files = programs.databases(options.databases) if options.databases and options.stage != "infer" else []
    result = []
    for item in items:
        if item.failed or item.duplicate_of or item.depth > 1:
            result.append(item)
            continue
        if stopped():
            raise Stopped("what was found is kept; the same command goes on with the next protein")
        try:
            if options.msa_server is not None and options.stage != "infer":
                served_item(item, options.msa_server, output, say)
            else:
                searched_item(item, files, options.cpus, output, say)
            result.append(found_before(item, output))
            if options.stage == "infer" and result[-1] is item:
                say(f"note: {item.name}: no earlier search in {output / item.name}; the sequence alone")
        except search.SearchFailed as error:
            problem = Problem(item.record.file if item.record else "", f"search failed: {error}", item.name)
            result.append(dataclasses.replace(item, problems=(*item.problems, problem)))
    return result


def found_before(item: Item, output: Path) -> Item:
    """The item with the alignments in its folder of the output, where there are some."""
    assert item.record is not None
    folder = output / item.name / "msas"
    if not folder.is_dir():
        return item
    record = dataclasses.replace(item.record, name=item.name)
    served = folder / SERVED if (folder / SERVED).is_file() else None
    found, problems = chain_alignments(record, served, output, False)
    kept = [problem for problem in item.problems if not problem.reason.startswith("no alignment of chain")]
    return dataclasses.replace(
        item, alignments=found.own, pairing=found.pairing, paired_by_row=found.by_row, problems=(*kept, *problems),
        folder=output,
    )  # fmt: skip


def served_item(item: Item, host: str, output: Path, say: Say) -> None:
    """Asks a server, unless it has answered for these chains before."""
    assert item.record is not None
    folder = output / item.name / "msas"
    note = json.dumps({"server": host, "chains": item.record.chains}, indent=1)
    if (folder / NOTE).exists() and (folder / NOTE).read_text() == note:
        return
    started = time.monotonic()
    text = server.alignment(host.rstrip("/"), item.record.chains)
    folder.mkdir(parents=True, exist_ok=True)
    write_text(folder / SERVED, text)
    write_text(folder / NOTE, note)
    say(f"{item.name}: {host} found {text.count('>') - 1} rows ({time.monotonic() - started:.1f} s)")


def searched_item(item: Item, files: list[Database], cpus: int, output: Path, say: Say) -> None:
    """Searches every different chain in every database."""
    assert item.record is not None
    chains = item.record.chains
    for number, sequence in enumerate(chains):
        if not files or chains.index(sequence) != number:
            continue
        base = output / item.name / "msas"
        folder = base if len(chains) == 1 else base / chain_letter(number)
        note = json.dumps(searched_with(sequence, files), indent=1)
        if (folder / NOTE).exists() and (folder / NOTE).read_text() == note:
            continue
        started = time.monotonic()
        output.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=output, prefix=".search-") as name:  # what fails half way leaves nothing
            counts = searched_chain(sequence, files, Path(name), cpus, different=len(set(chains)) > 1)
            write_text(Path(name) / NOTE, note)
            folder.mkdir(parents=True, exist_ok=True)
            for path in sorted(Path(name).iterdir()):
                path.replace(folder / path.name)
        text = ", ".join(f"{count} {name}" for name, count in counts.items())
        place = f" chain {number + 1}" if len(chains) > 1 else ""
        say(f"{item.name}{place}: found {text} ({time.monotonic() - started:.1f} s)")


def searched_with(sequence: str, files: list[Database]) -> dict[str, object]:
    """What a search depends on."""
    return {
        "sequence": hashlib.sha256(sequence.encode()).hexdigest(),
        "databases": {one.path.name: one.stamp for one in files},
    }


def searched_chain(sequence: str, files: list[Database], folder: Path, cpus: int, different: bool) -> dict[str, int]:
    """Writes DATABASE_hits of each database and, for those of known structures, pdb_hits; returns the hits of each."""
    counts: dict[str, int] = {}
    profile = single("query", sequence)
    templates = [one for one in files if one.name.startswith(TEMPLATE_DATABASE) and one.kind != "mmseqs2"]
    for database in files:
        pairing = database.name.startswith(PAIRING)
        if database in templates or (pairing and not different):
            continue
        found = alignment_of(sequence, database, folder, cpus)
        counts[database.name] = len(found) - 1 if found else 0
        if found is not None and database.name.startswith(PROFILE):
            profile = found
    for database in templates:
        if database.kind == "fasta":
            text = search.known_relatives(profile, database.path, cpus)
            write_text(folder / "pdb_hits.sto", text)
            counts[database.name] = text.count("#=GS")
        else:
            text = programs.hhsearch(profile, database.path, cpus)
            write_text(folder / "pdb_hits.hhr", text)
            counts[database.name] = text.count("\n>")
    return counts


def alignment_of(sequence: str, database: Database, folder: Path, cpus: int) -> Alignment | None:
    """Searches one database and writes what it found, as many rows as the original reads of it."""
    most = next((rows for name, rows in MOST_ROWS.items() if database.name.startswith(name)), MOST_ROWS[PROFILE])
    if database.kind == "fasta":
        text = search.relatives("query", sequence, database.path, most, cpus)
        write_text(folder / f"{database.name}_hits.sto", text)
        return parse_stockholm(text, database.name, sequence)[0]
    by = programs.hhblits if database.kind == "hhsuite" else programs.mmseqs2
    text = by(sequence, database.path, cpus)
    write_text(folder / f"{database.name}_hits.a3m", text)
    return parse_a3m(text, database.name, sequence)[0]
