"""A preload that writes to the control socket what is no message."""

import os
import sys

os.write(int(sys.argv[2]), b"junk")
