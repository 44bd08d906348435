"""The frame of every page: brand, navigation, theme and sign-out around the page's own content."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from zlib import crc32

from nicegui import ui
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from dtq.dashboard.page import Desk, Page
from dtq.dashboard.parts import button, data, link, tag

FILES = Path(__file__).parent
NAVIGATION = (
    ("Overview", "./", "insights"),
    ("Tasks", "tasks", "format_list_bulleted"),
    ("Queues", "queues", "layers"),
    ("Workers", "workers", "memory"),
    ("Dead letters", "dead-letters", "report_gmailerrorred"),
    ("Events", "events", "bolt"),
    ("Audit", "audit", "history"),
)
THEMES = ("auto", "light", "dark")
THEME_COOKIE = "dtq_theme"
_THEME_ICONS = {"auto": "brightness_auto", "light": "light_mode", "dark": "dark_mode"}
_SHEET = crc32((FILES / "style.css").read_bytes())
_GROUNDS = {"light": "#f6f7f9", "dark": "#0f1216"}


def add_page(desk: Desk, path: str, title: str, build: Callable[[Page], object], *, under: str = "") -> None:
    """Serves a page. build: makes its content; what it shows is read afterwards. under: its place in the navigation."""

    def serve(request: Request) -> Response | None:
        visitor = desk.access.visitor(request.cookies)
        if visitor is None:  # the gate has let nobody else through
            return RedirectResponse("login", 303)
        theme = request.cookies.get(THEME_COOKIE, "auto")
        _dress(theme if theme in THEMES else "auto")
        _header(theme if theme in THEMES else "auto", visitor.name, under or title)
        banner = tag("div", "", "banner", role="alert")
        banner.visible = False
        build(Page(desk, request, visitor, banner))
        return None

    serve.__annotations__ = {"request": Request}  # the library reads the class, not its name
    ui.page(path, title=f"{title} · dtq")(serve)


def page_head(title: str) -> ui.element:
    """The head of a page: its title, and room for what belongs beside it."""
    with tag("div", classes="page-head") as head:
        tag("h1", title)
    return head


def _dress(theme: str) -> None:
    ground = (
        f"html{{background:{_GROUNDS[theme]}}}"
        if theme in _GROUNDS
        else f"html{{background:{_GROUNDS['light']}}}"
        f"@media(prefers-color-scheme:dark){{html{{background:{_GROUNDS['dark']}}}}}"
    )
    # The ground at once, so that no white page flashes up before the library has started.
    # The number keeps browsers from using the sheet of another version for an hour.
    ui.add_head_html(f'<style>{ground}</style><link rel="stylesheet" href="style.css?{_SHEET}">')
    ui.dark_mode({"auto": None, "light": False, "dark": True}[theme])


def _header(theme: str, name: str | None, here: str) -> None:
    # Not "as wide as it takes", the default: the library would ask the browser, and complain when it is slow to answer.
    with ui.left_drawer(value=False, bordered=True).classes("sidebar") as drawer:
        drawer.props("show-if-above width=212 breakpoint=1000")
        for label, address, icon in NAVIGATION:
            with link("", address, "navigation-link" + (" here" if label == here else "")) as entry:
                if label == here:
                    entry.props["aria-current"] = "page"
                ui.icon(icon)
                tag("span", label)
    with ui.header(wrap=False).classes("topbar"):
        menu = button("", drawer.toggle, "quiet", icon="menu").classes("lt-md menu-button")
        menu.props('dense round aria-label="Menu"')
        with tag("a", classes="brand", href="./"):
            tag("img", src="icon.svg", alt="", width="24", height="24")
            tag("span", "dtq")
        tag("span", classes="push")
        _theme_menu(theme)
        if name is not None:
            data(name).classes("who")
            with tag("form", method="post", action="logout").style("margin: 0"):
                ui.button("Sign out", color=None).props("flat no-caps type=submit").classes("quiet small")


def _theme_menu(theme: str) -> None:
    """Auto follows the system. The choice is kept by the browser, in a cookie that says nothing else."""
    with ui.button(icon=_THEME_ICONS[theme], color=None).props('flat round dense aria-label="Theme"') as chosen:
        chosen.classes("quiet")
        with ui.menu():
            for name in THEMES:
                # Only names of this file stand in the script.
                kept = f"'{THEME_COOKIE}={name};path='+window.path_prefix+'/;max-age=31536000;samesite=lax'"
                entry = ui.menu_item(f"{name.capitalize()}{' (as the system)' if name == 'auto' else ''}")
                entry.on("click", js_handler=f"() => {{ document.cookie = {kept}; location.reload(); }}")
