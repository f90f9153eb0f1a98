"""Problems and, later, episodes played on sessions and verdicts."""
