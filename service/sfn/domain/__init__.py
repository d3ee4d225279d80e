"""The domain's words: frozen, checked values without behaviour of their own."""
