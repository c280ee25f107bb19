"""The report of a proof: `pictures` draws, `worst_moment` tells, `page` puts them together."""
