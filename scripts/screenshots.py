"""Takes pictures of the page of a run: what scripts/screenshots.sh starts."""

import os
import sys
from collections.abc import Sequence
from pathlib import Path

from playwright.sync_api import ViewportSize, sync_playwright

WINDOW: ViewportSize = {"width": 1100, "height": 620}


def main(arguments: Sequence[str]) -> int:
    """Write both pictures; returns the process's exit status."""
    page_path, folder = map(Path, arguments)
    folder.mkdir(parents=True, exist_ok=True)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=os.environ.get("CHROMIUM"))
        page = browser.new_page(viewport=WINDOW, color_scheme="light")
        page.goto(page_path.as_uri())
        page.wait_for_selector("body[data-ready]")
        page.screenshot(path=folder / "report.png")
        page.locator("#report button").first.click()
        page.keyboard.press("t")
        page.wait_for_selector(".token")
        page.screenshot(path=folder / "discussion.png")
        browser.close()
    sys.stdout.write(f"{folder / 'report.png'}\n{folder / 'discussion.png'}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
