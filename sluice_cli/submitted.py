"""The program that `spark-submit` starts: `sluice meter`, with the packages that `--py-files` brought.

spark-submit --master spark://HOST:7077 --py-files kafka_sluice.whl sluice_cli/submitted.py validate --engine spark --in hdfs:///metering
"""

from sluice_cli.meter import meter

if __name__ == "__main__":
    meter()
