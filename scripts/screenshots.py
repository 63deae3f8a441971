"""Takes pictures of the page of a run; see scripts/screenshots.sh."""

import os
import sys
from collections.abc import Sequence
from io import BytesIO
from pathlib import Path

from PIL import Image
from playwright.sync_api import Page, ViewportSize, sync_playwright

NUM_COLORS = 128
"""Colours of a picture: a third of the bytes, without a visible difference."""
WINDOW: ViewportSize = {"width": 1100, "height": 620}


def main(arguments: Sequence[str]) -> int:
    """Write both pictures; return the exit status."""
    page_path, folder = map(Path, arguments)
    folder.mkdir(parents=True, exist_ok=True)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=os.environ.get("CHROMIUM"))
        page = browser.new_page(viewport=WINDOW, color_scheme="light")
        page.goto(page_path.as_uri())
        page.wait_for_selector("body[data-ready]")
        take(page, folder / "report.png")
        page.locator("#report button").first.click()
        page.keyboard.press("t")
        page.wait_for_selector(".token")
        take(page, folder / "discussion.png")
        browser.close()
    return 0


def take(page: Page, path: Path) -> None:
    """Write what the window shows as a small PNG."""
    with Image.open(BytesIO(page.screenshot())) as picture:
        picture.convert("RGB").quantize(NUM_COLORS).save(path, optimize=True)
    sys.stdout.write(f"{path}\n")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
