"""JVMs that live for seconds."""

QUICK_JVM = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xshare:auto"
"""Half the CPU time of a short Spark program is the optimizing compiler's."""
