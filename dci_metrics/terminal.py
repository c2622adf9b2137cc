"""How a command behaves on a terminal: what Ctrl-C does while it starts, and which progress bars are shown."""

import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def interruptible() -> Iterator[None]:
    """Let Ctrl-C end the process at once: torch, interrupted while it is imported, aborts with a message of C++'s."""
    before = signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def quiet_unless_on_terminal() -> None:
    """Progress bars of the libraries are for people who watch; in a log they would stand between the messages."""
    import datasets
    import huggingface_hub

    # Its retries are told in a dozen lines; what comes of them is told in one.
    huggingface_hub.utils.logging.set_verbosity_error()
    if not sys.stderr.isatty():
        datasets.disable_progress_bars()
        # transformers asks for this when it is imported, which takes long and is not for every command.
        huggingface_hub.utils.disable_progress_bars()  # type: ignore[attr-defined]  # it is exported lazily
        if "transformers" in sys.modules:
            sys.modules["transformers"].utils.logging.disable_progress_bar()
