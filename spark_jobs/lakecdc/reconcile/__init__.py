"""Tables compared with their sources: by hashes of key ranges first, then row by row where these differ."""
