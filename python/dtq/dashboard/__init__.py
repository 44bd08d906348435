"""The dashboard: pages for those who run dtq, on the same verbs as the command line and the HTTP API.

`dtq dashboard` serves it beside the API; `mount_dashboard(create_app())` adds it to an API of your own.
Needs the extra `dtq[dashboard]`. One process serves it: what a page shows lives in the memory of that process.
docs/dashboard.md is its manual.

access.py gate.py             who may look: sign-in, session, sign-out, headers
layout.py style.css           the frame of every page, and how it looks
page.py                       one open page: reads off the loop, acts, asks, tells
parts.py table.py pager.py json_tree.py charts.py text.py progress.py   what pages are built of
figures.py feed.py bulk.py    what all pages share: figures, events, acts that take their time
overview.py tasks.py task.py queues.py workers.py dead_letters.py events.py audit.py   a page each
requeue.py queue_cells.py queue_choice.py   editing a payload; queues as cells, and to choose from
mount.py                      all of it onto an API
"""

from dtq.dashboard.mount import mount_dashboard, serve_dashboard

__all__ = ["mount_dashboard", "serve_dashboard"]
