"""A preload that is not fork-safe, for the test that it is refused."""

import threading  # noqa: TID251  # the very thing that is refused

threading.Thread(target=threading.Event().wait, daemon=True).start()
