"""The page for operators below `/ui`, rendered on the server; a viewer of the OpenAPI description; a page of links.

Start reading with `app.ui_router`. `session` signs operators in, `rendering` has the templates, security headers and
assets. The other modules have the pages; each order of an operator calls the function of the admin API.
"""
