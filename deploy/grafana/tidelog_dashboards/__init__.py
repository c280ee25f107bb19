"""Tidelog's Grafana dashboards as code."""
