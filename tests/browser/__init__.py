"""The page for operators in a real browser, against a real service."""
