"""One thing that is known of this machine or of what is installed on it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Fact:
    """What was found.

    Attributes:
        subject: what it is about: "kidx", "processor", ….
        name: what of it, unlike all others of the subject.
        found: what was found there, as a text.
        problem: what does not work because of it, and what to do; None: nothing is wrong.
    """

    subject: str
    name: str
    found: str
    problem: str | None = None
