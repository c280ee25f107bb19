"""What Tidelog's services share, and its clients never need."""
