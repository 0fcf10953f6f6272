"""Tables as data: typed cells in groups of rows, which the modules of `render` write as text, HTML or LaTeX."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from cfeval_cli.report.numbers import DASH as DASH
from cfeval_cli.report.numbers import SCORE, NumberFormat, is_missing, write_ordinal

ARROWS = {"higher": "↑", "lower": "↓", "none": ""}
STAR = "*"  # the ground truth
CIRCULAR_MARK = "◦"  # optimal by construction
NOT_IDENTIFIABLE_MARK = "§"  # depends on the parametrisation of the model, not on its predictions
LOW_COVERAGE_MARK = "†"
OUTSIDE_INTERVAL_MARK = "‡"  # a value outside its own interval

Direction = Literal["higher", "lower", "none"]


@dataclass(frozen=True)
class Title:
    """The head of a row or of a column: `1 C* (disc., label) ↑ §`."""

    name: str
    details: Sequence[str] = ()  # in brackets
    direction: Direction = "none"  # which values are better
    marks: str = ""  # directly behind the name
    suffix: str = ""  # at the end
    number: int | None = None  # reference from another part of the table
    latex: str | None = None  # the name as a formula
    term: str = ""  # entry of the glossary; the name if empty
    is_explainer: bool = False
    is_stacked: bool = False  # on a narrow screen, the lines of this column stand below those of the column before

    @property
    def text(self) -> str:
        """The title as plain text."""
        number = "" if self.number is None else f"{self.number} "
        parts = [f"{number}{self.name}{self.marks}{self.bracket}", ARROWS[self.direction], self.suffix]
        return " ".join(part for part in parts if part)

    @property
    def bracket(self) -> str:
        """The details in brackets, after a blank."""
        return f" ({', '.join(self.details)})" if self.details else ""

    @property
    def plain(self) -> str:
        """Name and details, as a sentence refers to them."""
        return f"{self.name}{self.bracket}"


@dataclass(frozen=True)
class Cell:
    """A number with what belongs to it, or a text. A missing number is None or NaN, and may have a reason."""

    value: float | str | None = None
    low: float | None = None
    high: float | None = None
    rank: float | None = None
    marks: str = ""  # behind the value and its interval
    n: int | None = None  # how many instances, seeds or rows the value is of
    bold: bool = False
    deviation: float | None = None  # the standard deviation, written behind the value: ±
    is_tied: bool = False
    rank_marks: str = ""
    is_range: bool = False  # low and high are the extremes of several values, not an interval of this one
    detail: str = ""  # a remark in brackets
    reason: str = ""  # why the value is missing
    form: NumberFormat = SCORE  # how the numbers are written

    @property
    def number(self) -> float | None:
        """The value, or the low end of a range; None for a text and where it is missing."""
        value = self.low if self.is_range and self.value is None else self.value
        return None if isinstance(value, str) or is_missing(value) else float(value)  # type: ignore[arg-type]

    @property
    def is_missing(self) -> bool:
        """Whether there is neither a number nor a text."""
        return self.number is None and not isinstance(self.value, str)

    @property
    def value_text(self) -> str:
        """The value and its deviation, or a dash."""
        if isinstance(self.value, str):
            return self.value
        if self.is_missing:
            return DASH
        if self.is_range and self.value is None:
            return self._range_text
        text = self.form.write(float(self.value))  # type: ignore[arg-type]
        return text if is_missing(self.deviation) else f"{text} ± {self.form.write(float(self.deviation or 0))}"

    @property
    def interval_text(self) -> str:
        """The interval in brackets; empty if there is none."""
        if self.is_missing or self.is_range or is_missing(self.low) or is_missing(self.high):
            return ""
        return self.form.write_interval(float(self.low or 0), float(self.high or 0))

    @property
    def _range_text(self) -> str:
        low, high = float(self.low or 0), float(self.high or 0)
        ends = self.form.write_end(low), self.form.write_end(high)
        return ends[0] if low == high else f"{ends[0]} to {ends[1]}"

    @property
    def rank_text(self) -> str:
        """The rank with its marks: 1st*; empty if there is none."""
        if is_missing(self.rank):
            return ""
        return f"{write_ordinal(float(self.rank or 0), tied=self.is_tied)}{self.rank_marks}"

    @property
    def bracket(self) -> str:
        """Rank, n or detail in brackets; empty if there is none."""
        return self.write_bracket(self.rank_text)

    def write_bracket(self, rank: str) -> str:
        """Write rank, n or detail in brackets."""
        parts = [rank, "" if self.n is None else f"{self.n:,}", self.detail]
        text = ", ".join(part for part in parts if part)
        return f"({text})" if text and not self.is_missing else ""

    @property
    def text(self) -> str:
        """The cell as plain text: 0.3652 [0.342, 0.389]‡§ (3rd*)."""
        if self.is_missing:
            return DASH
        if self.is_range and self.value is not None and not is_missing(self.low):
            parts = [f"{self.value_text}{self.marks}", self._range_text, self.bracket]
        elif self.interval_text:
            parts = [self.value_text, f"{self.interval_text}{self.marks}", self.bracket]
        else:
            parts = [f"{self.value_text}{self.marks}", self.bracket]
        return " ".join(part for part in parts if part)


BLANK = Cell("")


@dataclass(frozen=True)
class Row:
    """A title and a cell for each column."""

    title: Title
    cells: Sequence[Cell]

    @property
    def texts(self) -> list[str]:
        """The texts of the cells."""
        return [cell.text for cell in self.cells]


@dataclass(frozen=True)
class Table:
    """Groups of rows below the titles of the columns, and notes."""

    title: str
    header: Sequence[Title]  # the first is that of the rows' titles
    blocks: Sequence[Sequence[Row]]  # groups of rows, which a rule separates
    notes: Sequence[str] = ()
    is_supplementary: bool = False  # whether it is in the files and with --full only, not on the screen
    ranked: bool = False  # whether its columns are explainers, which each row ranks
    part: str = "trust"  # part of the report: scores, trust (in the metrics), cost or appendix

    @property
    def rows(self) -> list[Row]:
        """The rows of all groups."""
        return [row for block in self.blocks for row in block]

    def add_notes(self, *notes: str) -> Table:
        """Return the table with more notes."""
        return replace(self, notes=[*self.notes, *notes])
