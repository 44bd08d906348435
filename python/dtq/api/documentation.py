"""The page that shows the OpenAPI description: with Swagger UI, from this server alone, or as a table.

It holds nothing of this server, so it is open; the description that it loads needs the key, where keys are set, which
the page asks for, sends to this server only and keeps until it is left. Its files are of one Python package, so that
it works without the world outside, and its content policy names no other place.
"""

from __future__ import annotations

from functools import cache
from importlib.util import find_spec
from pathlib import Path

from fastapi import APIRouter
from starlette.exceptions import HTTPException
from starlette.responses import FileResponse, HTMLResponse, Response

_PACKAGE = "fastapi_offline"
"""Only its files are used; it is not imported."""
_SCRIPT, _STYLE = "swagger-ui-bundle.js", "swagger-ui.css"
PAGES = frozenset({"/docs", "/docs/start.js", "/docs/page.css", f"/docs/{_SCRIPT}", f"/docs/{_STYLE}"})
"""What a browser loads before it asks for the key."""
POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self' data:",
        "connect-src 'self'",
        "frame-ancestors 'none'",
        "base-uri 'none'",
        "form-action 'none'",
    )
)
_HEADERS = {"Content-Security-Policy": POLICY, "Cache-Control": "no-cache"}
_FILE_HEADERS = {**_HEADERS, "Cache-Control": "private, max-age=3600"}
_PAGE = f"""\
<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>dtq HTTP API</title>
<link rel="icon" href="data:,">
<link rel="stylesheet" href="docs/page.css">
<!-- swagger --><link rel="stylesheet" href="docs/{_STYLE}">
</head>
<body>
<h1>dtq HTTP API</h1>
<form id="ask" hidden>
<label for="key">API key</label>
<input id="key" type="password" autocomplete="current-password" required>
<button type="submit">Show</button>
<p>It is sent to this server only, and forgotten when this page is left.</p>
</form>
<p id="told" role="alert"></p>
<div id="description"></div>
<noscript><p>All of it is in openapi.json, beside this page; this page needs scripts to show it.</p></noscript>
<!-- swagger --><script src="docs/{_SCRIPT}"></script>
<script src="docs/start.js"></script>
</body>
</html>
"""
_CSS = """\
body { margin: 0 auto; padding: 1rem; max-width: 90rem; font: 1rem/1.5 system-ui, sans-serif; color: #222;
       background: #fff; }
td { padding: .25rem .75rem .25rem 0; vertical-align: top; }
#told { color: #a00; }
"""
_START = """\
"use strict";
(() => {
  const [form, field, told, place] = ["ask", "key", "told", "description"].map((id) => document.getElementById(id));
  let key = "";

  function withKey(request) {
    const here = new URL(request.url, location.href).origin === location.origin;
    if (key && here) request.headers["X-API-Key"] ??= key; // one given by "Authorize" wins
    return request;
  }

  function showTable(description) {
    const table = document.createElement("table");
    for (const [path, operations] of Object.entries(description.paths)) {
      for (const [method, operation] of Object.entries(operations)) {
        const row = table.insertRow();
        for (const text of [method.toUpperCase(), path, `${operation.summary}. ${operation.description ?? ""}`]) {
          row.insertCell().textContent = text;
        }
      }
    }
    place.replaceChildren(table);
  }

  async function show() {
    const answer = await fetch("openapi.json", { headers: key ? { "X-API-Key": key } : {} }).catch(() => null);
    if (answer?.ok) {
      form.hidden = true;
      told.textContent = "";
      if (!window.SwaggerUIBundle) return showTable(await answer.json());
      document.querySelector("h1").hidden = true; // it has a heading of its own
      SwaggerUIBundle({
        url: "openapi.json", domNode: place, deepLinking: true, validatorUrl: null, persistAuthorization: false,
        requestInterceptor: withKey,
      });
    } else if (answer?.status === 401) {
      told.textContent = key ? "This is not one of the API keys." : "";
      form.hidden = false;
      field.focus();
    } else {
      told.textContent = answer ? `The server answered ${answer.status}.` : "The server does not answer.";
    }
  }

  form.addEventListener("submit", (event) => {
    event.preventDefault();
    key = field.value.trim();
    field.value = "";
    if (/^[!-~]+$/.test(key)) show(); // what no header can hold is no key
    else told.textContent = "This is not one of the API keys.";
  });
  show();
})();
"""

router = APIRouter(include_in_schema=False)


@cache
def swagger_ui() -> Path | None:
    """The folder of Swagger UI's files; None where its package is not installed, or keeps them elsewhere."""
    found = find_spec(_PACKAGE)
    for place in (found.submodule_search_locations if found is not None else None) or ():
        folder = Path(place, "static")
        if all((folder / name).is_file() for name in (_SCRIPT, _STYLE)):
            return folder
    return None


@router.get("/docs")
async def docs() -> Response:
    """The page; no script in it is written inline."""
    lines = _PAGE.splitlines(keepends=True)
    if swagger_ui() is None:
        lines = [line for line in lines if not line.startswith("<!-- swagger -->")]
    return HTMLResponse("".join(lines).replace("<!-- swagger -->", ""), headers=_HEADERS)


@router.get("/docs/start.js")
async def start() -> Response:
    """What asks for the key and starts it."""
    return Response(_START, media_type="text/javascript", headers=_HEADERS)


@router.get("/docs/page.css")
async def style() -> Response:
    """How it looks around Swagger UI."""
    return Response(_CSS, media_type="text/css", headers=_HEADERS)


@router.get(f"/docs/{_SCRIPT}")
async def swagger_script() -> Response:
    """Swagger UI."""
    return _file(_SCRIPT, "text/javascript")


@router.get(f"/docs/{_STYLE}")
async def swagger_style() -> Response:
    """Its style."""
    return _file(_STYLE, "text/css")


def _file(name: str, kind: str) -> Response:
    folder = swagger_ui()
    if folder is None:
        raise HTTPException(404)
    return FileResponse(folder / name, media_type=kind, headers=_FILE_HEADERS)
