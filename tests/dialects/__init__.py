"""Events as catalogs send them: golden ones, and one of every type; and the page that says what each comes to."""
