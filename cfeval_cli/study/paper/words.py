"""What the audit takes from the data and not from the paper: the lengths of the sentences of Movie Reviews."""

from __future__ import annotations

from pathlib import Path

from cfeval_cli.errors import UserError

FILES = ("rt-polarity.pos", "rt-polarity.neg")


def measure(folder: str | Path) -> tuple[float, int]:
    """Mean of 1 / words, and the number of sentences, without the lines that are not valid UTF-8.

    The mean is what a word drawn at random scores where one word of each sentence is the gold one.
    """
    lengths = []
    for name in FILES:
        path = Path(folder) / name
        if not path.is_file():
            raise UserError(f"{path} is not there: put the sentence polarity data into {folder}.")
        for line in path.read_bytes().splitlines():
            try:
                lengths.append(len(line.decode("utf-8").split()))
            except UnicodeDecodeError:
                continue
    return sum(1 / length for length in lengths) / len(lengths), len(lengths)
