"""Models of what clients may have seen, and the judges that hold a history against them."""
