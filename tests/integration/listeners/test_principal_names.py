"""The principal names of certificates equal those of Java's and Kafka's own classes."""

import base64
import subprocess

import pytest
from cryptography import x509
from cryptography.x509.name import _ASN1Type
from cryptography.x509.oid import NameOID, ObjectIdentifier

from proxy.config.sections.principal_mapping import MappingRuleError, PrincipalMapping
from proxy.tls.distinguished_name import distinguished_name
from tests.support.kafka.java_process import Jvm, java_command

EVERY_KEYWORD = [
    (NameOID.COUNTRY_NAME, "DE"),
    (NameOID.STATE_OR_PROVINCE_NAME, "Baden"),
    (NameOID.LOCALITY_NAME, "Ulm"),
    (NameOID.STREET_ADDRESS, "Main St. 1"),
    (NameOID.ORGANIZATION_NAME, "Example, Inc."),
    (NameOID.ORGANIZATIONAL_UNIT_NAME, "R&D"),
    (NameOID.DOMAIN_COMPONENT, "example"),
    (NameOID.USER_ID, "u1"),
    (NameOID.COMMON_NAME, "client"),
    (NameOID.EMAIL_ADDRESS, "a@example.com"),
    (NameOID.SERIAL_NUMBER, "42"),
    (NameOID.GIVEN_NAME, "Ada"),
    (ObjectIdentifier("1.2.3.4.99999"), "own"),
    (ObjectIdentifier("2.999.1"), "large"),
]
VALUES = [
    *',=+<>#;"\\',
    " ",
    "  ",
    " a ",
    "a  b",
    "#a",
    "a#",
    "ÄÖ",
    "日本",
    "😀",
    "a\r",
    "\ra",
    "a\nb",
    "a\tb",
    "\0a",
    "x" * 60,
    "a/b:c'()?",
]


def one(value: str, oid: ObjectIdentifier = NameOID.COMMON_NAME, kind: _ASN1Type | None = None) -> x509.NameAttribute:
    """Return a certificate attribute with any value."""
    return x509.NameAttribute(oid, value, kind, _validate=False)


def names() -> list[bytes]:
    """Return subject names in DER: every keyword, unusual values, multi-valued parts, every string type."""
    made = [x509.Name([one(value, oid) for oid, value in EVERY_KEYWORD])]
    made += [x509.Name([one(value)]) for value in VALUES]
    made += [x509.Name([one("ä b", kind=kind)]) for kind in (_ASN1Type.UTF8String, _ASN1Type.BMPString)]
    made += [x509.Name([one("a+b", kind=kind)]) for kind in (_ASN1Type.PrintableString, _ASN1Type.IA5String, _ASN1Type.T61String)]
    parts = [x509.RelativeDistinguishedName([one("a"), one("x@y", NameOID.EMAIL_ADDRESS), one("u", NameOID.USER_ID)])]
    made += [x509.Name([*parts, x509.RelativeDistinguishedName([one("O", NameOID.ORGANIZATION_NAME)])]), x509.Name([])]
    return [name.public_bytes() for name in made]


RULES = [
    "DEFAULT",
    "RULE:^CN=(.*?),.*$/$1/",
    "RULE:^CN=(.*?),.*$/$1/L,DEFAULT",
    "RULE:^CN=(.*?),.*$/$1/U , RULE:^CN=(.*?)$/$1@local/",
    "RULE:^CN=(.*?),.*$/$10/",
    "RULE:^CN=(.*?),.*$/$2/,DEFAULT",
    "RULE:^(?<who>CN)=(.*?)(,.*)?$/${who}-$2$3/",
    "RULE:^OU=(.*)$/$1/",
    "RULE:C*/x/,RULE:.*/y/",
    r"RULE:^CN=(.*)$/\$1\//",
    "RULE:a/b/,",
    ",DEFAULT",
    "RULE:a/b",
    "RULE:a/b/X",
    "RULE:a/b/L/g",
    "FOO",
    "DEFAULT RULE:a/b/",
    "RULE:^CN=(.*?),OU=(.*?)$/$1/\nDEFAULT",
]
SUBJECTS = ["CN=Kafka,O=x", "CN=kafka", "OU=Team\\, A,CN=b", "CN=a\\+b,OU=c", ""]


def ask_java(questions: list[str]) -> list[str]:
    """Return Java's answers; an answer that begins with "!" is an error."""
    command = [*java_command("4.3.1", Jvm(heap_mb=64)), "Principals"]
    done = subprocess.run(command, input="\n".join(questions), capture_output=True, text=True, check=True, timeout=120)
    return [line if line.startswith("!") else base64.b64decode(line).decode() for line in done.stdout.splitlines()]


def word(text: str | bytes) -> str:
    """Encode a text as one word."""
    return base64.b64encode(text.encode() if isinstance(text, str) else text).decode()


def mapped(rules: str, subject: str) -> str:
    """Return the result of Sluice's mapping rules for a subject; "!" for no result or an error."""
    try:
        found = PrincipalMapping(rules).name(subject)
    except MappingRuleError:
        return "!"
    return "!" if found is None else found


@pytest.mark.usefixtures("kraft")
def test_names_and_mapping_rules_are_as_in_kafka() -> None:
    """Every subject is written as Java writes it, and every mapping rule gives the same result as in Kafka."""
    subjects = names()
    pairs = [(rules, subject) for rules in RULES for subject in SUBJECTS]
    questions = [f"name {word(name)}" for name in subjects] + [f"rules {word(rules)} {word(subject)}" for rules, subject in pairs]
    answers = ask_java(questions)
    for name, answer in zip(subjects, answers, strict=False):
        assert distinguished_name(name) == answer, x509.Name
    for (rules, subject), answer in zip(pairs, answers[len(subjects) :], strict=True):
        assert mapped(rules, subject) == (answer if not answer.startswith("!") else "!"), (rules, subject, answer)
