"""An app to which nobody has given a task."""

import dtq

app = dtq.App()
