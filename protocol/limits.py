"""Every limit of the wire format, by name. Each is checked before a byte is stored."""

LENGTH_BYTES = 4
"""The size field in front of each frame; it does not count itself."""

HEAD_BYTES = 12
"""Length, API key, version, correlation id: the beginning of every request, which is read in place."""

RESPONSE_HEAD_BYTES = 8
"""Length and correlation id: the beginning of every response."""

MAX_REQUEST_BYTES = 104_857_600
"""Largest request frame, without its length. Source: Kafka's default `socket.request.max.bytes`."""

MAX_REWRITTEN_RESPONSE_BYTES = 64 * 1024 * 1024
"""Most bytes of a response that are kept for rewriting; a longer one closes the connection, since it might leak an address."""

MAX_HEADER_BYTES = 160 * 1024
"""Largest request or response header."""

MAX_CHANGE_REQUEST_BYTES = 4 * 1024 * 1024
"""Largest request to create or delete topics that is buffered and checked; about ten thousand topics."""

MAX_CHANGE_TOPICS = 10_000
"""Most topics in a request that is checked topic by topic. Source: Kafka's controller creates at most 10,000 partitions in one batch."""

MAX_CHANGE_PARTS = 100_000
"""Most assignments, configurations and tagged fields of all topics together in such a request."""

MAX_TAGGED_FIELDS = 64
"""Most tagged fields in one header, and in each tag section that is parsed."""

MAX_TAGGED_FIELD_BYTES = 64 * 1024
"""Largest tagged field in a header."""

MAX_STRING_BYTES = 32_767
"""Largest string, also where its length is a varint. Source: Kafka's generated message classes."""

MAX_WALK_BYTES = 64 * 1024
"""Most bytes of a streamed response that are kept for parsing: one cut field, or its tail with node endpoints."""

MAX_LOGIN_FRAME_BYTES = 524_288
"""Largest token of a client that renews its login. Source: Kafka's `sasl.server.max.receive.size`."""

MAX_EARLY_FRAME_BYTES = 64 * 1024
"""Largest request frame, and largest token, before the first login has succeeded where one is required: any client can send it."""

MAX_MECHANISM_BYTES = 64
"""Largest name of a SASL mechanism; the standard allows 20."""

MAX_PRINCIPAL_BYTES = 1_024
"""Largest user name that is taken from a token."""

MAX_OBSERVED_TOKEN_BYTES = 16 * 1024
"""Largest SASL token that a name is read from."""

MAX_QUOTA_REQUEST_BYTES = 4 * 1024 * 1024
"""Largest request about quotas that is buffered to be answered by Sluice; a thousand entities with the longest names."""

MAX_QUOTA_REQUEST_PARTS = 50_000
"""Most entities, parts of them and changes together in one such request; each becomes an object."""

MAX_CONFIG_REQUEST_BYTES = 256 * 1024
"""Largest configuration request that is searched for users and clients; a larger one goes to the broker."""
