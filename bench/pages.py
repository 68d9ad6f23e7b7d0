"""Write the pages of docs/ that are made from the code."""

from bench import events_page, metrics_page

PAGES = {events_page.PAGE: events_page.page, metrics_page.PAGE: metrics_page.page}


if __name__ == "__main__":
    for path, page in PAGES.items():
        path.write_text(page(), encoding="utf-8")
