"""The page that shows the OpenAPI description, with a content policy of its own."""

from __future__ import annotations

from fastapi import APIRouter, Request
from starlette.responses import HTMLResponse, Response

SWAGGER = "https://cdn.jsdelivr.net/npm/swagger-ui-dist@5"
POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self' https://cdn.jsdelivr.net",
        "style-src 'unsafe-inline' https://cdn.jsdelivr.net",
        "img-src 'self' data:",
        "connect-src 'self'",
        "frame-ancestors 'none'",
        "base-uri 'none'",
        "form-action 'none'",
    )
)
_PAGE = f"""\
<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>dtq HTTP API</title>
<link rel="stylesheet" href="{SWAGGER}/swagger-ui.css">
</head>
<body>
<div id="description"><p>The description of this API is <a href="openapi.json">openapi.json</a>; this page shows it
with Swagger UI, which it loads from cdn.jsdelivr.net.</p></div>
<script src="{SWAGGER}/swagger-ui-bundle.js"></script>
<script src="docs/start.js"></script>
</body>
</html>
"""
_START = """\
SwaggerUIBundle({ url: "openapi.json", dom_id: "#description", deepLinking: true, persistAuthorization: false });
"""

router = APIRouter(include_in_schema=False)


@router.get("/docs")
async def docs(_: Request) -> Response:
    """The page; nothing in it is written inline."""
    return HTMLResponse(_PAGE, headers={"Content-Security-Policy": POLICY})


@router.get("/docs/start.js")
async def start(_: Request) -> Response:
    """What starts it."""
    return Response(_START, media_type="text/javascript")
