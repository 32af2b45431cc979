"""Text of a PDF file. A PDF may be malicious, so a separate process with resource limits reads it."""

from __future__ import annotations

import logging
import pathlib
import resource
import subprocess
import sys

MAX_PAGES = 50
MAX_CHARS = 200_000
_SECONDS = 30  # CPU time; wall-clock time may be twice as long on a busy machine.
_MEMORY_BYTES = 1_000_000_000  # Address space, including the interpreter's.


class PdfError(Exception):
    """The PDF has no readable text; the message gives the reason, for the agent."""


def pdf_text(path: pathlib.Path) -> str:
    """Returns the text of the first `MAX_PAGES` pages, page by page, at most `MAX_CHARS` characters.

    A last line says where the text was cut.

    Raises:
      PdfError: the file is encrypted, broken, too expensive to read, or has no text.
    """

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_AS, (_MEMORY_BYTES, _MEMORY_BYTES))
        resource.setrlimit(resource.RLIMIT_CPU, (_SECONDS, _SECONDS))

    command = [sys.executable, "-I", __file__, str(path.resolve())]
    try:
        reader = subprocess.run(
            command, capture_output=True, timeout=2 * _SECONDS, check=False, preexec_fn=limit
        )
    except subprocess.TimeoutExpired as error:
        raise PdfError("takes too long to read") from error
    text = reader.stdout.decode("utf-8", "replace")
    if reader.returncode:
        raise PdfError(text if reader.returncode == 2 else "takes too much time or memory to read")
    return text


def _extract(path: str) -> str:
    # Imported here: only the separate process needs it, and each browser's would wait half a second.
    import pypdf

    logging.getLogger("pypdf").setLevel(logging.CRITICAL)  # It logs every flaw that it tolerates.
    reader = pypdf.PdfReader(path)
    # Many files are encrypted with an empty password, which only forbids printing.
    if reader.is_encrypted and not reader.decrypt(""):
        raise PdfError("is encrypted")
    count, text, number = len(reader.pages), "", 0
    for number in range(1, min(count, MAX_PAGES) + 1):
        if found := reader.pages[number - 1].extract_text().strip():
            text += ("\n\n" if text else "") + f"Page {number} of {count}\n{found}"
        if len(text) >= MAX_CHARS:
            break
    if not text:
        where = f" on its first {MAX_PAGES} of {count} pages" if count > MAX_PAGES else ""
        raise PdfError(f"holds no text{where}, perhaps only images")
    cut = number < count or len(text) > MAX_CHARS
    return text[:MAX_CHARS] + (f"\n\nCut at page {number} of {count}" if cut else "")


if __name__ == "__main__":
    try:
        answer, code = _extract(sys.argv[1]), 0
    except PdfError as problem:
        answer, code = str(problem), 2
    except MemoryError:
        raise
    except Exception as problem:  # On broken files the library raises exceptions of any kind.
        answer, code = f"is no readable PDF ({type(problem).__name__})", 2
    sys.stdout.buffer.write(answer.encode("utf-8", "replace"))
    sys.exit(code)
