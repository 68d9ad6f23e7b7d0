"""Grafana's dashboards: what stands in deploy/observe/grafana, made by `make pages`."""
