"""Pages look as they did when a person last looked at them: screenshots, each reduced to a mosaic of averages.

`pytest tests/render/test_screenshots.py --update` writes the mosaics of `tests/render/screens/` anew. PERFAUDIT_SCREENSHOTS names
a folder for the pages at their full size, to look at (test_html_in_chromium.py). Another browser, or other fonts, draw
another page that is as good, so there nothing is compared.
"""

from __future__ import annotations

import base64
import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import chromium
import pytest
from browser_pages import PAGES, THEMES, WIDTHS

if not chromium.PROGRAM:
    pytest.skip("there is no Chromium here", allow_module_level=True)
Image = pytest.importorskip("PIL.Image")
numpy = pytest.importorskip("numpy")

SCREENS = Path(__file__).with_name("screens")
MADE_WITH = SCREENS / "made_with.json"
BLOCK = 16  # pixels that a tile of the mosaic is the average of, in each direction
OTHER = 24  # of 255 in a colour, from which on a tile is another one
MOST_OTHER = 0.01  # of the tiles: words may change, a column that is gone or a colour that is wrong is more
SETTLED = "new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))"
# Widths of a text in each of the fonts that pages ask for.
FONTS = """
["serif", "sans-serif", "monospace", "system-ui", "ui-monospace"].map((family) => {
  const canvas = document.createElement("canvas").getContext("2d");
  canvas.font = `100px ${family}`;
  return Math.round(canvas.measureText("219.7 ms a step, naïve → fast").width);
})
"""


@pytest.fixture(scope="module")
def page() -> Iterator[chromium.Tab]:
    with chromium.tab() as found:
        yield found


def made_with(page: chromium.Tab) -> dict[str, Any]:
    return {"browser": page.ask("Browser.getVersion")["product"], "fonts": page.value(FONTS)}


def mosaic(picture: bytes) -> Any:  # Any: an image of PIL's, which has no types here
    image = Image.open(io.BytesIO(picture)).convert("RGB")
    return image.resize((max(1, image.width // BLOCK), max(1, image.height // BLOCK)), Image.Resampling.BOX)


def share_of_others(seen: Any, known: Any) -> float:
    """Share of the tiles that differ, of the part that both have; 1 where one is longer by more than that share may be."""
    height = min(seen.height, known.height)
    if seen.width != known.width or abs(seen.height - known.height) > max(1, MOST_OTHER * known.height):
        return 1.0
    part = (0, 0, seen.width, height)
    tiles = [numpy.asarray(image.crop(part), dtype=int) for image in (seen, known)]
    return float((abs(tiles[0] - tiles[1]).max(axis=2) > OTHER).mean())


@pytest.mark.parametrize("name", PAGES)
def test_a_page_looks_as_it_did(page: chromium.Tab, tmp_path: Path, request: pytest.FixtureRequest, name: str) -> None:
    file = tmp_path / f"{name}.html"
    file.write_text(PAGES[name]())
    page.open(file)
    here, is_update = made_with(page), request.config.getoption("--update")
    if is_update:
        SCREENS.mkdir(exist_ok=True)
        MADE_WITH.write_text(json.dumps(here, indent=2) + "\n")
    elif here != json.loads(MADE_WITH.read_text()):
        pytest.skip("the mosaics were made with another browser or other fonts")
    others = {}
    for width in WIDTHS:
        for theme in THEMES:
            page.look(width, theme)
            page.value(SETTLED)
            picture = page.ask("Page.captureScreenshot", captureBeyondViewport=True)["data"]
            seen, kept = mosaic(base64.b64decode(picture)), SCREENS / f"{name}-{width}-{theme}.png"
            if is_update:
                seen.save(kept, optimize=True)
            others[kept.name] = share_of_others(seen, Image.open(kept).convert("RGB"))
    assert {name: share for name, share in others.items() if share > MOST_OTHER} == {}


def test_what_is_another_page() -> None:
    """A strip of another colour, a page that is longer, another width; a line of words is none."""
    known = Image.new("RGB", (25, 200), "white")
    words, strip = known.copy(), known.copy()
    words.paste((225, 225, 225), (0, 10, 25, 11))
    strip.paste((0, 0, 0), (0, 10, 25, 13))
    assert share_of_others(known, known) == 0
    assert share_of_others(words, known) <= MOST_OTHER < share_of_others(strip, known)
    assert share_of_others(Image.new("RGB", (25, 201), "white"), known) == 0
    assert share_of_others(Image.new("RGB", (25, 240), "white"), known) == 1
    assert share_of_others(Image.new("RGB", (26, 200), "white"), known) == 1
