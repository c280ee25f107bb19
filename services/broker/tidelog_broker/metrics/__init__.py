"""What a broker measures (section 7 of ARCHITECTURE.md): counted where requests pass, and
collected from its replicas when a scrape asks."""
