"""What scripts/prove.py runs, a module a part."""
