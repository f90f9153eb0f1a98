"""A preload that fails once a file named `fail` lies in the state folder.

A fork server knows its folder from the description that it was started with.
"""

import json
import sys
from pathlib import Path

root = json.loads(sys.argv[1])["sandbox"]["root"]
if (Path(root).parent / "fail").exists():
    raise RuntimeError("told to fail")
