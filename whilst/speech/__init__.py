"""Speech to source words on this machine: audio from files and microphones, and recognisers.

Contains no server or page. Other packages use `recogniser.open_recogniser` and `recogniser.SpeechReader`.
"""
