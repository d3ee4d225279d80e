"""Write the generated reference pages, and the generated files of the Helm chart: `python -m tests.pages`."""

from __future__ import annotations

from tests.pages import pages
from tests.pages.helm_chart import generated_files, values_page

if __name__ == "__main__":
    for page in (*pages(), values_page()):
        page.write()
    for file in generated_files():
        file.write()
