"""The characters that the experiment on handwriting writes."""

ALPHABET = " .,'ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
SYMBOLS = len(ALPHABET) + 1  # The last one is for all other characters.
