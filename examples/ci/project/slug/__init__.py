"""Names for addresses: small letters, digits, and a hyphen where anything else stood."""

import re


def slug(text: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")
