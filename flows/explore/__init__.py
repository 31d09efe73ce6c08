"""Design-space exploration: spaces of configurations, searches, exact costs in a store, results.

`space` says which configurations and networks there are, `search` which of them to look at next, `workers` where they
are priced, `store` keeps what they cost, `metrics` turns that into what an architect weighs up, and `results` puts it
all together for tables, pictures and pages.
"""
