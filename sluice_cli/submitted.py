"""The program that `spark-submit` starts: `sluice meter`, on executors that have unpacked the archive of `sluice meter archive`.

spark-submit --master spark://HOST:7077 --archives sluice.tar.gz#sluice --conf spark.executorEnv.PYTHONPATH=./sluice \\
    sluice_cli/submitted.py validate --engine spark --in hdfs:///metering
"""

from sluice_cli.meter import meter

if __name__ == "__main__":
    meter()
