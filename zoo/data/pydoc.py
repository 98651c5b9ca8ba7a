"""English text that every Python carries: the documentation of the language, for rehearsals where there is no other."""

from __future__ import annotations

import re
from collections.abc import Iterator

from zoo.data.shards import Source

TEST_EVERY = 10


def source(split: str) -> Source:
    """The documents of "train" or "test": each tenth, in order of their names, tests."""
    return Source(f"Python's documentation, {split}", f"pydoc {split} {TEST_EVERY}", lambda: documents(split))


def documents(split: str) -> Iterator[str]:
    """One document for each topic of the language; a paragraph a line."""
    from pydoc_data.topics import topics  # here: half a megabyte that only rehearsals need

    for number, name in enumerate(sorted(topics)):
        if (number % TEST_EVERY == 0) == (split == "test"):
            paragraphs = re.split(r"\n\s*\n", topics[name])
            # Lines of stars, dashes and equal signs underline titles.
            joined = (" ".join(re.sub(r"[*=~^-]{4,}", " ", paragraph).split()) for paragraph in paragraphs)
            yield "\n".join(paragraph for paragraph in joined if paragraph)
