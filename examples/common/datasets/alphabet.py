"""The characters that the experiment on handwriting writes."""

ALPHABET = " .,'ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
SYMBOLS = len(ALPHABET) + 1  # And one for all others.
