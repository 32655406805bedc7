"""Wait for a table: for its watermark, its delete debt, a snapshot, its health or its lag."""
