"""What a broker measures: counted where requests pass, and
collected from its replicas when a scrape asks."""
