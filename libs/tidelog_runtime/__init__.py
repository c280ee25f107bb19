"""Code that Tidelog's services share and that its clients do not need."""
