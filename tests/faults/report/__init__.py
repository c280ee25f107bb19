"""The report: `pictures` draws, `worst_moment` selects log lines, and `page` assembles both."""
