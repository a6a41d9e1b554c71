"""Speech to source words, offline: audio from files and microphones, recognisers, and when a word is committed.

Knows no pages and no servers' insides. Others use `recogniser.open_recogniser` and `recogniser.SpeechReader`.
"""
