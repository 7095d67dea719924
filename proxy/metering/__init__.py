"""Every decision becomes data: noted on the loop in under half a microsecond, written by a thread, made Parquet by a child process."""
