"""Starting the processes of workers and hub."""
