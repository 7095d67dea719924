"""Every decision of packed samples, worked out again in numpy; needs no Spark and opens no file."""
