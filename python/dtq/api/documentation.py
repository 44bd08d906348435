"""The page that shows the OpenAPI description, with a content policy of its own: as a table, and with Swagger UI."""

from __future__ import annotations

from html import escape
from typing import Any

from fastapi import APIRouter, Request
from starlette.responses import HTMLResponse, Response

SWAGGER = "https://cdn.jsdelivr.net/npm/swagger-ui-dist@5.35.0/"
"""One version, whose files the browser compares: what else lies there does not run beside this API."""
_STYLE_HASH = "sha384-WlYgdmXYOOBWL5apwjDEZwN+U3HmXSSu5R6V5aGxEcf7z+KuRNwBhoxKVN1i3D5I"
_SCRIPT_HASH = "sha384-gjRm0bEPMeTmMh5jT2cHccIwCUZSTd8YC+j0d0sXw0MdGEfScduGpSyF3ZSSLkX9"
POLICY = "; ".join(
    (
        "default-src 'none'",
        f"script-src 'self' {SWAGGER}",
        f"style-src 'unsafe-inline' {SWAGGER}",
        "img-src 'self' data:",
        "connect-src 'self'",
        "frame-ancestors 'none'",
        "base-uri 'none'",
        "form-action 'none'",
    )
)
_PAGE = """\
<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>dtq HTTP API</title>
<link rel="stylesheet" href="{swagger}swagger-ui.css" integrity="{style_hash}" crossorigin="anonymous">
</head>
<body>
<div id="description">
<h1>dtq HTTP API</h1>
<p>All of it is in <a href="openapi.json">openapi.json</a>. Where cdn.jsdelivr.net can be reached, Swagger UI shows it
here.</p>
<table>
{rows}
</table>
</div>
<script src="{swagger}swagger-ui-bundle.js" integrity="{script_hash}" crossorigin="anonymous"></script>
<script src="docs/start.js"></script>
</body>
</html>
"""
_START = """\
if (window.SwaggerUIBundle) {
  SwaggerUIBundle({ url: "openapi.json", dom_id: "#description", deepLinking: true, persistAuthorization: false });
}
"""

router = APIRouter(include_in_schema=False)


@router.get("/docs")
async def docs(request: Request) -> Response:
    """The page; no script in it is written inline, and without Swagger UI it shows every route."""
    page = _PAGE.format(
        swagger=SWAGGER, style_hash=_STYLE_HASH, script_hash=_SCRIPT_HASH, rows=_rows(request.app.openapi())
    )
    return HTMLResponse(page, headers={"Content-Security-Policy": POLICY})


def _rows(description: dict[str, Any]) -> str:
    return "\n".join(
        f"<tr><td>{method.upper()}</td><td><code>{escape(path)}</code></td>"
        f"<td><strong>{escape(operation['summary'])}.</strong> {escape(operation.get('description', ''))}</td></tr>"
        for path, operations in description["paths"].items()
        for method, operation in operations.items()
    )


@router.get("/docs/start.js")
async def start(_: Request) -> Response:
    """What starts it."""
    return Response(_START, media_type="text/javascript")
