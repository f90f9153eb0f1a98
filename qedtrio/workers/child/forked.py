"""What every freshly forked process does first and last."""

import os
import sys
import traceback
from collections.abc import Callable
from typing import NoReturn

__all__ = ["run_and_exit"]


def run_and_exit(main: Callable[[], object]) -> NoReturn:
    """Run `main` and leave without the parent's clean-up handlers."""
    code = 1
    try:
        main()
        code = 0
    except SystemExit as error:
        code = error.code if isinstance(error.code, int) else 1
    except BaseException:
        traceback.print_exc()
    finally:
        try:
            sys.stderr.flush()
        finally:
            os._exit(code)
