"""A client with TLS in a child process: it sends records and reads them back as a member of a group.

    python -m tests.support.clients.by_tls confluent|aio|kafka_python BOOTSTRAP TOPIC COUNT CA_FILE

Prints how many records were acknowledged and how many of them were read.
"""

import ssl
import sys
from collections.abc import Mapping
from importlib import import_module
from typing import Any


def settings_of(client: str, ca: str) -> Mapping[str, Any]:
    """Return the settings with which a client trusts an authority."""
    if client == "confluent":
        return {"security.protocol": "ssl", "ssl.ca.location": ca}
    return {"security_protocol": "SSL", "ssl_context": ssl.create_default_context(cafile=ca)}


def main(client: str, bootstrap: str, topic: str, count: str, ca: str) -> None:
    """Send and read the records."""
    module, settings = import_module(f"tests.support.clients.{client}"), settings_of(client, ca)
    values = [b"%d" % number for number in range(int(count))]
    acknowledged = module.produce(bootstrap, topic, values, settings=settings)
    read = module.consume(bootstrap, topic, len(values), f"group-of-{topic}", settings=settings)
    print(acknowledged, len(set(values) & set(read)))


if __name__ == "__main__":
    main(*sys.argv[1:])
