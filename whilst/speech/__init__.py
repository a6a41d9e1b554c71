"""Speech to source words, offline: audio from files and microphones, recognisers, and when a word is committed.

Audio is mono 16-bit PCM of 16 kHz everywhere; knows no pages and no servers' insides.
Others use `recogniser.open_recogniser` and `reader.SpeechReader`, which turns chunks of audio into source words.
"""
