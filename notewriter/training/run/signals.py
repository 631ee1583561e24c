"""The signals between launchers and their processes, apart from both: a launcher need not load a trainer."""

import signal

SIGNALS = (signal.SIGTERM, signal.SIGUSR1)
"""The signals at which a run saves a checkpoint and stops, to be continued."""

STOPPED = 75
"""Exit code of a run that was stopped by a signal and can be continued: EX_TEMPFAIL of BSD's sysexits.h."""
