"""Debian's Chromium without a window, driven by Selenium: what operators see of a page, and whether all can use it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, Literal

from selenium import webdriver
from selenium.common.exceptions import WebDriverException
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By
from selenium.webdriver.remote.webelement import WebElement
from selenium.webdriver.support.expected_conditions import staleness_of
from selenium.webdriver.support.ui import WebDriverWait

from tests.support.programs import found

PATIENCE: Final = 20.0
"""Seconds to wait for what a page shows."""
_RULES: Final = {"runOnly": ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]}
_RUN_AXE: Final = "axe.run(document, arguments[0]).then(arguments[1], error => arguments[1](String(error)))"


class Chromium:
    """A browser with one tab."""

    def __init__(self) -> None:
        options = webdriver.ChromeOptions()
        options.binary_location = str(found("SFN_CHROMIUM"))
        # Root cannot have Chromium's sandbox, and a container's /dev/shm is small; the pages are our own.
        for argument in ("--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu"):
            options.add_argument(argument)
        options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
        self._axe = found("SFN_AXE").read_text()
        self._driver = webdriver.Chrome(options=options, service=Service(str(found("SFN_CHROMEDRIVER"))))
        self._driver.set_window_size(1300, 1000)

    def close(self) -> None:
        """End it."""
        self._driver.quit()

    # ── What is shown

    def open(self, address: str) -> None:
        """Open a page."""
        self._driver.get(address)

    @property
    def address(self) -> str:
        """Where it is."""
        return str(self._driver.current_url)

    @property
    def title(self) -> str:
        """The title of the page."""
        return str(self._driver.title)

    @property
    def text(self) -> str:
        """What is to be read on the page."""
        return self.find("main").text

    def find(self, selector: str) -> WebElement:
        """Return the first element."""
        return self._driver.find_element(By.CSS_SELECTOR, selector)

    def find_all(self, selector: str) -> Sequence[WebElement]:
        """Return all elements."""
        return list(self._driver.find_elements(By.CSS_SELECTOR, selector))

    def click(self, selector: str) -> None:
        """Press a button, or follow a link, and wait for the page that it leads to."""
        self._follow(By.CSS_SELECTOR, selector)

    def press(self, text: str) -> None:
        """Press the button, or follow the link, with a text, and wait for the page that it leads to."""
        quoted = f"'{text}'"  # XPath has no escapes
        self._follow(By.XPATH, f"//button[normalize-space()={quoted}] | //a[normalize-space()={quoted}]")

    def _follow(self, by: str, selector: str) -> None:
        # Under load, ChromeDriver's click returns before the browser has begun to leave the page.
        left = self.find("html")
        self._driver.find_element(by, selector).click()
        WebDriverWait(self._driver, PATIENCE, 0.05, [WebDriverException]).until(
            staleness_of(left), "no other page came"
        )

    def type(self, selector: str, text: str) -> None:
        """Type into a field."""
        field = self.find(selector)
        field.clear()
        field.send_keys(text)

    def until_shown(self, text: str, within: float = PATIENCE) -> None:
        """Wait until a text is on the page, which may renew itself.

        Raises:
            AssertionError: it does not come.
        """
        try:
            # An element may be replaced while it is read; ChromeDriver has several errors for that.
            WebDriverWait(self._driver, within, 0.1, [WebDriverException]).until(
                lambda driver: text in driver.find_element(By.TAG_NAME, "main").text
            )
        except Exception as error:
            raise AssertionError(f"{text!r} is not on {self.address}:\n{self.text}") from error

    # ── How it is shown

    def show(self, scheme: Literal["light", "dark"], *, scripts: bool = True) -> None:
        """Prefer light or dark pages from now on; run scripts or not."""
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        self._driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})
        self._driver.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": not scripts})

    def save(self, file: Path, width: int = 1300) -> None:
        """Save a picture of the whole page."""
        # The page is at least as high as the window.
        self._driver.set_window_size(width, 500)
        height = int(self._driver.execute_script("return document.documentElement.scrollHeight"))
        self._driver.set_window_size(width, min(max(height + 140, 500), 1_300))
        file.parent.mkdir(parents=True, exist_ok=True)
        self._driver.save_screenshot(str(file))

    def resize(self, width: int, height: int = 1000) -> None:
        """Give the window another size: that of a phone, say."""
        metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 700}
        self._driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)

    def evaluate(self, expression: str) -> Any:  # noqa: ANN401 - JSON
        """Return the value of a JavaScript expression."""
        return self._driver.execute_script(f"return {expression}")

    # ── What is wrong with it

    def barriers(self) -> list[str]:
        """Return what keeps some people from using the page, by axe."""
        self._driver.execute_script(self._axe)
        result: Any = self._driver.execute_async_script(_RUN_AXE, _RULES)
        assert isinstance(result, dict), result
        return [
            f"{one['id']} ({one['impact']}): {one['help']}: {[node['html'] for node in one['nodes']][:3]}"
            for one in result["violations"]
        ]

    def complaints(self) -> list[str]:
        """Return the errors and warnings of the console since the last call: what a strict policy forbade is there."""
        return [one["message"] for one in self._records("browser") if one["level"] in {"SEVERE", "WARNING"}]

    def requested(self) -> list[str]:
        """Return the addresses of all requests since the last call, also of those that failed."""
        messages = [json.loads(record["message"])["message"] for record in self._records("performance")]
        sent = [one["params"]["request"]["url"] for one in messages if one["method"] == "Network.requestWillBeSent"]
        return [url for url in sent if not url.startswith("data:")]

    def transferred(self) -> dict[str, int]:
        """Return the bytes that came over the network since the last call, by address."""
        sizes: dict[str, int] = {}
        addresses: dict[str, str] = {}
        for record in self._records("performance"):
            message = json.loads(record["message"])["message"]
            parameters = message["params"]
            if message["method"] == "Network.requestWillBeSent":
                addresses[parameters["requestId"]] = parameters["request"]["url"]
            elif message["method"] == "Network.loadingFinished" and parameters["requestId"] in addresses:
                address = addresses[parameters["requestId"]]
                sizes[address] = sizes.get(address, 0) + int(parameters["encodedDataLength"])
        return sizes

    def _records(self, kind: str) -> list[dict[str, Any]]:
        return list(self._driver.get_log(kind))  # type: ignore[no-untyped-call] # it has no types

    def forget_files(self) -> None:
        """Forget cached files."""
        self._driver.execute_cdp_cmd("Network.clearBrowserCache", {})

    def forget(self) -> None:
        """Forget cookies, cached files, and what the console said."""
        self.complaints()
        self.forget_files()
        self._driver.execute_cdp_cmd("Network.clearBrowserCookies", {})


@contextmanager
def browsing() -> Iterator[Chromium]:
    """A browser, ended in the end."""
    browser = Chromium()
    try:
        yield browser
    finally:
        browser.close()
