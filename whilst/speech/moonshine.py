"""moonshine-voice in a process of its own, started by `MoonshineProcess`: requests and audio in, segments out.

A request is a line of JSON followed by its audio; an answer is a line of JSON.
"""

import contextlib
import ctypes
import json
import os
import sys
from typing import Any


def main() -> None:
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # messages of the package go to stderr, not among the answers
    import moonshine_voice
    from moonshine_voice.transcriber import Transcriber

    options = {"identify_speakers": "false", "return_audio_data": "false"}
    arch = moonshine_voice.ModelArch.TINY
    transcriber = Transcriber(moonshine_voice.get_model_path("tiny-en"), arch, options=options)
    streams: dict[int, Any] = {}
    while line := sys.stdin.buffer.readline():
        request = json.loads(line)
        samples = memoryview(sys.stdin.buffer.read(request["bytes"])).cast("h")
        number = request["stream"]
        if number not in streams:
            streams[number] = transcriber.create_stream(update_interval=float("inf"))
        elif request["start"]:
            streams[number].stop()
        if request["start"]:
            streams[number].start()
        if samples:
            streams[number].add_audio([sample / 32768 for sample in samples], request["rate"])
        if request["stop"]:
            segments = streams[number].stop().lines
            streams.pop(number).close()
        else:
            segments = streams[number].update_transcription(transcriber.MOONSHINE_FLAG_FORCE_UPDATE).lines
        rows = [[segment.text, segment.is_complete, segment.start_time + segment.duration] for segment in segments]
        print(json.dumps(rows), file=answers, flush=True)
        if rows and rows[-1][1]:
            trim_memory()


def trim_memory() -> None:
    """Return freed memory to the system: the model's buffers fragment glibc's heap, by 25 MB a minute of speech."""
    with contextlib.suppress(AttributeError):  # another C library
        ctypes.CDLL(None).malloc_trim(0)


if __name__ == "__main__":
    main()
