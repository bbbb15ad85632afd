"""A channel keeps its deadlines."""

from __future__ import annotations

import json
import os
import time

import pytest

from leaderboard.sandbox.channel import Channel, ChannelError, pipe_pair


def test_an_endless_sender_does_not_keep_the_judge_beyond_the_deadline():
    (reading, here), (there, writing) = pipe_pair()
    channel = Channel(reading, here)
    header = json.dumps(["megabatch", {}, []]).encode()
    os.write(writing, (len(header).to_bytes(8, "big") + header) * 10)
    assert channel.receive(deadline=time.monotonic() + 5).kind == "megabatch"
    with pytest.raises(ChannelError, match="took too long"):
        channel.receive(deadline=time.monotonic() - 1)
    for descriptor in (reading, here, there, writing):
        os.close(descriptor)
