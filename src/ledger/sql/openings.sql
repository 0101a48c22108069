SELECT number, month, file, file_sha256, entries, kept, hash FROM openings ORDER BY number
