"""An exhaustive model of one partition over the production decision functions; see README.md."""
