"""The benchmarks of scripts/bench: servers, loads, measures, statistics. They aren't shipped."""
