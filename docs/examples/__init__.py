"""Examples, installed beside the package so that the demonstration runs where there is no checkout."""
