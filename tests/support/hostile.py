"""Tokens that would do harm if interpreted as anything but text."""

HOSTILE = (
    "<script>alert(1)</script>",
    "</script><b>bold",
    '"><img src=x onerror=alert(2)>',
    "&amp;",
    "${1}",
    "\u2028",
)
