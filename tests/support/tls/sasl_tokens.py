"""SASL tokens as clients send them, and changed ones."""

import base64
import json
import random
from typing import Final

NAMES: Final = [
    "alice",
    "x",
    "Ünïcode-ß",
    "a b",
    "<default>",
    "a,b",
    "a=b",
    "=2C",
    "__unknown__/l/PLAIN",
    "user@EXAMPLE.COM",
    "CN=a,O=b",
    "日本",
]
ASCII_NAMES: Final = [name for name in NAMES if name.isascii()]
PASSWORD: Final = "correct-horse-canary"  # noqa: S105 - a canary


def plain(name: str, password: str = PASSWORD, authzid: str = "") -> bytes:
    """Return the token of a PLAIN login."""
    return f"{authzid}\0{name}\0{password}".encode()


def scram_first(
    name: str, *, authzid: str | None = None, nonce: str = "fyko+d2lbbFgONRv9qkxdawL", reserved: str = "", extra: str = ""
) -> bytes:
    """Return the first token of a SCRAM login."""
    acting_for = "" if authzid is None else f"a={authzid}"
    saslname = name.replace("=", "=3D").replace(",", "=2C")
    return f"n,{acting_for},{reserved}n={saslname},r={nonce}{extra}".encode()


def jwt(claims: dict[str, object] | str, header: str = '{"alg":"none"}', signature: bytes = b"") -> str:
    """Return a compact token; `claims` may be the JSON text."""
    payload = claims if isinstance(claims, str) else json.dumps(claims)
    return ".".join(base64.urlsafe_b64encode(part).decode().rstrip("=") for part in (header.encode(), payload.encode(), signature))


def bearer(token: str, *, authzid: str | None = None, scheme: str = "Bearer", extensions: str = "") -> bytes:
    """Return the token of an OAUTHBEARER login."""
    acting_for = "" if authzid is None else f"a={authzid}"
    return f"n,{acting_for},\x01auth={scheme} {token}\x01{extensions}\x01".encode()


def claims(sub: object) -> dict[str, object]:
    """Return the claims of a token that never expires."""
    return {"sub": sub, "iat": 1_700_000_000, "exp": 4_000_000_000, "scope": ["a"], "nested": {"sub": "mallory", "list": [1, {"sub": 2}]}}


def valid_tokens() -> list[tuple[str, bytes, str]]:
    """Return tokens that a broker accepts: mechanism, token, name."""
    tokens = [("PLAIN", plain(name), name) for name in NAMES]
    tokens += [("PLAIN", plain(name, authzid=name), name) for name in NAMES]
    for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512"):
        tokens += [(mechanism, scram_first(name), name) for name in ASCII_NAMES]
        tokens += [(mechanism, scram_first("bob", authzid="bob"), "bob"), (mechanism, scram_first("bob", reserved="m=x,"), "bob")]
        tokens += [(mechanism, scram_first("bob", extra=",tokenauth=false"), "bob"), (mechanism, scram_first("bob", extra=",k=v=w"), "bob")]
    tokens += [("OAUTHBEARER", bearer(jwt(claims(name))), name) for name in NAMES]
    tokens += [
        ("OAUTHBEARER", bearer(jwt(claims("bob")), authzid="bob", scheme="bEaReR"), "bob"),
        ("OAUTHBEARER", bearer(jwt(claims("bob")), extensions="traceId=1 2\x01other=b\x01"), "bob"),
        ("OAUTHBEARER", bearer(jwt('{ "exp" : 4000000000, "sub" : "\\u0061l\\"ice" , "n":null}')), 'al"ice'),
    ]
    return tokens


