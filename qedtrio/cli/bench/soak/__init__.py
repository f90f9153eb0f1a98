"""`qedtrio bench --soak`: mixed traffic with faults, then a leak table.

Read `suite` for the order, `acts` for what is run, `episodes` for what clients
do, `player` for how answers are judged, `leaks` for what counts as growth.
"""
