"""Processes that have another processor than this one, or the same without some of its instructions."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Self

from llvmlite import binding

from kidxlib.format.checksum_kernel import FORCED_BY
from tests.docs.pages import PROJECT
from tests.processors.questions import Question, Told

#: Emulators, and another machine's Python with the packages of kidx: `./setup.sh emulated`.
EMULATED: Final = PROJECT / ".jars" / "emulated"
#: What to hide so that so many words are left that are multiplied at once, by the beginnings of LLVM's names.
_HIDDEN: Final = {8: (), 4: ("avx512", "avx10"), 0: ("avx512", "avx10", "vpclmulqdq")}


@dataclass(frozen=True, slots=True)
class Processor:
    """
    Attributes:
        python: the command that starts Python there.
        environment: of its processes, beside this one's.
    """

    python: Sequence[str | Path] = (sys.executable,)
    environment: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def with_vectors_of(cls, words: int) -> Self:
        """This processor, of which numba and kidx see no instruction that multiplies more words at once."""
        features = binding.get_host_cpu_features()
        hidden = [name for name, is_there in features.items() if is_there and name.startswith(_HIDDEN[words])]
        if not hidden:
            return cls()  # as numba sees it anyhow, so that the loops are compiled already
        features.update(dict.fromkeys(hidden, False))
        return cls(environment={"NUMBA_CPU_FEATURES": features.flatten()})

    @classmethod
    def emulated_x86(cls, kind: str) -> Self:
        """An x86-64 processor of a kind that qemu knows. Compiled loops are kept."""
        emulator = EMULATED / "qemu-x86_64-static"
        return cls((emulator, "-cpu", kind, sys.executable), {"NUMBA_CACHE_DIR": str(EMULATED / "loops")})

    @classmethod
    def emulated_arm(cls) -> Self:
        """An Arm processor, with Debian's Python and the wheels for it. Compiled loops are kept."""
        root = EMULATED / "aarch64" / "root"
        [python] = (root / "usr" / "bin").glob("python3.[0-9][0-9]")
        packages = EMULATED / "aarch64" / "packages"
        return cls(
            (EMULATED / "qemu-aarch64-static", "-L", root, python),
            {"NUMBA_CACHE_DIR": str(EMULATED / "loops"), "PYTHONPATH": str(packages)},
        )

    def with_checksums(self, name: str) -> Self:
        """The same, with an implementation of checksums."""
        return type(self)(self.python, {**self.environment, FORCED_BY: name})

    def run(self, code: str, *arguments: str | Path) -> str:
        """Run a program; what it has printed."""
        ended = subprocess.run(
            (*self.python, "-c", code, *arguments),
            cwd=PROJECT,
            env={**os.environ, **self.environment},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        assert ended.returncode == 0, ended.stdout[-5_000:]
        return ended.stdout

    def ask(self, questions: Sequence[Question], directory: Path) -> Told:
        """Have questions answered there. They and the answers are left in a directory."""
        asked, told = directory / "questions", directory / "answers"
        asked.write_bytes(pickle.dumps(list(questions)))
        self.run("from tests.processors.questions import tell; tell()", asked, told)
        answers: Told = pickle.loads(told.read_bytes())
        return answers