def dubious_tokens() -> list[tuple[str, bytes]]:
    """Return tokens that a broker refuses, or that brokers read differently: they name no user."""
    good = jwt(claims("bob"))
    return [
        *(
            ("PLAIN", token)
            for token in (b"", b"\0", b"\0\0", b"\0a\0", b"\0\0p", b"a\0p", b"x\0a\0p", b"\0a\0p\0", b"\0a\0p\0q", b"\0\xff\0p")
        ),
        *(("PLAIN", token) for token in (b"\0\xed\xa0\x80\0p", b"\0\xc0\xaf\0p", b"a\0A\0p")),
        *(
            ("SCRAM-SHA-256", token)
            for token in (
                b"",
                b"y,,n=a,r=x",
                b"p=tls-unique,,n=a,r=x",
                b"n,,n=,r=x",
                b"n,,n=a",
                b"n,,n=a,r=",
                b"n,,n=a=41,r=x",
                b"n,,n=a=2c,r=x",
                b"n,a=b,n=a,r=x",
                b"n,a=a=2Cb,n=a=2Cb,r=x",
                b"n,,n=a,r=x\n",
                b"n,,n=a,r=x y",
                b"n,,n=\xc3\xa9,r=x",
                b"n,,n=a,r=x,1=2",
                b"n,,n=a,r=x,k=",
                b"\nn,,n=a,r=x",
                b"n,,n=a\0,r=x",
            )
        ),
        *(
            ("OAUTHBEARER", token)
            for token in (
                b"",
                b"\x01",
                b"n,,\x01\x01",
                bearer(good, authzid="alice"),
                bearer(good, scheme="Basic"),
                bearer(good.replace(".", "", 1)),
                bearer(good + ".x.y"),
                bearer("opaque"),
                bearer(jwt('{"sub":"a","sub":"b","exp":4000000000}')),
                bearer(jwt('{"sub":"a","s\\u0075b":"b","exp":4000000000}')),
                bearer(jwt(claims(7))),
                bearer(jwt(claims(None))),
                bearer(jwt(claims(" bob"))),
                bearer(jwt(claims(""))),
                bearer(jwt('{"sub":"\\ud800","exp":4000000000}')),
                bearer(jwt('["sub"]')),
                bearer(jwt('{"exp":4000000000}')),
                bearer(jwt('{"sub":"a",}')),
                bearer(jwt("{'sub':'a'}")),
                bearer(jwt('{"sub":"a"} x')),
                bearer(jwt('{"x":' + "[" * 200 + "]" * 200 + ',"sub":"a"}')),
                bearer(jwt(claims("x" * 20_000))),
                bearer(good) + b"x",
                bearer(good, extensions="auth=Bearer x\x01"),
                bearer(good, extensions="auth=" + "Bearer " + jwt(claims("eve")) + "\x01"),
            )
        ),
    ]


_SNIPPETS: Final = [
    b"\0",
    b"\x01",
    b",",
    b"=",
    b"=2C",
    b"=3D",
    b"=2c",
    b".",
    b"a=",
    b"n=",
    b"r=",
    b"m=",
    b" ",
    b"\n",
    b"\xff",
    b"\xc3",
    b"auth=",
    b'"',
    b"\\",
    b"{",
    b"tokenauth=true",
    b",tokenauth=TRUE",
]


def mutated(token: bytes, dice: random.Random) -> bytes:
    """Return a token with one to three small changes."""
    changed = bytearray(token)
    for _ in range(dice.randint(1, 3)):
        at = dice.randint(0, len(changed))
        match dice.randint(0, 4):
            case 0:
                changed[at:at] = dice.choice(_SNIPPETS)
            case 1:
                changed[at : at + 1] = bytes([dice.randrange(256)])
            case 2:
                del changed[at : at + dice.randint(1, 3)]
            case 3:
                changed[at : at + 1] = dice.choice(_SNIPPETS)
            case _:
                end = min(len(changed), at + dice.randint(1, 8))
                changed[at:at] = changed[at:end]
    return bytes(changed)


def mutated_claims(dice: random.Random) -> bytes:
    """Return an OAUTHBEARER token whose signed part is changed, not its encoding."""
    text = mutated(json.dumps(claims(dice.choice(NAMES))).encode(), dice)
    parts = (b'{"alg":"none"}', text, b"")
    return bearer(".".join(base64.urlsafe_b64encode(part).decode().rstrip("=") for part in parts))
