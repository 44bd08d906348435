"""dtq beside other task queues on the same machine, server and payloads; README.md tells the method."""
