"""The REST gateway: Tidelog's admin and inspect services over HTTP, and the web console."""
