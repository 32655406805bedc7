"""Read MySQL and MariaDB: full loads by ranges of keys, then the binary log."""
