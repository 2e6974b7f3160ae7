"""Recognise a column of currencies by its cells, whatever its name."""

from collections.abc import Iterable

from forecaster.ingest.tables.numbers import BLANK

# Codes of ISO 4217 that people pay with, and those of pence and cents as exchanges write them.
_CODES = """
AED AFN ALL AMD ANG AOA ARS AUD AWG AZN BAM BBD BDT BGN BHD BIF BMD BND BOB BRL BSD BTN BWP BYN
BZD CAD CDF CHF CLP CNH CNY COP CRC CUP CVE CZK DJF DKK DOP DZD EGP ERN ETB EUR FJD FKP GBP GEL
GHS GIP GMD GNF GTQ GYD HKD HNL HRK HTG HUF IDR ILS INR IQD IRR ISK JMD JOD JPY KES KGS KHR KMF
KPW KRW KWD KYD KZT LAK LBP LKR LRD LSL LYD MAD MDL MGA MKD MMK MNT MOP MRU MUR MVR MWK MXN MYR
MZN NAD NGN NIO NOK NPR NZD OMR PAB PEN PGK PHP PKR PLN PYG QAR RON RSD RUB RWF SAR SBD SCR SDG
SEK SGD SHP SLE SLL SOS SRD SSP STN SVC SYP SZL THB TJS TMT TND TOP TRY TTD TWD TZS UAH UGX USD
UYU UZS VES VND VUV WST XAF XCD XCG XOF XPF YER ZAR ZMW ZWG GBX GBp ZAc ILA
"""
# Some codes are words, too, so one of these must be in a column of currencies.
_USUAL = "AUD BRL CAD CHF CNY DKK EUR GBP GBX GBp HKD INR JPY KRW MXN NOK NZD PLN SEK SGD USD ZAR"
# What a sign means; a dollar and a yen or yuan may be those of several countries.
_SIGNS = {
    "€": "EUR", "£": "GBP", "₹": "INR", "₩": "KRW", "₽": "RUB", "₺": "TRY", "₪": "ILS", "₫": "VND",
    "₴": "UAH", "₦": "NGN", "₱": "PHP", "฿": "THB", "US$": "USD", "C$": "CAD", "CA$": "CAD",
    "A$": "AUD", "AU$": "AUD", "NZ$": "NZD", "HK$": "HKD", "S$": "SGD", "NT$": "TWD", "MX$": "MXN",
    "R$": "BRL", "$": "$", "¥": "¥", "￥": "¥",
}  # fmt: skip
_KNOWN = frozenset((*_CODES.split(), *_SIGNS))
_EXPECTED = frozenset((*_USUAL.split(), *_SIGNS))


def are_currencies(words: Iterable[object]) -> bool:
    """Return whether these are codes or signs of currencies, at least one of them a usual one.

    ``words``: the distinct cells of a column; empty ones, such as ``-`` or ``n/a``, do not count
    """
    codes = _codes(words)
    return codes <= _KNOWN and bool(codes & _EXPECTED)


def may_be_currencies(words: Iterable[object]) -> bool:
    """Return whether these may be a part of a column of currencies. Empty cells do not count."""
    return _codes(words) <= _KNOWN


def currency_of(word: str) -> str:
    """Return the code of a currency's sign (EUR for €); any other text as it is.

    ``$`` and ``¥`` stay as they are, because several currencies have them.
    """
    return _SIGNS.get(word, word)


def _codes(words: Iterable[object]) -> set[str]:
    stripped = {str(word).strip() for word in words}
    return {word for word in stripped if word.lower() not in BLANK}
